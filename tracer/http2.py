"""HTTP/2 frames of one direction of a connection (RFC 9113, section 4), also when joining late and after gaps."""

from dataclasses import dataclass

from tracer.heads import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    GOAWAY,
    HEAD,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PRIORITY_FLAG,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    believable,
    plausible,
)
from tracer.kept import Kept
from tracer.resync import Search
from tracer.streams import Chunk, Gap

__all__ = [
    "ACK", "CONTINUATION", "DATA", "END_HEADERS", "END_STREAM", "GOAWAY", "HEADERS", "PADDED", "PING", "PRIORITY",
    "PRIORITY_FLAG", "PUSH_PROMISE", "RST_STREAM", "SETTINGS", "WINDOW_UPDATE", "Desync", "Frame", "FrameStats",
    "Frames", "plausible",
]  # fmt: skip

MAX_CONTROL = 256 * 1024
"""Bytes kept of a frame that is not DATA: header blocks, of which gRPC peers refuse to read more by default (16 MiB
is grpc-go's own limit, and no runtime's error text comes near it)."""

SCAN_GIVEN_UP = 64 * 1024 * 1024
"""Bytes without a frame's start after which a direction is not HTTP/2 (CRI-O speaks HTTP/1.1 on the same socket);
well above one 16 MiB message, in which a late start can fall."""

_SILENT = frozenset({PRIORITY, SETTINGS, PUSH_PROMISE, PING, WINDOW_UPDATE})
"""Frames that say nothing about calls; grpc-go sends three of them for each call (`bdp_estimator.go`)."""


@dataclass(slots=True)
class Frame:
    """One frame. `begin`: time its first byte was sent; `end`: its last. `until`: offset of the byte after it.

    `missing` bytes of the payload are not in `payload`: a gap fell into them (only DATA frames outlive that), or they
    were too many to keep. `filled`: the sender's record of some of it was lost, so `begin` and `end` may be too late.
    """

    type: int
    flags: int
    stream: int
    payload: bytes
    begin: int
    end: int
    until: int
    missing: int = 0
    filled: bool = False


@dataclass(slots=True)
class Desync:
    """Frames may be missing before the next one: header tables and open streams are no longer certain.

    Told once for all that is missing until the next frame; `Frames.blind` meanwhile.
    """

    time: int


@dataclass(slots=True)
class FrameStats:
    """Counters.

    `desyncs`: times frames' starts were lost; `resyncs`: a start was found late or again; `skipped`: bytes that came
    before it was certain where frames start.
    """

    desyncs: int = 0
    resyncs: int = 0
    skipped: int = 0


class Frames:
    """Feed chunks and gaps of one direction, get frames and `Desync`; `close` gives up what was kept."""

    __slots__ = (
        "_begin",
        "_filled",
        "_head",
        "_kept",
        "_left",
        "_missing",
        "_partial",
        "_parts",
        "_parts_size",
        "_scanned",
        "_search",
        "begun",
        "blind",
        "certain",
        "dead",
        "stats",
    )

    def __init__(self, stats: FrameStats, kept: Kept | None = None) -> None:
        self.stats = stats
        self.begun = False  # seen from the connection's first byte
        self.certain = False  # and without a gap since: every head is one
        self.blind = False  # frames may be passing unseen
        self.dead = False  # not HTTP/2
        self._kept = kept if kept is not None else Kept()
        self._search: Search | None = Search()  # while it is not certain where frames start
        self._scanned = 0
        self._begin = 0  # when the first byte of _partial, or of the frame being collected, was sent
        self._filled = False  # whether some of its bytes come from the reader's record
        self._partial = b""  # of a head
        self._head: tuple[int, int, int] | None = None  # type, flags, stream of the frame being collected
        self._parts: list[bytes] = []
        self._parts_size = 0
        self._left = 0  # bytes still to come
        self._missing = 0

    @property
    def synced(self) -> bool:
        """It is known where frames start."""
        return self._search is None

    def feed(self, item: Chunk | Gap) -> list[Frame | Desync]:
        out: list[Frame | Desync] = []
        if not isinstance(item, Chunk):
            self._gap(item, out)
        elif self._search is None:
            self._cut(item, out)
        elif not self.dead:
            self._look(self._search, item, out)
        return out

    def close(self) -> None:
        """No more is fed."""
        self._drop()

    def _look(self, search: Search, chunk: Chunk, out: list[Frame | Desync]) -> None:
        chunks = search.feed(chunk)
        if search.dropped and not self.blind:
            self._miss(chunk.time, out)
        if chunks is None:
            self._scanned += len(chunk.data)
            self.stats.skipped += len(chunk.data)
            self.dead = self._scanned > SCAN_GIVEN_UP
            return
        self.begun = self.certain = search.begun
        if not search.begun:
            self.stats.resyncs += 1
        self.stats.skipped += min(search.here, len(chunk.data))
        self._search = None
        self._scanned = 0
        self.blind = False
        for each in chunks:
            if self.synced:  # no start turned out to be none
                self._cut(each, out)

    def _gap(self, gap: Gap, out: list[Frame | Desync]) -> None:
        if self._head is not None and self._head[0] == DATA and gap.length <= self._left:
            # Wholly inside a DATA payload: only that message is hurt.
            self._left -= gap.length
            self._missing += gap.length
            self._filled = True
            if not self._left:
                self._finish(gap.time, gap.offset + gap.length, out)
            return
        self._scanned = 0
        self._lose(gap.time, out)

    def _lose(self, time: int, out: list[Frame | Desync]) -> None:
        if self._search is None:
            self.stats.desyncs += 1
        self._drop()
        self._search = Search()
        self.certain = False
        if not self.blind:
            self._miss(time, out)

    def _miss(self, time: int, out: list[Frame | Desync]) -> None:
        self.blind = True
        out.append(Desync(time))

    def _drop(self) -> None:
        self._kept.give(self._parts_size)
        self._partial = b""
        self._head = None
        self._parts = []
        self._parts_size = self._left = self._missing = 0

    def _cut(self, chunk: Chunk, out: list[Frame | Desync]) -> None:
        data, time = chunk.data, chunk.time
        filled = now_filled = chunk.filled
        size = len(data)
        base = chunk.offset  # of data[0]
        at = 0
        begin = time
        if self._head is not None:
            at = min(self._left, size)
            self._keep(data[:at])
            self._left -= at
            self._filled |= filled
            if self._left:
                return
            self._finish(time, base + at, out)
        elif self._partial:
            base -= len(self._partial)
            data = self._partial + data
            size = len(data)
            self._partial = b""
            begin = self._begin
            filled |= self._filled
        certain = self.certain
        last = size - FRAME_HEADER
        while at <= last:
            word, flags, stream = HEAD(data, at)
            kind = word & 0xFF
            body = at + FRAME_HEADER
            end = body + (word >> 8)
            if not certain and not believable(word >> 8, kind, flags, stream):
                # What follows it here is not searched: work on a hostile peer's bytes stays linear.
                self._lose(time, out)
                return
            if end > size:
                self._head = (kind, flags, stream & 0x7FFFFFFF)
                self._left = end - size
                self._begin = begin
                self._filled = filled
                self._keep(data[body:])
                return
            if kind not in _SILENT:
                out.append(Frame(kind, flags, stream & 0x7FFFFFFF, data[body:end], begin, time, base + end, 0, filled))
            at = end
            begin, filled = time, now_filled
        if at < size:
            self._partial = data[at:]
            self._begin = begin
            self._filled = filled

    def _keep(self, data: bytes) -> None:
        assert self._head is not None
        fits = self._head[0] == DATA or self._parts_size + len(data) <= MAX_CONTROL
        if fits and self._kept.take(len(data)):
            self._parts.append(data)
            self._parts_size += len(data)
        else:
            self._missing += len(data)

    def _finish(self, time: int, until: int, out: list[Frame | Desync]) -> None:
        assert self._head is not None
        kind, flags, stream = self._head
        if kind not in _SILENT:
            payload = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            out.append(Frame(kind, flags, stream, payload, self._begin, time, until, self._missing, self._filled))
        self._drop()
