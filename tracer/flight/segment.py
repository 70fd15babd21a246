"""A segment: some seconds of records as a capture file of its own, readable whenever its writer ends."""

import binascii
import os
import struct
import zlib
from typing import Any

from tracer import capture
from tracer.flight.shared import LEAST_BYTES, Shared
from tracer.records import Data, Record

LEVEL = 1
"""zlib's level: level 3 takes no less room here, as nearly everything that repeats is named by number."""

MAX_HEADS = 4096
"""Beginnings of lines remembered: one for each thread and connection; a node has some dozens."""

FINISHED = 0o400
"""The mode of a file that is complete; until then it is for writing too. All links of a file have the same."""

FULL_FLUSH = b"\x00\x00\xff\xff"
"""What a flushed deflate stream ends with (zlib's manual, Z_SYNC_FLUSH)."""

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # RFC 1952: deflate, no name, no time, any system
_LAST_BLOCK = b"\x03\x00"  # of a deflate stream: final, fixed codes, empty (RFC 1951, section 3.2.3)


class Segment:
    """Writes records to the file `fd`, which it owns; `bytes` is its size.

    Whatever `flush` has written stays readable; a flush that fails leaves no trace in the file.
    """

    def __init__(self, fd: int, realtime_offset_ns: int) -> None:
        self.bytes = 0
        self.waiting = 0
        self._fd = fd
        self._zip = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._shared = Shared()
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._lines = [capture.header(realtime_offset_ns)]
        self._crc = 0
        self._plain = 0

    def write(self, record: Record) -> None:
        """Keep a record for the next flush; `waiting` are the bytes kept."""
        line = self._data(record) if isinstance(record, Data) else capture.line(record)
        self._lines.append(line)
        self.waiting += len(line)

    def _data(self, record: Data) -> bytes:
        parts: Any = None
        if len(record.data) >= LEAST_BYTES:
            parts, new = self._shared.parts(record.data)
            for number, piece in new:
                line = b'{"ev":"piece","n":%d,"data":"%s"}\n' % (number, binascii.b2a_base64(piece, newline=False))
                self._lines.append(line)
                self.waiting += len(line)
            if len(parts) > 1 or new:
                return self._line(record, b"[%s]" % b",".join(map(_part, parts)))
        return self._line(record, b'"%s"' % binascii.b2a_base64(record.data, newline=False))

    def _line(self, record: Data, data: bytes) -> bytes:
        key = (
            record.connection, record.side, record.direction, record.path, record.pid, record.tid, record.comm,
            record.fd, record.syscall,
        )  # fmt: skip
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            head = self._heads[key] = _head(record)
        return b'%s"t":%d,"offset":%d,"len":%d,"data":%s}\n' % (head, record.time, record.offset, record.length, data)

    def flush(self) -> None:
        """Write what was kept. Raises OSError; then the records since the last flush are in no file: `close` it."""
        lines, self._lines, self.waiting = self._lines, [], 0
        plain = b"".join(lines)
        packed = self._zip.compress(plain) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        self._put(packed if self.bytes else _GZIP_HEADER + packed)
        self._crc = zlib.crc32(plain, self._crc)
        self._plain += len(plain)

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self.bytes)
            os.lseek(self._fd, self.bytes, os.SEEK_SET)
            raise
        self.bytes += len(data)

    def close(self) -> None:
        """Complete the file and close it. Raises OSError; then it is closed, and readable but for its end."""
        try:
            if self.bytes:
                self._put(ending(self._crc, self._plain))
                os.fchmod(self._fd, FINISHED)
        finally:
            os.close(self._fd)


def _part(part: bytes | int) -> bytes:
    return b"%d" % part if isinstance(part, int) else b'"%s"' % binascii.b2a_base64(part, newline=False)


def _head(record: Data) -> bytes:
    """The line up to what differs from one record of a thread to its next."""
    blank = Data(
        0, record.connection, record.side, record.direction, record.path, record.pid, record.tid, record.comm,
        record.fd, 0, 0, b"", record.syscall,
    )  # fmt: skip
    fields = capture.fields(blank)
    for each in ("t", "offset", "len", "data"):
        del fields[each]
    return capture.encoded(fields)[:-1] + b","


def ending(crc: int, plain: int) -> bytes:
    """What completes a flushed gzip file of `plain` bytes (RFC 1952, section 2.3.1)."""
    return _LAST_BLOCK + struct.pack("<II", crc, plain & 0xFFFFFFFF)


def completed(data: bytes) -> bytes:
    """A file whose writer did not finish, up to its last flush, completed; b"" when nothing of it can be read."""
    until = data.rfind(FULL_FLUSH) + len(FULL_FLUSH)
    if until < len(FULL_FLUSH):
        return b""
    engine = zlib.decompressobj(zlib.MAX_WBITS | 16)
    crc = plain = 0
    rest = data[:until]
    try:
        while rest:
            text = engine.decompress(rest, 1 << 20)
            crc, plain = zlib.crc32(text, crc), plain + len(text)
            if engine.eof:
                return data[: len(data) - len(engine.unused_data)]
            rest = engine.unconsumed_tail
    except zlib.error:
        return b""
    return data[:until] + ending(crc, plain)
