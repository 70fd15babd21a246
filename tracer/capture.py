"""Capture files: records as gzipped JSON Lines (docs/capture-format.md). A capture is a source like the kernel."""

import binascii
import gzip
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from pydantic_core import from_json

from tracer.errors import CaptureError
from tracer.pieces import Pieces
from tracer.records import Closed, Data, Exec, Exit, Lost, OomKill, Opened, Record

T = TypeVar("T")

FORMAT = "cri-capture-jsonl"
VERSION = 1

MAX_HEADER = 4096
"""Bytes of the first line; ours has about a hundred. A longer one is of another format: do not read all of it."""

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line: a 16 MiB send in base64, doubled; a longer line is not a record of ours."""

MAX_NUMBER = 1 << 63
"""Numbers are 64-bit signed where they come from and where they go (kernel, SQLite)."""

FLUSH_SECONDS = 1.0
"""A recording that is killed is readable up to this long before its end."""

LEVEL = 3
"""zlib's level: level 6 takes twice the time of level 3 for a seventh less (measured with a hundred pods)."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def header(realtime_offset_ns: int) -> bytes:
    """The first line of a capture."""
    head = {"format": FORMAT, "version": VERSION, "clock": "CLOCK_MONOTONIC ns"}
    return encoded({**head, "realtime_offset_ns": realtime_offset_ns}) + b"\n"


def line(record: Record) -> bytes:
    """A record's line."""
    return encoded(fields(record)) + b"\n"


def fields(record: Record) -> dict[str, Any]:
    """The keys of a record's line and their values."""
    return _WRITERS[type(record)](record)


def encoded(line: dict[str, Any]) -> bytes:
    """A line without its end, in ASCII."""
    return _encode(line).encode()


class CaptureWriter:
    """Writes records to a new capture, readable by its owner only; `records` and `bytes` count what was written.

    Call `tick` when no record comes, so that what was written reaches the disk. Raises `CaptureError` when the file
    exists (unless `overwrite`), cannot be created, or the disk is full.
    """

    def __init__(self, path: str | Path, realtime_offset_ns: int, *, overwrite: bool = False) -> None:
        self.path = str(path)
        self.records = 0
        self.bytes = 0
        self._file = self._create(overwrite=overwrite)
        self._zip = zlib.compressobj(LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
        self._flushed = time.monotonic()
        self._pending = False
        self._line(header(realtime_offset_ns))
        self.flush()

    def _create(self, *, overwrite: bool) -> IO[bytes]:
        path = Path(self.path)
        try:
            if overwrite and not path.is_dir():
                # A new file, so that neither the old one's mode nor whoever has it open matters.
                path.unlink(missing_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError as error:
            reason = "is a directory" if path.is_dir() else "exists already: choose another name or remove it"
            raise CaptureError(self.path, reason) from error
        except OSError as error:
            raise CaptureError(self.path, f"cannot be created: {error.strerror}") from error
        return os.fdopen(file, "wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, record: Record) -> None:
        self._line(line(record))
        self.records += 1
        self.tick()

    def tick(self) -> None:
        """Flush when the last flush is long enough ago."""
        if self._pending and time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Make everything written so far readable, whatever happens next."""
        self._put(self._zip.flush(zlib.Z_SYNC_FLUSH))
        self._flushed = time.monotonic()
        self._pending = False

    def close(self) -> None:
        """Finish the file; further calls do nothing."""
        if not self._file.closed:
            self._put(self._zip.flush())
            self._file.close()

    def _line(self, text: bytes) -> None:
        self._put(self._zip.compress(text))
        self._pending = True

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                written = self._file.write(rest)
                self.bytes += written
                rest = rest[written:]
        except OSError as error:
            self._file.close()
            reason = f"cannot be written: {error.strerror}; it holds about {self.records} records"
            raise CaptureError(self.path, reason) from error


def _write_data(record: Data) -> dict[str, Any]:
    line = {
        "t": record.time, "ev": record.direction, "side": record.side, "conn": record.connection, "path": record.path,
        "pid": record.pid, "tid": record.tid, "comm": record.comm, "fd": record.fd, "offset": record.offset,
        "len": record.length, "data": binascii.b2a_base64(record.data, newline=False).decode("ascii"),
    }  # fmt: skip
    if record.syscall is not None:
        line["syscall"] = record.syscall
    return line


def _write_opened(record: Opened) -> dict[str, Any]:
    return {
        "t": record.time, "ev": "opened", "side": record.side, "conn": record.connection, "path": record.path,
        "pid": record.pid, "comm": record.comm,
    }  # fmt: skip


def _write_closed(record: Closed) -> dict[str, Any]:
    return {
        "t": record.time, "ev": "closed", "side": record.side, "conn": record.connection, "pid": record.pid,
        "error": record.error,
    }  # fmt: skip


def _write_exec(record: Exec) -> dict[str, Any]:
    line = {
        "t": record.time, "ev": "exec", "pid": record.pid, "ppid": record.ppid, "comm": record.comm,
        "argv": record.argv, "env": record.env,
    }  # fmt: skip
    if record.forked is not None:
        line["forked"] = record.forked
    return line


def _write_exit(record: Exit) -> dict[str, Any]:
    return {
        "t": record.time, "ev": "exit", "pid": record.pid, "ppid": record.ppid, "comm": record.comm,
        "code": record.code,
    }  # fmt: skip


def _write_oom(record: OomKill) -> dict[str, Any]:
    return {
        "t": record.time, "ev": "oom", "pid": record.pid, "comm": record.comm, "uid": record.uid,
        "cgroup": record.cgroup, "anon": record.anon_bytes, "file": record.file_bytes, "shmem": record.shmem_bytes,
    }  # fmt: skip


def _write_lost(record: Lost) -> dict[str, Any]:
    return {"t": record.time, "ev": "lost", "program": record.program, "count": record.count}


_WRITERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Data: _write_data,
    Opened: _write_opened,
    Closed: _write_closed,
    Exec: _write_exec,
    Exit: _write_exit,
    OomKill: _write_oom,
    Lost: _write_lost,
}


class CaptureFile:
    """Reads a capture; satisfies `records.Source`. `progress` is the share of the file that was read, 0 to 1.

    Raises `CaptureError` when the file cannot be read or is no capture of a version known here.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            self._file: IO[bytes] = Path(path).open("rb")  # noqa: SIM115  (closed by close)
        except OSError as error:
            raise CaptureError(self.path, f"cannot be read: {error.strerror}") from error
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._lines: IO[bytes] = self._unzipped()
            self.realtime_offset_ns = self._header()
        except BaseException:
            self._file.close()
            raise
        self._offsets: dict[tuple[str, str, str], int] = {}
        self._generations: dict[str, str] = {}
        self._pieces = Pieces()

    def _unzipped(self) -> IO[bytes]:
        try:
            zipped = self._file.read(2) == b"\x1f\x8b"
            self._file.seek(0)
        except OSError as error:
            raise CaptureError(self.path, f"cannot be read: {error.strerror}") from error
        return gzip.GzipFile(fileobj=self._file) if zipped else self._file  # type: ignore[return-value]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _header(self) -> int:
        foreign = "not a criscope capture: its first line is no header (see docs/capture-format.md)"
        try:
            head = json.loads(self._lines.readline(MAX_HEADER))
        except (ValueError, RecursionError, EOFError, OSError, zlib.error) as error:
            raise CaptureError(self.path, foreign if self._size else "is empty") from error
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise CaptureError(self.path, foreign)
        return self._header_says(head)

    def _header_says(self, head: dict[str, Any]) -> int:
        if head.get("version") != VERSION:
            raise CaptureError(
                self.path, f"is of version {head.get('version')!r:.20}, this criscope reads version {VERSION}"
            )
        try:
            return _integer(head, "realtime_offset_ns")
        except (KeyError, ValueError) as error:
            raise CaptureError(self.path, "its header lacks realtime_offset_ns") from error

    @property
    def progress(self) -> float:
        return min(1.0, self._file.tell() / self._size) if self._size else 1.0

    def records(self) -> Iterator[Record]:
        """Every record; raises `CaptureError` at the first line that is damaged, after all before it were given."""
        number, given = 1, 0
        while True:
            number += 1
            line = b""
            try:
                line = self._lines.readline(MAX_LINE)
                if not line:
                    return
                record = self._record(from_json(line, allow_inf_nan=False))
            except EOFError:
                raise CaptureError(self.path, f"is cut off; the {given} records before the cut were read") from None
            except KeyError as error:
                raise self._damaged(number, given, f"lacks {error}") from None
            except (ValueError, RecursionError, OSError, zlib.error) as error:
                if line and not line.endswith(b"\n") and len(line) < MAX_LINE:
                    raise CaptureError(self.path, f"is cut off; the {given} records before the cut were read") from None
                reason = str(error) if isinstance(error, _WrongTypeError) else "is damaged"
                raise self._damaged(number, given, reason) from error
            if record is not None:
                given += 1
                yield record

    def _damaged(self, number: int, given: int, reason: str) -> CaptureError:
        return CaptureError(self.path, f"line {number} {reason}; the {given} records before it were read")

    def close(self) -> None:
        self._file.close()

    def _record(self, line: Any) -> Record | None:
        if not isinstance(line, dict):
            raise _WrongTypeError("is no object")
        if line.get("format") == FORMAT:
            # Captures one behind the other are a capture, by the first one's wall clock.
            self._header_says(line)
            self._pieces = Pieces()
            return None
        make = _READERS.get(_text(line, "ev"))
        return make(self, line) if make else None

    def _data(self, line: dict[str, Any]) -> Data:
        values = _DATA_FIELDS(line)
        if tuple(map(type, values)) != _DATA_TYPES or not _in_range(values):
            _complain(line)
        time, conn, path, pid, tid, comm, fd, length = values
        side, direction = _side(line), line["ev"]
        data = self._pieces.joined(line["data"]) if type(line["data"]) is list else _bytes(line, "data")
        if len(data) > length:
            raise _WrongTypeError("has more data than its len")
        if line.get("offset") is None:
            # A capture without offsets lost nothing: count. Its `conn` may be used again, which a new preface shows.
            if direction == "send" and side == "client" and data.startswith(b"PRI * HTTP/2.0") and self._seen(conn):
                self._generations[conn] = f"{conn}.{time}"
            conn = self._generations.get(conn, conn)
            key = (conn, side, direction)
            offset = self._offsets.get(key, 0)
            self._offsets[key] = offset + length
        else:
            offset = _count(line, "offset")
        syscall = None if line.get("syscall") is None else _integer(line, "syscall")
        return Data(time, conn, side, direction, path, pid, tid, comm, fd, offset, length, data, syscall)

    def _piece(self, line: dict[str, Any]) -> None:
        self._pieces.learn(_count(line, "n"), _bytes(line, "data"))

    def _seen(self, conn: str) -> bool:
        return (self._generations.get(conn, conn), "client", "send") in self._offsets

    def _opened(self, line: dict[str, Any]) -> Opened:
        return Opened(
            _integer(line, "t"), _text(line, "conn"), _side(line), _text(line, "path"), _integer(line, "pid"),
            _text(line, "comm"),
        )  # fmt: skip

    def _closed(self, line: dict[str, Any]) -> Closed:
        return Closed(
            _integer(line, "t"), _text(line, "conn"), _side(line), _integer(line, "pid"), _integer(line, "error")
        )

    def _exec(self, line: dict[str, Any]) -> Exec:
        argv, env = line["argv"], line.get("env", {})
        if type(argv) is not list or type(env) is not dict:
            raise _WrongTypeError("has a wrong argv or env")
        return Exec(
            _integer(line, "t"), _integer(line, "pid"), _integer(line, "ppid"), _text(line, "comm"),
            [_string(value, "argv") for value in argv],
            {_string(name, "env"): _string(value, "env") for name, value in env.items()},
            _known(line, "forked", _integer),
        )  # fmt: skip

    def _exit(self, line: dict[str, Any]) -> Exit:
        return Exit(
            _integer(line, "t"), _integer(line, "pid"), _integer(line, "ppid"), _text(line, "comm"),
            _integer(line, "code"),
        )  # fmt: skip

    def _oom(self, line: dict[str, Any]) -> OomKill:
        anon, file, shmem = (_known(line, key, _count) for key in ("anon", "file", "shmem"))
        return OomKill(
            _integer(line, "t"), _integer(line, "pid"), _text(line, "comm"), _known(line, "uid", _count),
            _known(line, "cgroup", _text), anon, file, shmem,
        )  # fmt: skip

    def _lost(self, line: dict[str, Any]) -> Lost:
        return Lost(_integer(line, "t"), _text(line, "program"), _count(line, "count"))


_READERS: dict[str, Callable[[CaptureFile, dict[str, Any]], Record | None]] = {
    "send": CaptureFile._data,  # noqa: SLF001  (a table of this class's own methods)
    "recv": CaptureFile._data,  # noqa: SLF001
    "opened": CaptureFile._opened,  # noqa: SLF001
    "closed": CaptureFile._closed,  # noqa: SLF001
    "exec": CaptureFile._exec,  # noqa: SLF001
    "exit": CaptureFile._exit,  # noqa: SLF001
    "oom": CaptureFile._oom,  # noqa: SLF001
    "lost": CaptureFile._lost,  # noqa: SLF001
    "piece": CaptureFile._piece,  # noqa: SLF001
}


class _WrongTypeError(ValueError):
    """A value of a line is not what its key says; the text goes on from "line 7 "."""


# Nearly every line is a send or a receive: its fields are looked at together, and one by one only to say what is wrong.
_DATA_FIELDS = itemgetter("t", "conn", "path", "pid", "tid", "comm", "fd", "len")
_DATA_TYPES = (int, str, str, int, int, str, int, int)


def _in_range(values: tuple[Any, ...]) -> bool:
    time, _, _, pid, tid, _, fd, length = values
    least, most = min(time, pid, tid, fd), max(time, pid, tid, fd, length)
    return bool(least >= -MAX_NUMBER and most < MAX_NUMBER and length >= 0)


def _complain(line: dict[str, Any]) -> None:
    """Raise what is wrong with the line of a send or a receive."""
    for key in ("conn", "path", "comm"):
        _text(line, key)
    for key in ("t", "pid", "tid", "fd"):
        _integer(line, key)
    _count(line, "len")


def _integer(line: dict[str, Any], key: str) -> int:
    value = line[key]
    if type(value) is not int or not -MAX_NUMBER <= value < MAX_NUMBER:
        raise _WrongTypeError(f"has no 64-bit integer as its {key}")
    return value


def _count(line: dict[str, Any], key: str) -> int:
    value = _integer(line, key)
    if value < 0:
        raise _WrongTypeError(f"has a negative {key}")
    return value


def _text(line: dict[str, Any], key: str) -> str:
    return _string(line[key], key)


def _known(line: dict[str, Any], key: str, take: Callable[[dict[str, Any], str], T]) -> T | None:
    """None when the source did not know it: null, or no such key."""
    return None if line.get(key) is None else take(line, key)


def _string(value: Any, key: str) -> str:
    if type(value) is not str:
        raise _WrongTypeError(f"has no text as its {key}")
    return value


def _side(line: dict[str, Any]) -> Any:
    side = line["side"]
    if side not in ("client", "server"):
        raise _WrongTypeError("has neither client nor server as its side")
    return side


def _bytes(line: dict[str, Any], key: str) -> bytes:
    value = line[key]
    if type(value) is not str:
        raise _WrongTypeError(f"has no text as its {key}")
    return binascii.a2b_base64(value, strict_mode=True)
