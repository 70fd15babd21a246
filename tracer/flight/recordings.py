"""Recordings: segments that were kept. Each is hard links to some and a note why, so keeping them costs no room."""

import calendar
import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from tracer.errors import FlightError
from tracer.flight.directory import Directory
from tracer.flight.segment import FINISHED, completed

MOST = 8
"""Recordings kept; beyond it the oldest goes. An incident makes one or two."""

MOST_BYTES = 256 * 1024 * 1024
"""Bytes of all of them: four full rings. Segments that two recordings share count once."""

MAX_REASON = 300
"""Characters of a reason kept."""

MAX_NOTE = 64 * 1024
"""Bytes of a note read; ours have some hundred."""

CHUNK = 256 * 1024
"""Bytes of a download given at once."""

_ID = re.compile(r"\d{8}T\d{6}\.\d{3}Z")
_SEGMENT = re.compile(rf"({_ID.pattern})\.(\d{{10}})\.gz")


@dataclass(frozen=True, slots=True)
class Frozen:
    """A recording. Times are Unix ns; `end` is null while records are still added, and if its writer was killed then.

    `reasons`: why it was frozen, the first reason first.
    """

    id: str
    frozen: int
    reasons: tuple[str, ...] = ()
    begin: int | None = None
    end: int | None = None
    bytes: int = 0

    @property
    def filename(self) -> str:
        return f"criscope-{self.id.replace('.', '-')}.jsonl.gz"


@dataclass(slots=True)
class Download:
    """A recording as one capture file of `size` bytes, given in `chunks`; whatever is dropped meanwhile, it is whole.

    `close` when it is not read to its end.
    """

    filename: str
    size: int
    parts: list[int | bytes] = field(default_factory=list)  # open files; in memory those that are not complete

    def chunks(self) -> Iterator[bytes]:
        """The bytes; once."""
        with contextlib.closing(self):
            while self.parts:
                part = self.parts[0]
                if isinstance(part, bytes):
                    yield part
                else:
                    while chunk := os.read(part, CHUNK):
                        yield chunk
                    os.close(part)
                self.parts.pop(0)

    def close(self) -> None:
        while self.parts:
            part = self.parts.pop()
            if isinstance(part, int):
                os.close(part)


class Recordings:
    """What is kept in a directory. `every` and `open` may be called by any thread; they look at the directory only."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def every(self) -> list[Frozen]:
        """Every recording, the newest first."""
        sizes: dict[str, int] = {}
        for name, state in self._directory.files():
            found = _SEGMENT.fullmatch(name)
            if found:
                sizes[found[1]] = sizes.get(found[1], 0) + state.st_size
        return [self._note(each, sizes[each]) for each in sorted(sizes, reverse=True)]

    def _note(self, id_: str, size: int) -> Frozen:
        note: dict[str, object] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):
            fd = self._directory.open(f"{id_}.json")
            try:
                found = json.loads(os.read(fd, MAX_NOTE))
            finally:
                os.close(fd)
            note = found if isinstance(found, dict) else {}
        reasons = note.get("reasons")
        return Frozen(
            id_, moment(id_), tuple(map(str, reasons)) if isinstance(reasons, list) else (), _time(note.get("begin")),
            _time(note.get("end")), size,
        )  # fmt: skip

    def open(self, id_: str) -> Download:
        """Raises FlightError when there is no such recording, OSError when it cannot be read."""
        names = self._segments(id_) if _ID.fullmatch(id_) else []
        download = Download(Frozen(id_, 0).filename, 0)
        try:
            for name in names:
                part = self._part(name)
                download.parts.append(part)
                download.size += len(part) if isinstance(part, bytes) else os.fstat(part).st_size
        except BaseException:
            download.close()
            raise
        if not download.parts:
            raise FlightError(f"no recording {id_[:40]!r}; the list of recordings names those there are")
        return download

    def _part(self, name: str) -> int | bytes:
        fd = self._directory.open(name)
        if os.fstat(fd).st_mode & 0o777 == FINISHED:
            return fd
        with os.fdopen(fd, "rb") as file:
            return completed(file.read())

    def _segments(self, id_: str) -> list[str]:
        found = (_SEGMENT.fullmatch(name) for name, _ in self._directory.files())
        return sorted(each[0] for each in found if each and each[1] == id_)

    # the recorder's thread

    def keep(self, id_: str, segment: str, number: int) -> None:
        """Add a segment."""
        with contextlib.suppress(FileExistsError):
            self._directory.link(segment, segment_name(id_, number))

    def note(self, frozen: Frozen) -> None:
        """Say why and from when to when."""
        said = {key: value for key, value in asdict(frozen).items() if key in ("reasons", "begin", "end")}
        self._directory.replace(f"{frozen.id}.json", json.dumps(said).encode())

    def remove(self, id_: str) -> None:
        for name in self._segments(id_):
            self._directory.remove(name)
        self._directory.remove(f"{id_}.json")

    def trim(self) -> None:
        """Drop the oldest beyond what may be kept, never the newest."""
        kept = self.every()
        while len(kept) > 1 and (len(kept) > MOST or self._bytes() > MOST_BYTES):
            self.remove(kept.pop().id)

    def _bytes(self) -> int:
        files = {state.st_ino: state.st_size for name, state in self._directory.files() if _SEGMENT.fullmatch(name)}
        return sum(files.values())


def segment_name(id_: str, number: int) -> str:
    return f"{id_}.{number:010}.gz"


def identity(unix_ns: int) -> str:
    """The id of a recording frozen then: 20260301T120102.345Z."""
    whole = time.strftime("%Y%m%dT%H%M%S", time.gmtime(unix_ns // 1_000_000_000))
    return f"{whole}.{unix_ns // 1_000_000 % 1000:03}Z"


def moment(id_: str) -> int:
    """Unix ns of an id, to the millisecond."""
    whole = calendar.timegm(time.strptime(id_[:15], "%Y%m%dT%H%M%S"))
    return whole * 1_000_000_000 + int(id_[16:19]) * 1_000_000


def _time(value: object) -> int | None:
    return value if type(value) is int else None
