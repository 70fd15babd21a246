"""gRPC calls (PROTOCOL-HTTP2.md of gRPC): from frames of both directions to calls with messages, status and stamps."""

import re
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from tracer import http2
from tracer.headers import Block, Headers, HeaderStats, Old, Received
from tracer.http2 import Desync, Frame, Frames, FrameStats
from tracer.streams import Ended, Item, Peer, Read, Way

EndedBy = Literal["server", "client_cancel", "deadline", "connection", "unknown"]

MAX_MESSAGE = 16 * 1024 * 1024 + 64 * 1024
"""Bytes of one message kept for parsing: the kubelet's receive limit (`maxMsgSize`, 16 MiB) and some room."""

MAX_STREAMS = 4096
"""Open calls remembered a connection; containerd and CRI-O allow far fewer in practice, so only leaks reach it."""

MAX_MARKS = 256
"""Read positions remembered ahead of the sender's records (which are at most some microseconds late)."""

STATUS = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""Names of the status codes, by number (statuscodes.md of gRPC)."""

_RESET_STATUS = {7: "UNAVAILABLE", 8: "CANCELLED", 11: "RESOURCE_EXHAUSTED", 12: "PERMISSION_DENIED"}
"""What a client reports for a stream the server reset (PROTOCOL-HTTP2.md, "Errors"); INTERNAL for every other code."""

_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_UNIT_NS = {b"H": 3_600_000_000_000, b"M": 60_000_000_000, b"S": 10**9, b"m": 10**6, b"u": 10**3, b"n": 1}

DEADLINE_SLACK_NS = 50_000_000
"""A client's reset counts as its deadline when it comes no earlier than this before it: grpc-timeout is rounded up
(grpc-go `EncodeDuration`) and written a little before the headers are sent. One percent for short deadlines."""


@dataclass(slots=True)
class Message:
    """One gRPC message. `data` is None when it is not whole (a gap), too large to keep or cannot be decompressed."""

    data: bytes | None
    length: int
    time: int


@dataclass(slots=True, eq=False)
class Call:
    """One gRPC call, growing until `ended_by` is set. Times are monotonic ns, None where not seen.

    `sent` (t1): the client had sent its request; `received` (t2): the server had read it; `answered` (t3): the server
    had sent the end of its answer; `end` (t4): the client had read it, or gave up, or lost the connection.
    """

    peer: Peer
    stream: int
    start: int
    path: str | None = None  # "/runtime.v1.RuntimeService/Status"; None when the header was only an old entry
    old_path: Old | None = None
    deadline_ns: int | None = None
    trace: str | None = None  # trace id of a `traceparent` header
    sent: int | None = None
    received: int | None = None
    answered: int | None = None
    end: int | None = None
    read_answer: int | None = None
    status: str | None = None
    error: str | None = None
    ended_by: EndedBy | None = None
    request: Message | None = None
    responses: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    complete: bool = True  # false when bytes of it were missing
    requester: "Body" = field(default_factory=lambda: Body())  # noqa: PLW0108  (defined below)
    responder: "Body" = field(default_factory=lambda: Body())  # noqa: PLW0108

    @property
    def id(self) -> str:
        return f"{self.peer.connection}-{self.stream}"


@dataclass(slots=True)
class Opened:
    """The request's headers were sent."""

    call: Call
    time: int


@dataclass(slots=True)
class Requested:
    """The request is complete; `call.request` is its message."""

    call: Call
    time: int


@dataclass(slots=True)
class Responded:
    """The server sent one message; unary calls have one, streams any number."""

    call: Call
    time: int
    message: Message


@dataclass(slots=True)
class Finished:
    """The call is over: `call.end` and `call.ended_by` are set."""

    call: Call
    time: int


@dataclass(slots=True)
class Joined:
    """A connection's first request headers; `whole`: seen from its first byte."""

    peer: Peer
    time: int
    whole: bool


@dataclass(slots=True)
class Left:
    """A connection ended, after the `Finished` of its open calls."""

    peer: Peer
    time: int


Event = Opened | Requested | Responded | Finished | Joined | Left


@dataclass(slots=True)
class RpcStats:
    """`malformed`: blocks and messages that cannot be; `evicted`: calls forgotten for room."""

    calls: int = 0
    malformed: int = 0
    evicted: int = 0
    frames: FrameStats = field(default_factory=FrameStats)
    headers: HeaderStats = field(default_factory=HeaderStats)


class Body:
    """The length-prefixed messages of one direction of a call."""

    __slots__ = ("broken", "buffer", "encoding", "need", "size")

    def __init__(self) -> None:
        self.buffer: list[bytes] = []
        self.size = 0  # bytes in buffer
        self.need = 5  # bytes wanted before something can be cut
        self.broken = False  # boundaries are lost
        self.encoding = ""

    def feed(self, data: bytes, time: int, missing: int, out: list[Message]) -> None:
        if missing or self.broken:
            self.broken = True
            self.buffer.clear()
            return
        if not data:
            return
        self.buffer.append(data)
        self.size += len(data)
        if self.size < self.need:
            return
        joined = self.buffer[0] if len(self.buffer) == 1 else b"".join(self.buffer)
        at = 0
        while len(joined) - at >= 5:
            length = int.from_bytes(joined[at + 1 : at + 5], "big")
            if length > MAX_MESSAGE or joined[at] > 1:
                out.append(Message(None, length, time))
                self.broken = True
                self.buffer.clear()
                return
            if len(joined) - at - 5 < length:
                break
            body = joined[at + 5 : at + 5 + length]
            out.append(Message(self._plain(body) if joined[at] else body, length, time))
            at += 5 + length
        rest = joined[at:]
        self.buffer = [rest] if rest else []
        self.size = len(rest)
        self.need = 5 + int.from_bytes(rest[1:5], "big") if len(rest) >= 5 else 5

    def _plain(self, body: bytes) -> bytes | None:
        """Decompressed, or None (PROTOCOL-HTTP2.md: gzip and deflate are the named encodings)."""
        try:
            engine = zlib.decompressobj(47 if self.encoding in ("gzip", "deflate") else 0)
            if not self.encoding or self.encoding not in ("gzip", "deflate"):
                return None
            data = engine.decompress(body, MAX_MESSAGE)
        except zlib.error:
            return None
        return data if engine.eof else None


class _Half:
    """One direction: its frames, header table and the positions at which someone waits for the reader."""

    __slots__ = ("frames", "headers", "marks", "read", "waiting")

    def __init__(self, stats: RpcStats) -> None:
        self.frames = Frames(stats.frames)
        self.headers: Headers | None = None
        self.read: tuple[int, int] | None = None  # (offset, time) of the latest read
        self.marks: deque[tuple[int, int, bool]] = deque(maxlen=MAX_MARKS)  # (offset, time, exact) of reads
        self.waiting: deque[tuple[int, Call]] = deque()  # calls by the offset that ends their part


class Connection:
    """Both directions of one connection and its open calls."""

    __slots__ = ("calls", "halves", "joined", "last_stream", "peer")

    def __init__(self, peer: Peer, stats: RpcStats) -> None:
        self.peer = peer
        self.halves: dict[Way, _Half] = {"request": _Half(stats), "response": _Half(stats)}
        self.calls: dict[int, Call] = {}
        self.joined = False
        self.last_stream = 0


class Rpc:
    """Feed stream items, get call events."""

    def __init__(self) -> None:
        self.stats = RpcStats()
        self._connections: dict[str, Connection] = {}

    def open_calls(self) -> list[Call]:
        """Every call that has not ended, oldest connection first."""
        return [call for connection in self._connections.values() for call in connection.calls.values()]

    def feed(self, item: Item, peer: Peer | None) -> list[Event]:
        """`peer`: the item's connection as `Streams.known` has it, None once it ended."""
        out: list[Event] = []
        if isinstance(item, Ended):
            self._ended(item, out)
            return out
        connection = self._connections.get(item.connection)
        if connection is None:
            if peer is None:
                return out
            connection = self._connections[item.connection] = Connection(peer, self.stats)
        half = connection.halves[item.way]
        if isinstance(item, Read):
            self._read(connection, half, item, out)
            return out
        for frame in half.frames.feed(item):
            if isinstance(frame, Desync):
                self._desync(connection, item.way, out)
            elif item.way == "request":
                self._request(connection, half, frame, out)
            else:
                self._response(connection, half, frame, out)
        return out

    # headers

    def _headers(self, half: _Half) -> Headers:
        if half.headers is None:
            half.headers = Headers(self.stats.headers, whole=half.frames.begun)
        return half.headers

    def _desync(self, connection: Connection, way: Way, out: list[Event]) -> None:
        """Frames may be missing: forget the table; what the open calls lost is not known, so they are not whole."""
        half = connection.halves[way]
        if half.headers is not None:
            half.headers.forget()
        else:
            half.headers = Headers(self.stats.headers, whole=False)
        for call in connection.calls.values():
            call.complete = False
            if way == "request" and call.sent is None:
                call.requester.broken = True
            if way == "response":
                call.responder.broken = True
        half.waiting.clear()
        del out

    # the client's frames

    def _request(self, connection: Connection, half: _Half, frame: Frame, out: list[Event]) -> None:
        kind = frame.type
        if kind in (http2.HEADERS, http2.CONTINUATION):
            received = self._headers(half).feed(frame)
            if received is not None:
                self._open(connection, half, received, out)
            return
        if kind == http2.DATA:
            call = connection.calls.get(frame.stream)
            if call is None or call.sent is not None:
                return
            data = http2_data(frame)
            call.request_bytes += len(data) + frame.missing
            messages: list[Message] = []
            call.requester.feed(data, frame.end, frame.missing, messages)
            if frame.missing:
                call.complete = False
            if messages and call.request is None:
                call.request = messages[0]
            if frame.flags & http2.END_STREAM:
                self._requested(half, call, frame.end, frame.until, out)
        elif kind == http2.RST_STREAM:
            call = connection.calls.get(frame.stream)
            if call is not None:
                self._reset_by_client(connection, call, frame.end, out)

    def _open(self, connection: Connection, half: _Half, received: Received, out: list[Event]) -> None:
        call = connection.calls.get(received.stream)
        if call is not None:
            # Trailers of a request do not exist in gRPC; an END_STREAM is one all the same.
            if received.end_stream:
                self._requested(half, call, received.end, received.until, out)
            return
        if received.stream <= connection.last_stream:
            return  # of a call that is over
        connection.last_stream = received.stream
        if not connection.joined:
            connection.joined = True
            out.append(Joined(connection.peer, received.begin, half.frames.begun))
        call = Call(connection.peer, received.stream, received.begin)
        if received.block is not None:
            _request_headers(call, received.block)
        self.stats.calls += 1
        if len(connection.calls) >= MAX_STREAMS:
            oldest = next(iter(connection.calls.values()))
            self.stats.evicted += 1
            self._finish(connection, oldest, received.end, "unknown", out)
        connection.calls[received.stream] = call
        out.append(Opened(call, received.begin))
        if received.end_stream:
            self._requested(half, call, received.end, received.until, out)

    def _requested(self, half: _Half, call: Call, time: int, until: int, out: list[Event]) -> None:
        if call.sent is not None:
            return
        call.sent = time
        out.append(Requested(call, time))
        read = self._position(half, until)
        if read is None:
            half.waiting.append((until, call))
        else:
            call.received = read[0] if read[1] else None

    def _reset_by_client(self, connection: Connection, call: Call, time: int, out: list[Event]) -> None:
        if call.answered is not None:
            # After the whole answer: the client just drops the stream.
            self._finish(connection, call, time, "server", out)
            return
        ended_by: EndedBy = "client_cancel"
        if call.deadline_ns is not None:
            slack = min(DEADLINE_SLACK_NS, call.deadline_ns // 100)
            if time - call.start >= call.deadline_ns - slack:
                ended_by = "deadline"
        self._finish(connection, call, time, ended_by, out)

    # the server's frames

    def _response(self, connection: Connection, half: _Half, frame: Frame, out: list[Event]) -> None:
        kind = frame.type
        if kind in (http2.HEADERS, http2.CONTINUATION):
            received = self._headers(half).feed(frame)
            if received is not None:
                self._answer_headers(connection, half, received, out)
            return
        call = connection.calls.get(frame.stream)
        if kind == http2.DATA:
            if call is None:
                return
            data = http2_data(frame)
            call.response_bytes += len(data) + frame.missing
            messages: list[Message] = []
            call.responder.feed(data, frame.end, frame.missing, messages)
            if frame.missing:
                call.complete = False
            for message in messages:
                call.responses += 1
                out.append(Responded(call, frame.end, message))
            if frame.flags & http2.END_STREAM:
                # No trailers: the server broke off (PROTOCOL-HTTP2.md demands trailers).
                self._answered(connection, half, call, frame.end, frame.until, out)
        elif kind == http2.RST_STREAM and call is not None:
            if call.answered is None:
                code = int.from_bytes(frame.payload[:4], "big")
                call.status = _RESET_STATUS.get(code, "INTERNAL")
                self._answered(connection, half, call, frame.end, frame.until, out)
        elif kind == http2.GOAWAY:
            last = int.from_bytes(frame.payload[:4], "big") & 0x7FFFFFFF
            for open_call in [c for c in connection.calls.values() if c.stream > last]:
                self._finish(connection, open_call, frame.end, "connection", out)

    def _answer_headers(self, connection: Connection, half: _Half, received: Received, out: list[Event]) -> None:
        call = connection.calls.get(received.stream)
        if call is None:
            return
        if received.block is not None:
            _response_headers(call, received.block, trailers=received.end_stream)
        if received.end_stream:
            self._answered(connection, half, call, received.end, received.until, out)

    def _answered(
        self, connection: Connection, half: _Half, call: Call, time: int, until: int, out: list[Event]
    ) -> None:
        if call.answered is not None:
            return
        call.answered = time
        if half.read is None:
            # The client's end is not seen (yet): its reading cannot be waited for.
            self._finish(connection, call, time, "server", out)
            return
        read = self._position(half, until)
        if read is None:
            half.waiting.append((until, call))
        else:
            self._taken(connection, call, read, time, out)

    # reading

    def _position(self, half: _Half, until: int) -> tuple[int, bool] | None:
        """(time, exact) at which the reader passed `until`; None while it has not."""
        if half.read is None or half.read[0] < until:
            return None
        for offset, time, exact in half.marks:
            if offset >= until:
                return (time, exact)
        return None

    def _read(self, connection: Connection, half: _Half, item: Read, out: list[Event]) -> None:
        half.read = (item.offset, item.time)
        half.marks.append((item.offset, item.time, item.exact))
        while half.waiting and half.waiting[0][0] <= item.offset:
            _, call = half.waiting.popleft()
            if item.way == "request":
                if item.exact and call.received is None:
                    call.received = item.time
            elif call.ended_by is None:
                self._taken(connection, call, (item.time, item.exact), item.time, out)

    def _taken(self, connection: Connection, call: Call, read: tuple[int, bool], time: int, out: list[Event]) -> None:
        read_at, exact = read
        if exact:
            call.read_answer = read_at
            self._finish(connection, call, max(read_at, call.answered or 0), "server", out)
        else:
            call.complete = False
            self._finish(connection, call, call.answered or time, "server", out)

    # ends

    def _finish(self, connection: Connection, call: Call, time: int, ended_by: EndedBy, out: list[Event]) -> None:
        if connection.calls.pop(call.stream, None) is None:
            return
        call.end = max(time, call.start)
        call.ended_by = ended_by
        out.append(Finished(call, call.end))

    def _ended(self, item: Ended, out: list[Event]) -> None:
        connection = self._connections.pop(item.connection, None)
        if connection is None:
            return
        ended_by: EndedBy = "unknown" if item.evicted else "connection"
        for call in list(connection.calls.values()):
            self._finish(connection, call, item.time, "server" if call.answered is not None else ended_by, out)
        out.append(Left(connection.peer, item.time))


def http2_data(frame: Frame) -> bytes:
    """The payload of a DATA frame without its padding (RFC 9113, section 6.1)."""
    if not frame.flags & http2.PADDED or not frame.payload:
        return frame.payload
    pad = frame.payload[0]
    return frame.payload[1 : max(1, len(frame.payload) - pad)]


def _request_headers(call: Call, block: Block) -> None:
    for name, value in block.fields:
        if name == b":path":
            if value[:1] == b"/":
                call.path = value.decode("ascii", "replace")
        elif name == b"grpc-timeout" or (name[:1] == b"\x00" and _TIMEOUT.fullmatch(value)):
            # An old entry's name with a new value: only grpc-timeout has values of this form.
            match = _TIMEOUT.fullmatch(value)
            if match:
                call.deadline_ns = int(match[1]) * _UNIT_NS[match[2]]
        elif name == b"traceparent" or (name[:1] == b"\x00" and len(value) == 55 and value[:3] == b"00-"):
            call.trace = value[3:35].decode("ascii", "replace")
        elif name == b"grpc-encoding":
            call.requester.encoding = value.decode("ascii", "replace")
    if call.path is None:
        # grpc-go writes :method, :scheme, :path first; an older entry in the third place is the path.
        for position, old in block.old:
            if position == 2:
                call.old_path = old


def _response_headers(call: Call, block: Block, *, trailers: bool) -> None:
    for name, value in block.fields:
        if name == b"grpc-status":
            if trailers and value.isdigit() and int(value) < len(STATUS):
                call.status = STATUS[int(value)]
        elif name == b"grpc-message":
            if value[:1] != b"\x00":
                call.error = unquote(value.decode("ascii", "replace"), errors="replace")
        elif name == b"grpc-encoding":
            call.responder.encoding = value.decode("ascii", "replace")
