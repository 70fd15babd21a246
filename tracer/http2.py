"""HTTP/2 frames of one direction of a connection (RFC 9113, section 4), also when joining late and after gaps."""

import re
import struct
from dataclasses import dataclass

from tracer.streams import FRAME_HEADER, PREFACE, Chunk, Gap

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FLAG = 0x1, 0x1, 0x4, 0x8, 0x20

MAX_FRAME_KEPT = 16 * 1024 * 1024 + 1024
"""Bytes of one frame's payload kept: the CRI's message limit (16 MiB) and some room."""

MAX_LENGTH_UNSYNCED = 1 << 22
"""A longer frame is not believed while looking for a frame's start; grpc's C core asks for frames up to 4 MiB."""

SCAN_GIVEN_UP = 64 * 1024 * 1024
"""Bytes without a frame's start after which a direction is not HTTP/2 (CRI-O speaks HTTP/1.1 on the same socket);
well above one 16 MiB message, in which a late start can fall."""

_FLAGS = {
    DATA: END_STREAM | PADDED,
    HEADERS: END_STREAM | END_HEADERS | PADDED | PRIORITY_FLAG,
    PRIORITY: 0,
    RST_STREAM: 0,
    SETTINGS: ACK,
    PING: ACK,
    GOAWAY: 0,
    WINDOW_UPDATE: 0,
    CONTINUATION: END_HEADERS,
}
# What gRPC peers send: 24-bit length, a type but PUSH_PROMISE, known flags, 31-bit stream id. PUSH_PROMISE never
# occurs (gRPC clients disable push).
_CANDIDATE = re.compile(
    rb"[\x00-\x40]..[\x00-\x04\x06-\x09][\x00\x01\x04\x05\x08\x09\x0c\x0d\x20-\x2d][\x00-\x7f]...", re.DOTALL
)
_HEADER = struct.Struct(">HBBBI").unpack_from
_CONTROL = frozenset({PRIORITY, SETTINGS, PUSH_PROMISE, PING, WINDOW_UPDATE})
"""Frames that say nothing about calls; grpc-go sends three of them for each call (`bdp_estimator.go`)."""

_FIXED = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}


@dataclass(slots=True)
class Frame:
    """One frame. `begin`: time its first byte was sent; `end`: its last. `until`: offset of the byte after it.

    `missing` bytes of a DATA payload are not in `payload` (a gap fell into them); other frames are always whole.
    """

    type: int
    flags: int
    stream: int
    payload: bytes
    begin: int
    end: int
    until: int
    missing: int = 0


@dataclass(slots=True)
class Desync:
    """Frames may be missing before the next one: header tables and open streams are no longer certain."""

    time: int


@dataclass(slots=True)
class FrameStats:
    """`resyncs`: frame starts found again; `skipped`: bytes passed over meanwhile."""

    frames: int = 0
    desyncs: int = 0
    resyncs: int = 0
    skipped: int = 0


def plausible(buffer: bytes | bytearray, at: int) -> bool:
    """Whether the nine bytes at `at` can be a frame header that a gRPC peer sends."""
    length = int.from_bytes(buffer[at : at + 3], "big")
    kind, flags = buffer[at + 3], buffer[at + 4]
    stream = int.from_bytes(buffer[at + 5 : at + 9], "big")
    allowed = _FLAGS.get(kind)
    if allowed is None or flags & ~allowed or stream >> 31 or length > MAX_LENGTH_UNSYNCED:
        return False
    if kind in _FIXED and length != _FIXED[kind]:
        return False
    if kind == SETTINGS:
        return stream == 0 and length % 6 == 0 and (not flags & ACK or length == 0)
    if kind in (PING, GOAWAY):
        return stream == 0 and (kind == PING or length >= 8)
    if kind == WINDOW_UPDATE:
        return stream == 0 or bool(stream & 1)
    return bool(stream & 1) and (kind != HEADERS or length > 0)


class Frames:
    """Feed chunks and gaps of one direction, get frames and `Desync`."""

    __slots__ = (
        "_buffer",
        "_head",
        "_missing",
        "_need",
        "_parts",
        "_scanned",
        "_time",
        "begun",
        "dead",
        "stats",
        "synced",
    )

    def __init__(self, stats: FrameStats) -> None:
        self.stats = stats
        self.begun = False  # seen from the connection's first byte
        self.dead = False  # not HTTP/2
        self.synced = False
        self._buffer = bytearray()  # bytes not yet cut into frames
        self._time = 0  # when the first byte of _buffer (or of the frame being collected) was sent
        self._head: tuple[int, int, int, int] | None = None  # length, type, flags, stream of the frame being collected
        self._parts: list[bytes] = []
        self._need = 0
        self._missing = 0
        self._scanned = 0

    def feed(self, item: Chunk | Gap) -> list[Frame | Desync]:
        if self.dead:
            return []
        if isinstance(item, Gap):
            return self._gap(item)
        out: list[Frame | Desync] = []
        data = item.data
        if not self.synced:
            data = self._sync(item)
            if not data:
                return out
        self._cut(data, item, out)
        return out

    def _sync(self, item: Chunk) -> bytes:
        """The part of the chunk from the first certain frame start on; b"" while there is none."""
        data = item.data
        if item.offset == 0:
            if data.startswith(PREFACE[: len(data)]):
                self.begun = self.synced = True
                return data
            if data[3:9] == b"\x04\x00\x00\x00\x00\x00" and plausible(data, 0):
                # A server's first frame is SETTINGS (RFC 9113, section 3.4).
                self.begun = self.synced = True
                return data
        at = self._search(data)
        if at < 0:
            self._scanned += len(data)
            self.stats.skipped += len(data)
            if self._scanned > SCAN_GIVEN_UP:
                self.dead = True
            return b""
        self.synced = True
        self._scanned = 0
        self.stats.resyncs += 1
        self.stats.skipped += at
        return data[at:]

    @staticmethod
    def _search(data: bytes) -> int:
        """Offset of a frame start: a chain of plausible headers that ends with the chunk.

        At a chunk's first byte (peers write whole frames) one header will do when the frame ends with the chunk or
        goes beyond it; elsewhere the chain must hold two.
        """
        for found in _CANDIDATE.finditer(data):
            start = at = found.start()
            links = 0
            while at + FRAME_HEADER <= len(data) and plausible(data, at):
                links += 1
                at += FRAME_HEADER + int.from_bytes(data[at : at + 3], "big")
            ended = at == len(data) or (at > len(data) and links > 1)
            if links and (ended or (start == 0 and at > len(data))) and (start == 0 or links > 1):
                return start
            if start > 0 and links > 2 and at + FRAME_HEADER > len(data):
                return start
        return -1

    def _gap(self, gap: Gap) -> list[Frame | Desync]:
        if self.synced and self._head is not None and self._head[1] == DATA and gap.length <= self._need:
            # Wholly inside a DATA payload: only that message is hurt.
            self._need -= gap.length
            self._missing += gap.length
            if self._need:
                return []
            return [self._finish(gap.time, gap.offset + gap.length)]
        was = self.synced
        self.synced = False
        self._buffer.clear()
        self._head = None
        self._parts = []
        self._scanned = 0
        if not was:
            return []
        self.stats.desyncs += 1
        return [Desync(gap.time)]

    def _finish(self, time: int, until: int) -> Frame:
        assert self._head is not None
        _, kind, flags, stream = self._head
        payload = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        frame = Frame(kind, flags, stream, payload, self._time, time, until, self._missing)
        self._head = None
        self._parts = []
        self._missing = 0
        self.stats.frames += 1
        return frame

    def _cut(self, data: bytes, item: Chunk, out: list[Frame | Desync]) -> None:
        time = item.time
        end = item.offset + len(item.data)
        at = 0
        size = len(data)
        if self._head is not None:
            take = min(self._need, size)
            self._keep(data[:take])
            self._need -= take
            if self._need:
                return
            at = take
            out.append(self._finish(time, end - size + at))
        if self._buffer:
            data = bytes(self._buffer) + data[at:]
            self._buffer.clear()
            at, size = 0, len(data)
        else:
            self._time = time
        if data.startswith(PREFACE[:3], at):
            if size - at < len(PREFACE):
                self._buffer += data[at:]
                return
            if data.startswith(PREFACE, at):
                at += len(PREFACE)
        frames = 0
        while size - at >= FRAME_HEADER:
            high, low, kind, flags, stream = _HEADER(data, at)
            length = high << 8 | low
            stream &= 0x7FFFFFFF
            body = at + FRAME_HEADER
            if size - body < length:
                self._head = (length, kind, flags, stream)
                self._need = length - (size - body)
                self._keep(data[body:])
                self.stats.frames += frames
                return
            at = body + length
            frames += 1
            if kind not in _CONTROL:
                out.append(Frame(kind, flags, stream, data[body:at], self._time, time, end - size + at))
            self._time = time
        self.stats.frames += frames
        if at < size:
            self._buffer += data[at:]

    def _keep(self, data: bytes) -> None:
        if sum(map(len, self._parts)) + len(data) <= MAX_FRAME_KEPT:
            self._parts.append(data)
        else:
            self._missing += len(data)
