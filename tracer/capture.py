"""Capture files: records on disk, gzipped JSON Lines (docs/capture-format.md). A capture is a source like the kernel."""

import binascii
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tracer.errors import CaptureError
from tracer.records import Closed, Data, Exec, Exit, Lost, Opened, Record

FORMAT = "cri-capture-jsonl"
VERSION = 1

MAX_LINE = 64 * 1024 * 1024
"""Characters of one line: a 16 MiB send in base64, doubled; a longer line is not a record of ours."""


class CaptureFile:
    """Reads a capture; satisfies `records.Source`. `progress` is the share of the file that was read, 0 to 1."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            self._size = Path(path).stat().st_size
            self._file: IO[bytes] = Path(path).open("rb")
        except OSError as error:
            raise CaptureError(self.path, f"cannot be read: {error.strerror}") from error
        zipped = self._file.read(2) == b"\x1f\x8b"
        self._file.seek(0)
        self._lines: IO[bytes] = gzip.GzipFile(fileobj=self._file) if zipped else self._file
        self.realtime_offset_ns = self._header()
        self._offsets: dict[tuple[str, str, str], int] = {}
        self._generations: dict[str, str] = {}

    def _header(self) -> int:
        foreign = "not a criscope capture: its first line is no header (see docs/capture-format.md)"
        try:
            head = json.loads(self._lines.readline(MAX_LINE))
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise CaptureError(self.path, foreign) from error
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise CaptureError(self.path, foreign)
        if head.get("version") != VERSION:
            raise CaptureError(self.path, f"is of version {head.get('version')}, this criscope reads version {VERSION}")
        offset = head.get("realtime_offset_ns")
        if not isinstance(offset, int):
            raise CaptureError(self.path, "its header lacks realtime_offset_ns")
        return offset

    @property
    def progress(self) -> float:
        return min(1.0, self._file.tell() / self._size) if self._size else 1.0

    def records(self) -> Iterator[Record]:
        """Every record; raises `CaptureError` at the first line that is damaged, after all before it were given."""
        number = 1
        while True:
            number += 1
            try:
                line = self._lines.readline(MAX_LINE)
                if not line:
                    return
                record = self._record(json.loads(line))
            except EOFError:
                reason = f"is cut off after {number - 2} records; what came before was read"
                raise CaptureError(self.path, reason) from None
            except (ValueError, KeyError, TypeError, OSError, zlib.error) as error:
                reason = f"line {number} is damaged ({type(error).__name__}); the {number - 2} records before it were read"
                raise CaptureError(self.path, reason) from error
            if record is not None:
                yield record

    def close(self) -> None:
        self._file.close()

    def _record(self, line: dict[str, Any]) -> Record | None:
        make = _READERS.get(line["ev"])
        return make(self, line) if make else None

    def _data(self, line: dict[str, Any]) -> Data:
        conn, side, direction = line["conn"], line["side"], line["ev"]
        data = binascii.a2b_base64(line["data"])
        offset = line.get("offset")
        if offset is None:
            # A capture without offsets lost nothing: count. Its `conn` may be used again, which a new preface shows.
            if direction == "send" and side == "client" and data.startswith(b"PRI * HTTP/2.0") and self._seen(conn):
                self._generations[conn] = f"{conn}.{line['t']}"
            conn = self._generations.get(conn, conn)
            key = (conn, side, direction)
            offset = self._offsets.get(key, 0)
            self._offsets[key] = offset + line["len"]
        return Data(
            line["t"], conn, side, direction, line["path"], line["pid"], line["tid"], line["comm"], line["fd"],
            offset, line["len"], data, line.get("syscall"),
        )  # fmt: skip

    def _seen(self, conn: str) -> bool:
        return (self._generations.get(conn, conn), "client", "send") in self._offsets

    def _opened(self, line: dict[str, Any]) -> Opened:
        return Opened(line["t"], line["conn"], line["side"], line["path"], line["pid"], line["comm"])

    def _closed(self, line: dict[str, Any]) -> Closed:
        return Closed(line["t"], line["conn"], line["side"], line["pid"], line["error"])

    def _exec(self, line: dict[str, Any]) -> Exec:
        return Exec(line["t"], line["pid"], line["ppid"], line["comm"], line["argv"], line.get("env", {}))

    def _exit(self, line: dict[str, Any]) -> Exit:
        return Exit(line["t"], line["pid"], line["ppid"], line["comm"], line["code"])

    def _lost(self, line: dict[str, Any]) -> Lost:
        return Lost(line["t"], line["program"], line["count"])


_READERS: dict[str, Callable[[CaptureFile, dict[str, Any]], Record]] = {
    "send": CaptureFile._data,  # noqa: SLF001  (a table of this class's own methods)
    "recv": CaptureFile._data,  # noqa: SLF001
    "opened": CaptureFile._opened,  # noqa: SLF001
    "closed": CaptureFile._closed,  # noqa: SLF001
    "exec": CaptureFile._exec,  # noqa: SLF001
    "exit": CaptureFile._exit,  # noqa: SLF001
    "lost": CaptureFile._lost,  # noqa: SLF001
}
