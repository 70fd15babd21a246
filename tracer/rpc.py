"""gRPC calls (PROTOCOL-HTTP2.md of gRPC): from frames of both directions to calls with messages, status and stamps."""

from dataclasses import dataclass, field

from tracer.calls import Call, EndedBy, Event, Finished, Joined, Left, Opened, Requested, Responded
from tracer.doubts import Doubts
from tracer.exchange import Exchange
from tracer.headers import Headers, HeaderStats, Received
from tracer.heads import CONTINUATION, DATA, END_STREAM, GOAWAY, HEADERS, RST_STREAM
from tracer.http2 import Frame, Frames, FrameStats
from tracer.kept import Kept
from tracer.messages import Message
from tracer.metadata import STATUS, RequestHead, request_head, response_head
from tracer.reading import Reading
from tracer.streams import Chunk, Ended, Gap, Item, Peer, Read, Way

__all__ = [
    "STATUS", "Call", "EndedBy", "Event", "Finished", "Joined", "Left", "Message", "Opened", "Requested", "Responded",
    "Rpc", "RpcStats",
]  # fmt: skip

MAX_STREAMS = 4096
"""Open calls remembered a connection; runtimes allow far fewer in practice, so only leaks reach it."""

MAX_OPEN = 16384
"""Open calls remembered in all; a kilobyte each."""

MAX_EARLY = 64
"""Streams remembered a connection of which an answer came before the request, whose record is late."""

DEADLINE_SLACK_NS = 50_000_000
"""A reset counts as the deadline's when it comes no earlier than this before it: grpc-timeout is rounded up (grpc-go
`EncodeDuration`) and written a little before the headers are sent. One percent for short deadlines."""

_NO_ERROR, _CANCEL = 0, 8
_RESET_STATUS = {7: "UNAVAILABLE", _CANCEL: "CANCELLED", 11: "RESOURCE_EXHAUSTED", 12: "PERMISSION_DENIED"}
"""What a client reports for a stream the server reset (PROTOCOL-HTTP2.md, "Errors"); INTERNAL for every other code."""


@dataclass(slots=True)
class RpcStats:
    """`malformed`: blocks and messages that cannot be gRPC's; `evicted`: calls forgotten for room."""

    calls: int = 0
    malformed: int = 0
    evicted: int = 0
    frames: FrameStats = field(default_factory=FrameStats)
    headers: HeaderStats = field(default_factory=HeaderStats)


class _Half:
    """One direction: its frames, its header table, and who waits for its reader."""

    __slots__ = ("frames", "headers", "reading", "way")

    def __init__(self, way: Way, stats: RpcStats, kept: Kept) -> None:
        self.way: Way = way
        self.frames = Frames(stats.frames, kept)
        self.headers: Headers | None = None  # from the first block on
        self.reading: Reading[Exchange] = Reading()


class _Connection:
    __slots__ = ("doubts", "early", "joined", "last_stream", "open", "peer", "request", "response")

    def __init__(self, peer: Peer, stats: RpcStats, kept: Kept) -> None:
        self.peer = peer
        self.request = _Half("request", stats, kept)
        self.response = _Half("response", stats, kept)
        self.open: dict[int, Exchange] = {}
        self.doubts = Doubts()
        self.joined = False
        self.last_stream = 0
        self.early: set[int] = set()  # streams of answers that came before any request of theirs

    def answered_early(self, stream: int) -> None:
        if stream > self.last_stream:
            if len(self.early) >= MAX_EARLY:
                self.early.clear()
            self.early.add(stream)


class Rpc:
    """Feed stream items, get call events."""

    def __init__(self) -> None:
        self.stats = RpcStats()
        self._kept = Kept()
        self._open = 0
        self._connections: dict[str, _Connection] = {}

    def open_calls(self) -> list[Call]:
        """Every call that has not ended, oldest connection first."""
        return [each.call for connection in self._connections.values() for each in connection.open.values()]

    def feed(self, item: Item, peer: Peer | None) -> list[Event]:
        """`peer`: the item's connection as `Streams.known` has it, None once it ended."""
        out: list[Event] = []
        connection = self._connections.get(item.connection)
        if connection is None:
            if peer is None or isinstance(item, Ended):
                return out
            connection = self._connections[item.connection] = _Connection(peer, self.stats, self._kept)
        if isinstance(item, Chunk):
            if item.way == "request":
                half, take = connection.request, self._request
            else:
                half, take = connection.response, self._response
            for frame in half.frames.feed(item):
                if isinstance(frame, Frame):
                    take(connection, half, frame, out)
                else:
                    self._desync(connection, half, frame.time)
            half.reading.sent_to = item.offset + len(item.data)
        elif isinstance(item, Read):
            if item.way == "request":
                for exchange, time in connection.request.reading.read(item):
                    _received(exchange, time)
            else:
                for exchange, time in connection.response.reading.read(item):
                    if exchange.call.ended_by is None:
                        self._taken(connection, exchange, time, out)
        elif isinstance(item, Gap):
            self._gap(connection, item, out)
        else:
            self._ended(connection, item, out)
        return out

    def _gap(self, connection: _Connection, gap: Gap, out: list[Event]) -> None:
        half = connection.request if gap.way == "request" else connection.response
        for frame in half.frames.feed(gap):
            if not isinstance(frame, Frame):
                self._desync(connection, half, frame.time)
            elif gap.way == "request":
                self._request(connection, half, frame, out)
            else:
                self._response(connection, half, frame, out)

    def _desync(self, connection: _Connection, half: _Half, time: int) -> None:
        """Frames may be missing: of the table, of what the open calls still send, and perhaps of their ends."""
        if half.headers is None:
            half.headers = Headers(self.stats.headers, whole=False)
        else:
            half.headers.forget()
        for exchange in connection.open.values():
            if not exchange.answered:
                exchange.lose(half.way)
                connection.doubts.add(exchange.call, time, half.way)

    # the client's frames

    def _request(self, connection: _Connection, half: _Half, frame: Frame, out: list[Event]) -> None:
        kind = frame.type
        if kind == HEADERS or kind == CONTINUATION:  # noqa: PLR1714, SIM109  (asked for each frame: no set is built)
            if half.headers is None:
                half.headers = Headers(self.stats.headers, whole=half.frames.begun)
            received = half.headers.feed(frame)
            if received is not None:
                self._headers(connection, half, received, out)
            return
        exchange = connection.open.get(frame.stream)
        if exchange is None:
            return
        if kind == DATA:
            if not exchange.requested:
                exchange.request(frame)
                if frame.flags & END_STREAM:
                    _requested(half, exchange, frame, out)
        elif kind == RST_STREAM:
            self._reset_by_client(connection, exchange, frame, out)

    def _headers(self, connection: _Connection, half: _Half, received: Received, out: list[Event]) -> None:
        exchange = connection.open.get(received.stream)
        if exchange is None:
            exchange = self._opened(connection, half, received, out)
        if exchange is not None and received.end_stream and not exchange.requested:
            _requested(half, exchange, received, out)

    def _opened(self, connection: _Connection, half: _Half, received: Received, out: list[Event]) -> Exchange | None:
        stream, block = received.stream, received.block
        if stream <= connection.last_stream or not stream & 1:
            return None  # of a call that is over, or not a client's (RFC 9113, section 5.1.1)
        head = request_head(block) if block is not None else None
        if head is None:
            self.stats.malformed += 1
            if block is not None or not half.frames.certain:
                return None
            head = RequestHead()  # the frame is one, whatever it says
        if connection.doubts.any:
            self._settle(connection, received.begin, out)
        connection.last_stream = stream
        if not connection.joined:
            connection.joined = True
            out.append(Joined(connection.peer, received.begin, half.frames.begun))
        call = Call(
            connection.peer, stream, received.begin, head.path, head.old_path, head.deadline_ns, head.hidden_deadline,
            head.trace, head.span,
        )  # fmt: skip
        if block is None:
            call.complete = False
        if self._open >= MAX_OPEN or len(connection.open) >= MAX_STREAMS:
            self._make_room(connection, received.end, out)
        exchange = connection.open[stream] = Exchange(call, self._kept, head.encoding)
        if connection.response.frames.blind or received.until <= half.reading.sent_to or stream in connection.early:
            # Its answer may be passing unseen; or has passed, while it was not yet certain that this is a frame, or
            # while its record was late and the reader, not placed yet, could not tell.
            exchange.lose("response")
            connection.doubts.add(call, received.begin, "response")
        self._open += 1
        self.stats.calls += 1
        out.append(Opened(call, received.begin))
        return exchange

    def _make_room(self, connection: _Connection, time: int, out: list[Event]) -> None:
        oldest = next(iter(connection.open.values()), None)
        if oldest is not None:
            oldest.call.complete = False
            self.stats.evicted += 1
            self._finish(connection, oldest, time, "unknown", out)

    def _reset_by_client(self, connection: _Connection, exchange: Exchange, frame: Frame, out: list[Event]) -> None:
        call = exchange.call
        if exchange.answered and int.from_bytes(frame.payload[:4], "big") == _NO_ERROR:
            # The answer was there before the request was complete; grpc-go drops the rest of the stream then.
            self._finish(connection, exchange, frame.end, "server", out)
            return
        # An answer that the client has not read by now it never took.
        call.status = call.error = None
        ended_by: EndedBy = "client_cancel"
        if _past_deadline(call, frame.end):
            ended_by = "deadline"
        elif call.hidden_deadline:
            ended_by = "unknown"
        self._finish(connection, exchange, frame.end, ended_by, out)

    # the server's frames

    def _response(self, connection: _Connection, half: _Half, frame: Frame, out: list[Event]) -> None:
        kind = frame.type
        if kind == HEADERS or kind == CONTINUATION:  # noqa: PLR1714, SIM109
            if half.headers is None:
                # A server's SETTINGS alone do not say that it was the first.
                whole = half.frames.begun and connection.request.frames.begun
                half.headers = Headers(self.stats.headers, whole=whole)
            received = half.headers.feed(frame)
            if received is not None:
                self._answer_headers(connection, half, received, out)
            return
        if kind == GOAWAY:
            self._going_away(connection, frame, out)
            return
        exchange = connection.open.get(frame.stream)
        if exchange is None:
            connection.answered_early(frame.stream)
            return
        if exchange.answered:
            return
        call = exchange.call
        if kind == DATA:
            if connection.doubts.any:
                connection.doubts.alive(call)
            out += [Responded(call, frame.end, message) for message in exchange.response(frame)]
            if frame.flags & END_STREAM:
                # No trailers: the server broke off (PROTOCOL-HTTP2.md demands trailers).
                self._answered(connection, half, exchange, frame, out)
        elif kind == RST_STREAM:
            code = int.from_bytes(frame.payload[:4], "big")
            if code == _CANCEL and _past_deadline(call, frame.end):
                # The server's own timer (grpc-go `http2_server.go`); the client's would have said the same.
                exchange.ended_by = "deadline"
            else:
                call.status = _RESET_STATUS.get(code, "INTERNAL")
            self._answered(connection, half, exchange, frame, out)

    def _answer_headers(self, connection: _Connection, half: _Half, received: Received, out: list[Event]) -> None:
        exchange = connection.open.get(received.stream)
        if exchange is None:
            connection.answered_early(received.stream)
            return
        if exchange.answered:
            return
        call = exchange.call
        if connection.doubts.any:
            connection.doubts.alive(call)
        if received.block is None:
            call.complete = False
        else:
            head = response_head(received.block)
            if received.end_stream:
                call.status, call.error = head.status, head.error
            elif head.encoding:
                exchange.response_encoding = head.encoding
        if received.end_stream:
            self._answered(connection, half, exchange, received, out)

    def _answered(
        self, connection: _Connection, half: _Half, exchange: Exchange, last: Frame | Received, out: list[Event]
    ) -> None:
        exchange.answered = True
        exchange.answer_seen = last.end
        if not exchange.requested:
            # Rather than that the server answered half a request, the rest of it was lost, which will show later.
            exchange.call.complete = False
        if not last.filled:
            exchange.call.answered = last.end
        reading = half.reading
        if not reading.seen:
            # The client's end is not seen (yet): its reading cannot be waited for.
            self._finish(connection, exchange, last.end, exchange.ended_by, out)
        elif reading.read_to < last.until:
            reading.waiting.append((last.until, exchange))
        else:
            self._taken(connection, exchange, reading.passed(last.until), out)

    def _taken(self, connection: _Connection, exchange: Exchange, time: int | None, out: list[Event]) -> None:
        """The client has read the answer, at `time` if that is known."""
        call = exchange.call
        end = exchange.answer_seen
        if time is None:
            call.complete = False
        else:
            end = call.read_answer = max(time, end)
        self._finish(connection, exchange, end, exchange.ended_by, out)

    def _going_away(self, connection: _Connection, frame: Frame, out: list[Event]) -> None:
        """Calls above the last stream were never looked at (RFC 9113, section 6.8)."""
        last = int.from_bytes(frame.payload[:4], "big") & 0x7FFFFFFF
        for exchange in [each for stream, each in connection.open.items() if stream > last]:
            self._finish(connection, exchange, frame.end, "connection", out)

    # ends

    def _settle(self, connection: _Connection, now: int, out: list[Event]) -> None:
        """End the calls whose end was lost."""
        for call, since in connection.doubts.over(now):
            call.complete = False
            self._finish(connection, connection.open[call.stream], since, "unknown", out)

    def _finish(
        self, connection: _Connection, exchange: Exchange, time: int, ended_by: EndedBy, out: list[Event]
    ) -> None:
        call = exchange.call
        del connection.open[call.stream]
        self._open -= 1
        if exchange.collecting:
            self.stats.malformed += exchange.close()
        call.end = time if time > call.start else call.start  # noqa: FURB136  (each call: no call of another)
        call.ended_by = ended_by
        out.append(Finished(call, call.end))
        if connection.doubts.any:
            connection.doubts.drop(call)
            if ended_by == "server":
                connection.doubts.answered(call, call.end)
                self._settle(connection, call.end, out)

    def _ended(self, connection: _Connection, item: Ended, out: list[Event]) -> None:
        del self._connections[item.connection]
        ended_by: EndedBy = "unknown" if item.evicted else "connection"
        for exchange in list(connection.open.values()):
            if exchange.call.ended_by is not None:
                continue  # settled by another's end
            if exchange.answered:
                self._taken(connection, exchange, None, out)
            elif exchange.call in connection.doubts:
                exchange.call.complete = False
                self._finish(connection, exchange, item.time, "unknown", out)
            else:
                self._finish(connection, exchange, item.time, ended_by, out)
        connection.request.frames.close()
        connection.response.frames.close()
        out.append(Left(connection.peer, item.time, item.by_server))


def _requested(half: _Half, exchange: Exchange, last: Frame | Received, out: list[Event]) -> None:
    """The client has sent its request to the end."""
    exchange.requested = True
    call = exchange.call
    if not last.filled:
        # The first record's stamp may be later than the last's, which is no later than the reader's.
        call.sent = last.end if last.end > call.start else call.start  # noqa: FURB136  (each call: no call of another)
    out.append(Requested(call, last.end))
    reading = half.reading
    if reading.read_to < last.until:
        reading.waiting.append((last.until, exchange))
    else:
        _received(exchange, reading.passed(last.until))


def _received(exchange: Exchange, time: int | None) -> None:
    """The server had read the whole request; not told when it answered before that."""
    call = exchange.call
    if time is not None and not (exchange.answered and time > exchange.answer_seen):
        call.received = time if call.sent is None or time > call.sent else call.sent


def _past_deadline(call: Call, time: int) -> bool:
    if call.deadline_ns is None:
        return False
    return time - call.start >= call.deadline_ns - min(DEADLINE_SLACK_NS, call.deadline_ns // 100)
