"""ttrpc: what the runtime asks its shims, and what they tell it (ttrpc's PROTOCOL.md).

A message is ten bytes of head (length, stream, type, flags) and a body; there is no handshake and no state in the
heads, so a connection that is older than the tracer is read like any other. The sender's records give the messages,
the receiver's when they were read. A write begins with a message (`channel.go:send`), so after a gap any write can be
where the next message begins.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from struct import Struct

from tracer.protowire import Malformed
from tracer.records import Closed, Data, Exit, Opened, Record
from tracer.shimcalls import Message, ShimCall, read_request, read_response, state_answer, state_request
from tracer.streams import Way
from tracer.texts import redact

HEAD = 10
_HEAD = Struct(">IIBB")  # length of the body, stream, type, flags

MAX_BODY = 4 * 1024 * 1024
"""ttrpc `messageLengthMax`."""

MAX_KEPT = 64 * 1024
"""Bytes of a body that are looked at; ids and methods come first, and only a container's spec is larger."""

MAX_CONNECTIONS = 4096
"""Connections remembered; containerd 2 has one for each container, and nodes have hundreds."""

MAX_OPEN = 1024
"""Open calls of one connection: one `Wait` for each process, and what hangs."""

MAX_WAITING = 1024
"""Messages of one direction whose reader is not known to have read them."""

MAX_EARLY = 64
"""Answers of one connection kept that have no request: its record is late, or older than the tracer."""

REQUEST, RESPONSE, DATA = 1, 2, 3
TYPES: dict[Way, tuple[int, int]] = {"request": (REQUEST, DATA), "response": (RESPONSE, DATA)}
FLAGS = 0x07  # remote closed, remote open, no data
_Process = tuple[int | None, str | None]
_NOBODY: _Process = (None, None)

_FIRST_TAGS = (b"\x0a", b"\x12")  # service; status or payload


@dataclass(slots=True)
class TtrpcStats:
    """`gaps`: holes in a sender's records; `malformed`: heads or bodies that cannot be; `evicted`: forgotten calls."""

    calls: int = 0
    messages: int = 0
    gaps: int = 0
    malformed: int = 0
    evicted: int = 0


class _Flow:
    """One direction. Offsets are the sender's."""

    __slots__ = (
        "begin", "begun", "delta", "kept", "next", "read_begin", "read_time", "read_to", "skip", "synced", "waiting",
        "way",
    )  # fmt: skip

    def __init__(self, way: Way) -> None:
        self.way: Way = way
        self.next: int | None = None  # the sender's next byte
        self.synced = False  # the next byte begins a message, or continues the one in `kept`
        self.kept = bytearray()  # of a message that is not complete
        self.skip = 0  # bytes of it that are still to come and not kept
        self.begin = self.begun = 0  # offset and time of its first byte
        self.delta: int | None = None  # reader's offset + delta = sender's
        self.read_begin = self.read_time = 0  # of the latest read
        self.read_to = -1
        self.waiting: deque[tuple[int, int, ShimCall]] = deque(maxlen=MAX_WAITING)  # (begin, end, whose message)

    def lose(self) -> None:
        self.synced = False
        self.kept.clear()
        self.skip = 0


class _Connection:
    __slots__ = ("client", "early", "name", "open", "path", "request", "response", "server", "time")

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.time = 0
        self.client: _Process = _NOBODY
        self.server: _Process = _NOBODY
        self.request = _Flow("request")
        self.response = _Flow("response")
        self.open: dict[int, ShimCall] = {}  # by stream; unanswered
        self.early: OrderedDict[int, tuple[int, int, int, Message]] = OrderedDict()

    def anew(self, offset: int) -> None:
        """Another connection has the name; `offset` is where the first request's bytes begin in those of the name."""
        self.open.clear()
        self.early.clear()
        self.name = f"{self.name.partition('.')[0]}.{offset}"


class Ttrpc:
    """Feed the records of ttrpc sockets and ends of processes, get calls that began, were answered, read, or lost."""

    def __init__(self) -> None:
        self.stats = TtrpcStats()
        self._connections: dict[str, _Connection] = {}
        self._servers: OrderedDict[str, _Process] = OrderedDict()  # by path: who served it last
        self._serving: set[int] = set()  # process ids, and some that are gone

    def open_calls(self) -> list[ShimCall]:
        """Every call that has not been answered."""
        return [call for connection in self._connections.values() for call in connection.open.values()]

    def feed(self, record: Record) -> list[ShimCall]:
        changed: list[ShimCall] = []
        if isinstance(record, Data):
            self._data(record, changed)
        elif isinstance(record, Opened):
            self._connection(record, changed)
        elif isinstance(record, Closed):
            connection = self._connections.pop(record.connection, None)
            if connection is not None:
                _ended(connection, record.time, changed)
        elif isinstance(record, Exit) and record.pid in self._serving:
            self._serving.remove(record.pid)
            for name in [name for name, each in self._connections.items() if self._server(each)[0] == record.pid]:
                _ended(self._connections.pop(name), record.time, changed)
        return changed

    def _connection(self, record: Data | Opened, changed: list[ShimCall]) -> _Connection:
        connection = self._connections.get(record.connection)
        if connection is None:
            if len(self._connections) >= MAX_CONNECTIONS:
                silent = min(self._connections, key=lambda name: self._connections[name].time)
                gone = self._connections.pop(silent)
                self.stats.evicted += len(gone.open)
                _ended(gone, record.time, changed)
            connection = self._connections[record.connection] = _Connection(record.connection, record.path)
        connection.time = record.time
        if record.side == "client":
            if connection.client[0] != record.pid:
                connection.client = (record.pid, record.comm)
        elif connection.server[0] != record.pid:
            self._served(connection, (record.pid, record.comm))
        return connection

    def _server(self, connection: _Connection) -> _Process:
        """Who serves it; while its own end was not seen, who served the path last."""
        return connection.server if connection.server[0] else self._servers.get(connection.path, _NOBODY)

    def _served(self, connection: _Connection, server: _Process) -> None:
        connection.server = self._servers[connection.path] = server
        if server[0] is not None:
            self._serving.add(server[0])
            if len(self._serving) > MAX_CONNECTIONS:
                self._serving = {each.server[0] for each in self._connections.values() if each.server[0] is not None}
        self._servers.move_to_end(connection.path)
        if len(self._servers) > MAX_CONNECTIONS:
            self._servers.popitem(last=False)
        for call in connection.open.values():
            call.server_pid, call.server_comm = server

    def _data(self, record: Data, changed: list[ShimCall]) -> None:
        connection = self._connection(record, changed)
        sending = record.direction == "send"
        flow = connection.request if (record.side == "client") == sending else connection.response
        if sending:
            self._sent(connection, flow, record, changed)
        else:
            _read(flow, record, changed)

    # what a sender's records say

    def _sent(self, connection: _Connection, flow: _Flow, record: Data, changed: list[ShimCall]) -> None:
        offset, data, end = record.offset, record.data, record.offset + record.length
        if flow.next is not None and offset != flow.next:
            if end <= flow.next:
                return  # told twice
            if offset > flow.next:
                self.stats.gaps += 1
                flow.lose()
            else:
                data = data[flow.next - offset :]
                offset = flow.next
        flow.next = end
        at, size = 0, len(data)
        while at < size:
            if not flow.kept and flow.synced and size - at >= HEAD:
                # As nearly always: a whole message.
                length, stream, kind, flags = _HEAD.unpack_from(data, at)
                until = at + HEAD + length
                if until <= size and length <= MAX_KEPT and _may_be(flow.way, length, stream, kind, flags):
                    flow.begin, flow.begun = offset + at, record.time
                    self.stats.messages += 1
                    message = Message(stream, kind, data[at + HEAD : until], whole=True)
                    self._message(connection, flow, message, offset + until, record.time, changed)
                    at = until
                    continue
            if not flow.kept:
                flow.begin, flow.begun = offset + at, record.time
            at = self._piece(connection, flow, data, at, offset, record.time, changed)
            if at < 0:
                return
        if len(record.data) < record.length:
            self.stats.gaps += 1
            flow.lose()

    def _piece(
        self, connection: _Connection, flow: _Flow, data: bytes, at: int, offset: int, time: int,
        changed: list[ShimCall],
    ) -> int:  # fmt: skip
        """Take what `data` has of one message from `at` on; returns where the next begins, -1 when it cannot be one."""
        kept = flow.kept
        if len(kept) < HEAD:
            need = HEAD - len(kept)
            kept += data[at : at + need]
            at = min(len(data), at + need)
            if len(kept) < HEAD:
                return at
            if not _believable(flow.way, kept) or not (flow.synced or _begins(kept, data[at : at + 1])):
                self.stats.malformed += flow.synced
                flow.lose()
                return -1
            flow.synced = True
            (flow.skip, *_) = _HEAD.unpack(kept)
        take = min(flow.skip, len(data) - at)
        room = HEAD + MAX_KEPT - len(kept)
        kept += data[at : at + min(take, room)]
        flow.skip -= take
        at += take
        if not flow.skip:
            length, stream, kind, _ = _HEAD.unpack_from(kept)
            message = Message(stream, kind, bytes(kept[HEAD:]), length <= MAX_KEPT)
            kept.clear()
            self.stats.messages += 1
            self._message(connection, flow, message, offset + at, time, changed)
        return at

    def _message(
        self, connection: _Connection, flow: _Flow, message: Message, end: int, time: int, changed: list[ShimCall]
    ) -> None:
        if message.type == REQUEST:
            self._request(connection, flow, message, end, time, changed)
        elif message.type == RESPONSE:
            call = connection.open.get(message.stream)
            if call is None:
                connection.early[message.stream] = (flow.begin, end, time, message)
                if len(connection.early) > MAX_EARLY:
                    connection.early.popitem(last=False)
            else:
                self._answer(connection, flow.begin, end, time, call, message, changed)

    def _request(
        self, connection: _Connection, flow: _Flow, message: Message, end: int, time: int, changed: list[ShimCall]
    ) -> None:
        if message.stream == 1 and flow.begin:
            # A client counts its streams up: another connection has the name, and nobody told of the end of the first.
            _ended(connection, time, changed)
            connection.anew(flow.begin)
        elif message.stream in connection.open:
            return
        try:
            request = read_request(message)
        except Malformed:
            self.stats.malformed += 1
            return
        server = self._server(connection)
        call = ShimCall(
            connection.name, connection.path, message.stream, flow.begun, time, connection.client[0],
            connection.client[1], server[0], server[1], request.service, request.method, request.timeout,
            request.namespaced,
        )  # fmt: skip
        try:
            state_request(call, request.payload, whole=message.whole)
        except Malformed:
            self.stats.malformed += 1
        if message.stream == 1 and flow.begin == 0:
            # A connection's first request: both ends of both directions are counted from their first byte.
            connection.request.delta = connection.response.delta = 0
        self.stats.calls += 1
        if len(connection.open) >= MAX_OPEN:
            oldest = next(iter(connection.open))
            self.stats.evicted += 1
            _lost(connection.open.pop(oldest), time, changed)
        connection.open[message.stream] = call
        changed.append(call)
        _wait(flow, flow.begin, end, call, changed)
        early = connection.early.pop(message.stream, None)
        if early is not None:
            begin, until, answered, answer = early
            self._answer(connection, begin, until, max(answered, time), call, answer, changed)

    def _answer(
        self, connection: _Connection, begin: int, end: int, time: int, call: ShimCall, message: Message,
        changed: list[ShimCall],
    ) -> None:  # fmt: skip
        del connection.open[call.stream]
        # A sender that was interrupted before its record is stamped later than it sent.
        call.answered = time = max(time, call.sent)
        try:
            call.status, text, payload = read_response(message)
            call.error = redact(text) if text else None
            state_answer(call, payload)
        except Malformed:
            self.stats.malformed += 1
        flow = connection.response
        if flow.delta is None:
            # Nobody can say yet when its client reads it.
            call.end = time
        changed.append(call)
        _wait(flow, begin, end, call, changed)


def _begins(head: bytes | bytearray, body: bytes) -> bool:
    """Whether, for all that is seen of it, a request or an answer: they begin with one of their first two fields."""
    return head[8] != DATA and (not body or not any(head[:4]) or body in _FIRST_TAGS)


def _believable(way: Way, head: bytes | bytearray) -> bool:
    return len(head) == HEAD and _may_be(way, *_HEAD.unpack(head))


def _may_be(way: Way, length: int, stream: int, kind: int, flags: int) -> bool:
    # A stream of a client: servers open none.
    return length <= MAX_BODY and stream & 1 == 1 and kind in TYPES[way] and not flags & ~FLAGS


# what a reader's records say


def _wait(flow: _Flow, begin: int, end: int, call: ShimCall, changed: list[ShimCall]) -> None:
    """The message `[begin, end)` was sent; its reader may have been told of before."""
    if flow.delta is not None and flow.read_to >= end:
        _passed(flow, call, flow.read_time if flow.read_begin < end else None, changed)
    else:
        flow.waiting.append((begin, end, call))


def _read(flow: _Flow, record: Data, changed: list[ShimCall]) -> None:
    if flow.delta is None:
        flow.delta = _placed(flow, record)
        if flow.delta is None:
            return
    begin = record.offset + flow.delta
    end = begin + record.length
    flow.read_begin, flow.read_time, flow.read_to = begin, record.time, max(end, flow.read_to)
    waiting = flow.waiting
    while waiting and waiting[0][1] <= end:
        _, until, call = waiting.popleft()
        _passed(flow, call, record.time if begin < until else None, changed)


def _placed(flow: _Flow, record: Data) -> int | None:
    """Where a reader older than the tracer stands: a stream has one request and one answer, so their heads are unique.

    A read begins with a message: the reader takes heads and bodies one by one out of what each read gave it.
    """
    head = record.data[:HEAD]
    if _believable(flow.way, head) and head[8] != DATA:
        _, stream, _, _ = _HEAD.unpack(head)
        for begin, _, call in flow.waiting:
            if call.stream == stream:
                return begin - record.offset
    return None


def _passed(flow: _Flow, call: ShimCall, time: int | None, changed: list[ShimCall]) -> None:
    if flow.way == "request":
        if time is not None:
            call.received = max(time, call.sent)
        return
    answered = call.answered or call.start
    call.read_answer = None if time is None else max(time, answered)
    call.end = call.read_answer or answered
    changed.append(call)


# ends


def _ended(connection: _Connection, time: int, changed: list[ShimCall]) -> None:
    for _, _, call in connection.response.waiting:
        if call.end is None:
            call.end = call.answered
            changed.append(call)
    for call in connection.open.values():
        _lost(call, time, changed)


def _lost(call: ShimCall, time: int, changed: list[ShimCall]) -> None:
    call.lost = True
    call.end = max(time, call.start)
    changed.append(call)
