"""Decides what may be seen of a gRPC connection: frames and header blocks are, messages are once their method is known.

Frames are cut here and not by `Frames`, because every byte needs its place, also of frames that say nothing about
calls. Where a late start or a gap ends is decided as there, by `Search`, so that both find the same frames again.
"""

from tracer.headers import Headers, HeaderStats, Received
from tracer.heads import (
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
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    believable,
)
from tracer.http2 import Frame
from tracer.metadata import request_head
from tracer.redact import http1
from tracer.redact.calls import Calls
from tracer.redact.content import Contents
from tracer.redact.cover import Cover
from tracer.redact.fields import covered
from tracer.resync import Search
from tracer.streams import Chunk, Gap, Way

MAX_FRAME = 256 * 1024
"""Bytes of a frame other than DATA that is looked into; `Frames` keeps no more of one either."""

MAX_UNCERTAIN = 60
"""Bytes of a SETTINGS frame believed after a start that is not certain: ten settings; six are defined."""

SPOILED = b"\x80"
"""What a header block is overwritten with: index 0 is an error (RFC 7541, section 6.1), so the reader of a capture
forgets its table, as it must, instead of taking letters for entries of it."""

_PLAIN = frozenset({PRIORITY, SETTINGS, PING, WINDOW_UPDATE})
_GOAWAY_FIXED = 8  # last stream and error code, then text (RFC 9113, section 6.8)

_NAMES = frozenset({
    b":method", b":scheme", b":path", b":authority", b":status", b"content-type", b"user-agent", b"te", b"accept",
    b"accept-encoding", b"content-length", b"date", b"server", b"grpc-accept-encoding", b"grpc-encoding",
    b"grpc-timeout", b"grpc-status", b"grpc-message", b"grpc-status-details-bin", b"grpc-previous-rpc-attempts",
    b"grpc-tags-bin", b"grpc-trace-bin", b"traceparent", b"tracestate", b"baggage", b"containerd-namespace",
})  # fmt: skip
"""Fields of gRPC peers: a block with others, after a start that is not certain, may be no block at all."""


class Grpc:
    """Both directions of a connection."""

    def __init__(self, contents: Contents, covers: dict[Way, Cover]) -> None:
        calls = Calls(contents)
        self.covers = covers
        self._halves = {way: _Half(way, covers, calls) for way in calls.waiting}

    def feed(self, item: Chunk | Gap) -> None:
        half = self._halves[item.way]
        if isinstance(item, Gap):
            half.gap(item)
        else:
            half.chunk(item)
        for each in self._halves.values():
            # A call that ends in one direction is over in the other too.
            each.settle()

    def give_up(self, way: Way) -> None:
        """Decide everything sent so far."""
        self._halves[way].give_up()


class _Half:
    """One direction: cuts its bytes into frames and shows what is no message."""

    def __init__(self, way: Way, covers: dict[Way, Cover], calls: Calls) -> None:
        self._way = way
        self._covers = covers
        self._calls = calls
        self._waiting = calls.waiting[way]
        self._search: Search | None = Search()  # while no frame's start is known
        self._opening = False  # the connection's first bytes, too few to know what they begin
        self._certain = False  # seen from the connection's first byte, without a gap
        self._headers: Headers | None = None
        self._parts: list[bytes] = []  # of a frame (of DATA: of its head) that is not whole
        self._parts_at = 0  # offset of the first
        self._have = 0  # bytes in them
        self._need = 0  # bytes with which something can be cut
        self._stream = 0  # the rest is of the DATA frame begun
        self._left = 0  # bytes still to come, padding included
        self._padding = 0
        self._pad_unread = False
        self._end_stream = False

    def _show(self, offset: int, data: bytes) -> None:
        self._covers[self._way].show(offset, data)

    def settle(self) -> None:
        """Everything before the first byte that waits for others is final."""
        cover = self._covers[self._way]
        final = cover.end
        if self._opening:
            final = 0
        elif self._parts:
            final = self._parts_at
        for messages in self._waiting.values():
            if messages.first is not None and messages.first < final:
                final = messages.first
        cover.decided = max(cover.decided, final)

    def give_up(self) -> None:
        cover = self._covers[self._way]
        for messages in self._waiting.values():
            messages.give_up(cover)
        self._waiting.clear()
        raw = b"".join(self._parts)
        if len(raw) >= FRAME_HEADER:
            # Of a header block not even the fields are known yet.
            shown = self._certain and raw[3] not in (HEADERS, CONTINUATION)
            raw = raw if shown else raw[:FRAME_HEADER] + SPOILED * (len(raw) - FRAME_HEADER)
            self._show(self._parts_at, raw)
        elif self._certain:
            self._show(self._parts_at, raw)
        cover.decided = cover.end

    def gap(self, gap: Gap) -> None:
        if not self._left or self._pad_unread or gap.length > self._left:
            self._lost()
            return
        # Wholly inside a DATA payload: only that message is hurt (as in `Frames`).
        self._calls.gap(self._stream, self._way, gap.length, self._covers[self._way])
        self._left -= gap.length
        if not self._left:
            self._data_ended()

    def _lost(self) -> None:
        """Frames may be missing: what waits stays overwritten, until the next frame's start is found."""
        self._certain = self._opening = False
        self._search = Search()
        self._parts = []
        self._have = self._need = self._left = 0
        if self._headers is not None:
            self._headers.forget()
        self._calls.lose_all(self._way)

    def chunk(self, chunk: Chunk) -> None:
        if self._search is None:
            self._take(chunk)
            return
        found = self._search.feed(chunk)
        if found is None:
            self._opening = self._begins(chunk)
            seen = None if self._opening else http1.clean(chunk.data)
            if seen is not None:
                self._show(chunk.offset, seen)
            return
        self._certain, self._opening = self._search.begun, False
        self._search = None
        if self._headers is None:
            self._headers = Headers(HeaderStats(), whole=self._certain)
        if self._certain and self._way == "request":
            self._show(0, PREFACE)
        for each in found:
            if self._search is None:
                self._take(each)

    def _begins(self, chunk: Chunk) -> bool:
        """Whether the direction's first bytes are still too few to know whether they begin a connection."""
        if chunk.offset and not self._opening:
            return False
        end = chunk.offset + len(chunk.data)
        if self._way == "response":
            return end < FRAME_HEADER
        return end < len(PREFACE) and PREFACE[chunk.offset : end] == chunk.data

    def _take(self, chunk: Chunk) -> None:
        data, at, offset = chunk.data, 0, chunk.offset
        if self._left:
            at = self._payload(data, 0, offset)
            if at == len(data):
                return
        elif self._parts:
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data, offset = b"".join(self._parts), self._parts_at
            self._parts = []
        self._frames(data, at, offset, chunk.time)

    def _frames(self, data: bytes, at: int, offset: int, time: int) -> None:
        """Cut `data[at:]` into frames; `offset` is that of `data[0]`."""
        size = len(data)
        need = FRAME_HEADER
        plain = at  # `data[plain:at]` are frames to show as they are
        while size - at >= FRAME_HEADER:
            word, flags, stream = HEAD(data, at)
            length, kind = word >> 8, word & 0xFF
            if kind in _PLAIN and self._certain and length <= size - at - FRAME_HEADER:
                at += FRAME_HEADER + length
                continue
            if plain < at:
                self._show(offset + plain, data[plain:at])
            if not self._certain and not believable(length, kind, flags, stream):
                self._lost()
                return
            stream &= 0x7FFFFFFF
            body = at + FRAME_HEADER
            if kind == DATA:
                self._show(offset + at, data[at:body])
                self._begin_data(stream, flags, length)
                plain = at = self._payload(data, body, offset)
            elif size - body >= length:
                until = body + length
                frame = Frame(kind, flags, stream, data[body:until], time, time, offset + until)
                self._other(frame, data[at:body])
                plain = at = until
            elif length > MAX_FRAME:
                self._lost()
                return
            else:
                need = FRAME_HEADER + length
                plain = at
                break
        if plain < at:
            self._show(offset + plain, data[plain:at])
        if at < size:
            self._parts, self._parts_at = [data[at:]], offset + at
            self._have, self._need = size - at, need

    def _begin_data(self, stream: int, flags: int, length: int) -> None:
        self._stream = stream
        self._left = length
        self._padding = 0
        self._pad_unread = bool(flags & PADDED) and length > 0
        self._end_stream = bool(flags & END_STREAM)
        if not length:
            self._data_ended()

    def _payload(self, data: bytes, at: int, offset: int) -> int:
        """Take the DATA frame's bytes from `data[at:]` (RFC 9113, section 6.1); returns where they end."""
        size = len(data)
        if self._pad_unread and at < size:
            self._show(offset + at, data[at : at + 1])
            self._pad_unread = False
            self._left -= 1
            self._padding = min(data[at], self._left)
            at += 1
        if at == size or not self._left:
            return at
        content = min(self._left - self._padding, size - at)
        if content > 0:
            self._calls.data(self._stream, self._way, offset + at, data[at : at + content], self._covers[self._way])
        until = min(at + self._left, size)
        self._left -= until - at
        if not self._left:
            self._data_ended()
        return until

    def _data_ended(self) -> None:
        if not self._end_stream:
            return
        if self._way == "request":
            self._calls.lose(self._stream, self._way)
        else:
            self._calls.close(self._stream)

    def _other(self, frame: Frame, head: bytes) -> None:
        """Show a frame that is not DATA, and take what it says."""
        payload = frame.payload
        at = frame.until - len(payload)
        if frame.type in (HEADERS, CONTINUATION):
            assert self._headers is not None
            received = self._headers.feed(frame)
            block = None if received is None else received.block
            answer, command = self._way == "response", self._calls.runs_command(frame.stream)
            clean = None if block is None else covered(frame, block, answer=answer, command=command)
            if clean is None or not (self._certain or (frame.type == HEADERS and _believed(frame, received))):
                payload = SPOILED * len(payload)
            else:
                payload = clean
            if received is not None:
                self._received(received)
        elif frame.type == RST_STREAM:
            self._calls.close(frame.stream)
        elif frame.type == GOAWAY:
            payload = payload if self._certain else payload[:_GOAWAY_FIXED]
        elif frame.type not in _PLAIN or not (self._certain or len(payload) <= MAX_UNCERTAIN):
            payload = b""
        self._show(at - FRAME_HEADER, head + payload)

    def _received(self, received: Received) -> None:
        if self._way == "response":
            if received.end_stream:
                self._calls.close(received.stream)
            return
        if not self._calls.known(received.stream):
            head = None if received.block is None else request_head(received.block)
            self._calls.open(received.stream, *((None, None) if head is None else (head.path, head.old_path)))
        if received.end_stream:
            self._calls.lose(received.stream, self._way)


def _believed(frame: Frame, received: Received | None) -> bool:
    """Whether a header block after an uncertain start is one: whole, decodable, and of fields that gRPC peers send."""
    if not frame.flags & END_HEADERS or received is None or received.block is None:
        return False
    return all(
        (name in _NAMES or name[:1] == b"\x00") and (value[:1] == b"\x00" or _printable(value))
        for name, value in received.block.fields
    )


def _printable(value: bytes) -> bool:
    return value.isascii() and value.decode("ascii").isprintable()
