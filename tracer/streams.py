"""Streams: from records of both ends of a connection to each direction's bytes in order.

Every byte of a connection is seen twice: when one end sends it and when the other end reads it. The sender's record
gives the bytes; the reader's gives the time at which they were read, and the bytes again where the sender's record
was lost. Both ends count bytes from their own first record; on a connection that is older than the source the two
counts differ by what was in flight then, so the reader is placed by content before its offsets mean anything.

A sender's record can come after the reader's of the same bytes (the sender was interrupted between the two). What is
sent after such a read is held back until the record is there, so that no answer comes before its request.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal

from tracer.heads import FRAME_HEADER, PREFACE
from tracer.placing import MAX_PLACING_BYTES, Placing
from tracer.records import Closed, Data, Lost, Opened, Record

__all__ = [
    "FRAME_HEADER", "MAX_PLACING_BYTES", "PREFACE", "Chunk", "Ended", "Gap", "Item", "Peer", "Read", "StreamStats",
    "Streams", "Way",
]  # fmt: skip

Way = Literal["request", "response"]
"""`request`: client to server; `response`: server to client."""

MAX_CONNECTIONS = 1024
"""Connections remembered at once; far above what a node's runtime sockets carry, so only leaks reach it."""

MAX_AHEAD_BYTES = 256 * 1024
"""Bytes kept of a reader that is ahead of the sender's records, to fill holes with."""

MAX_AHEAD = 4096
"""Reads kept of it."""

MAX_HELD_BYTES = 1024 * 1024
"""Bytes held back for a sender's record that is late."""

LATE_NS = 200_000_000
"""A sender's record that the reader is ahead of for longer was lost. Seen: 34 us; a virtual machine's CPU or a
control group can stand still for 100 ms."""


@dataclass(slots=True)
class Chunk:
    """Bytes `[offset, offset + len(data))` of one direction, in order; `time` is when their sender had sent them.

    `filled`: the sender's record was lost; the bytes are the reader's, and `time` is when it had read them.
    """

    connection: str
    way: Way
    time: int
    offset: int
    data: bytes
    filled: bool = False


@dataclass(slots=True)
class Gap:
    """`length` bytes from `offset` on are missing: nobody's record of them arrived."""

    connection: str
    way: Way
    time: int
    offset: int
    length: int


@dataclass(slots=True)
class Read:
    """The receiving end read the bytes `[begin, offset)`, hence had everything before `offset` at `time`."""

    connection: str
    way: Way
    time: int
    offset: int
    begin: int


@dataclass(slots=True)
class Peer:
    """What is known of a connection's two ends so far. `pid` 0 and `comm` "" where an end was not seen yet."""

    connection: str
    path: str
    client_pid: int = 0
    client_comm: str = ""
    server_pid: int = 0
    server_comm: str = ""


@dataclass(slots=True)
class Ended:
    """The connection is gone: an end closed it (`error` 0), an error ended it, or it was forgotten (`evicted`)."""

    connection: str
    time: int
    error: int
    evicted: bool = False
    by_server: bool = False  # it was the client's end that saw the end


Item = Chunk | Gap | Read | Ended


@dataclass(slots=True)
class StreamStats:
    """Counters.

    `gaps`, `gap_bytes`: missing in both ends' records; `filled`: holes closed from the other end's record; `held`:
    records held back for a late one; `lost`: records a source said it lost; `evicted`: connections forgotten for
    room; `stale`: records of bytes that were there already.
    """

    records: int = 0
    gaps: int = 0
    gap_bytes: int = 0
    filled: int = 0
    held: int = 0
    lost: int = 0
    evicted: int = 0
    stale: int = 0


class _Flow:
    """One direction of one connection. Offsets are the sender's."""

    __slots__ = ("ahead", "ahead_bytes", "arrived", "delta", "pending", "placing", "read_to", "sent", "way")

    def __init__(self, way: Way) -> None:
        self.way: Way = way
        self.sent = 0  # up to which items were emitted
        self.arrived = 0  # up to which the sender's records are there
        self.pending: list[Data] = []  # those of them that are held back
        self.placing: Placing | None = Placing()  # until the reader is placed
        self.delta = 0  # reader's offset + delta = sender's
        self.read_to = 0  # up to which the reader has read, once placed
        self.ahead: deque[tuple[int, int, int, bytes]] = deque()  # (begin, end, time, bytes) of reads beyond `sent`
        self.ahead_bytes = 0

    @property
    def late(self) -> bool:
        """The reader is ahead of the sender's records."""
        return self.read_to > self.arrived

    def note_ahead(self, begin: int, end: int, time: int, data: bytes) -> None:
        self.ahead.append((begin, end, time, data))
        self.ahead_bytes += len(data)
        while self.ahead_bytes > MAX_AHEAD_BYTES or len(self.ahead) > MAX_AHEAD:
            self.ahead_bytes -= len(self.ahead.popleft()[3])

    def trim(self) -> None:
        """Forget reads of what was emitted."""
        while self.ahead and self.ahead[0][1] <= self.sent:
            self.ahead_bytes -= len(self.ahead.popleft()[3])

    def read_by(self, offset: int) -> int | None:
        """When everything before `offset` had been read, if it was read ahead."""
        return next((time for _, end, time, _ in self.ahead if end >= offset), None)


class _Connection:
    __slots__ = ("held_bytes", "late_since", "peer", "request", "response", "time")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.request = _Flow("request")
        self.response = _Flow("response")
        self.time = 0  # of its latest record
        self.late_since: int | None = None  # since when a reader is ahead of its sender's records
        self.held_bytes = 0


class Streams:
    """Feed records, get `Chunk`, `Gap`, `Read` and `Ended` items; one instance for all connections of a source."""

    def __init__(self) -> None:
        self.stats = StreamStats()
        self._connections: dict[str, _Connection] = {}

    @property
    def open(self) -> int:
        """Connections that are not known to have ended."""
        return len(self._connections)

    def known(self, connection: str) -> Peer | None:
        """Who talks on this connection, as far as seen; None once it ended."""
        known = self._connections.get(connection)
        return known.peer if known is not None else None

    def feed(self, record: Record) -> list[Item]:
        self.stats.records += 1
        if not isinstance(record, Data):
            return self._event(record)
        items: list[Item] = []
        connection = self._connections.get(record.connection)
        if connection is None:
            connection = self._connection(record, items)
        connection.time = record.time
        if record.side == "client":
            known, written, read = connection.peer.client_pid, connection.request, connection.response
        else:
            known, written, read = connection.peer.server_pid, connection.response, connection.request
        if record.pid != known:
            self._met(connection, record)
        sending = record.direction == "send"
        if connection.late_since is None:
            # As nearly always: the next bytes in order, and a reader that is behind them.
            offset, length = record.offset, record.length
            if sending:
                if written.sent == offset and len(record.data) == length > 0 and written.placing is None:
                    items.append(Chunk(record.connection, written.way, record.time, offset, record.data))
                    written.sent = written.arrived = offset + length
                    return items
            elif read.placing is None:
                begin = offset + read.delta
                end = begin + length
                if read.read_to <= end <= read.arrived:
                    items.append(Read(record.connection, read.way, record.time, end, begin))
                    read.read_to = end
                    return items
        self._data(connection, written, read, record, items)
        return items

    def _event(self, record: Record) -> list[Item]:
        items: list[Item] = []
        if isinstance(record, Opened):
            self._met(self._connection(record, items), record)
        elif isinstance(record, Closed):
            self._closed(record, items)
        elif isinstance(record, Lost):
            self.stats.lost += record.count
        return items

    def _connection(self, record: Opened | Data, items: list[Item]) -> _Connection:
        connection = self._connections.get(record.connection)
        if connection is None:
            if len(self._connections) >= MAX_CONNECTIONS:
                self._evict(record.time, items)
            connection = self._connections[record.connection] = _Connection(Peer(record.connection, record.path))
        connection.time = record.time
        return connection

    @staticmethod
    def _met(connection: _Connection, record: Opened | Data) -> None:
        """Note who is at the record's end."""
        peer = connection.peer
        if record.side == "client":
            peer.client_pid, peer.client_comm = record.pid, record.comm
        else:
            peer.server_pid, peer.server_comm = record.pid, record.comm
        if not peer.path:
            peer.path = record.path

    def _evict(self, time: int, items: list[Item]) -> None:
        """Forget the connection that was silent for longest."""
        silent = min(self._connections, key=lambda name: self._connections[name].time)
        del self._connections[silent]
        self.stats.evicted += 1
        items.append(Ended(silent, time, 0, evicted=True))

    def _closed(self, record: Closed, items: list[Item]) -> None:
        connection = self._connections.get(record.connection)
        if connection is None:
            return
        if connection.late_since is not None:
            self._drain(connection, items, lost_at=record.time)
        del self._connections[record.connection]
        items.append(Ended(record.connection, record.time, record.error, by_server=record.side == "client"))

    def _data(self, connection: _Connection, written: _Flow, read: _Flow, record: Data, items: list[Item]) -> None:
        """`written`: what the record's end sends; `read`: what it reads."""
        sending = record.direction == "send"
        if sending:
            written.arrived = max(written.arrived, record.offset + record.length)
            written.pending.append(record)
            connection.held_bytes += len(record.data)
        else:
            self._read(connection, read, record, items)
        late = connection.late_since
        if not written.late and not read.late:
            self._drain(connection, items)
        elif (late is not None and record.time - late > LATE_NS) or connection.held_bytes > MAX_HELD_BYTES:
            self._drain(connection, items, lost_at=record.time)
        elif sending:
            self.stats.held += 1

    def _drain(self, connection: _Connection, items: list[Item], *, lost_at: int | None = None) -> None:
        """Emit what was held back, in the order in which it happened. `lost_at`: what is late still was lost."""
        flows: list[list[Item]] = []
        for flow in (connection.request, connection.response):
            out: list[Item] = []
            for record in flow.pending:
                self._append(connection, flow, record, out)
            flow.pending.clear()
            if flow.late and lost_at is not None:
                self._hole(connection, flow, lost_at, flow.read_to, out)
                flow.arrived = flow.read_to
            flow.trim()
            flows.append(out)
        requests, responses = flows
        at = 0
        for request in requests:
            while at < len(responses) and responses[at].time < request.time:
                items.append(responses[at])
                at += 1
            items.append(request)
        items += responses[at:]
        if not connection.request.late and not connection.response.late:
            connection.late_since = None
        connection.held_bytes = 0

    # the sender's records give the bytes

    def _append(self, connection: _Connection, flow: _Flow, record: Data, items: list[Item]) -> None:
        offset, data, time = record.offset, record.data, record.time
        end = offset + record.length
        if end <= flow.sent:
            # Given up before it came.
            self.stats.stale += 1
            return
        if flow.ahead:
            # A sender that was interrupted before its record: what was read by then was sent by then.
            time = min(time, flow.read_by(end) or time)
        if offset > flow.sent:
            self._hole(connection, flow, time, offset, items)
        else:
            data = data[flow.sent - offset :]
        if data:
            items.append(Chunk(record.connection, flow.way, time, flow.sent, data))
            if flow.placing is not None:
                self._place(connection, flow, flow.placing.sent(flow.sent, data), items)
            flow.sent += len(data)
        if flow.sent < end:
            self._hole(connection, flow, time, end, items)

    def _hole(self, connection: _Connection, flow: _Flow, time: int, until: int, items: list[Item]) -> None:
        """Emit what the reader saw of `[flow.sent, until)`, and a `Gap` for the rest. Sent before `time`, all of it."""
        name = connection.peer.connection
        for begin, _, read_at, data in flow.ahead:
            if begin >= until or flow.sent == until:
                break
            if not data or begin + len(data) <= flow.sent:
                continue
            if begin > flow.sent:
                self._gap(flow, name, min(time, read_at), begin, items)
            part = data[flow.sent - begin : until - begin]
            items.append(Chunk(name, flow.way, min(time, read_at), flow.sent, part, filled=True))
            self.stats.filled += 1
            flow.sent += len(part)
        if flow.sent < until:
            self._gap(flow, name, min(time, flow.read_by(until) or time), until, items)

    def _gap(self, flow: _Flow, name: str, time: int, until: int, items: list[Item]) -> None:
        missing = until - flow.sent
        items.append(Gap(name, flow.way, time, flow.sent, missing))
        self.stats.gaps += 1
        self.stats.gap_bytes += missing
        flow.sent = until

    # the reader's records give the times

    def _read(self, connection: _Connection, flow: _Flow, record: Data, items: list[Item]) -> None:
        if flow.placing is not None:
            self._place(connection, flow, flow.placing.read(record), items)
            return
        begin = record.offset + flow.delta
        end = begin + record.length
        items.append(Read(record.connection, flow.way, record.time, end, begin))
        flow.read_to = max(flow.read_to, end)
        if end > flow.sent:
            flow.note_ahead(begin, end, record.time, record.data)
        if flow.late and connection.late_since is None:
            connection.late_since = record.time

    def _place(self, connection: _Connection, flow: _Flow, delta: int | None, items: list[Item]) -> None:
        if delta is None or flow.placing is None:
            return
        reads, flow.placing = flow.placing.reads, None
        flow.delta = delta
        for read in reads:
            self._read(connection, flow, read, items)
