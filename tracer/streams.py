"""Streams: from records of both ends of a connection to each direction's bytes in order.

Every byte of a connection is seen twice: when one end sends it and when the other end reads it. The sender's record
gives the bytes; the reader's gives the time at which they were read, and the bytes again where the sender's record
was lost. Both ends count bytes from their own first record; on a connection that is older than the source the two
counts differ by what was in flight then, so the reader is placed by content before its offsets mean anything.

A sender's record can come after the reader's of the same bytes (the sender was interrupted between the two). What an
end sends after such a read is held back until the record is there, so that no answer comes before its request.
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

MAX_STASH_BYTES = 256 * 1024
"""Bytes kept of a reader that is ahead of the sender's records, to fill holes with."""

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

    __slots__ = ("arrived", "delta", "placing", "read_to", "sent", "stash", "stash_bytes", "way")

    def __init__(self, way: Way) -> None:
        self.way: Way = way
        self.sent: int | None = None  # up to which items were emitted
        self.arrived = 0  # up to which the sender's records are there (more than `sent` when some are held)
        self.placing: Placing | None = Placing()  # until the reader is placed
        self.delta = 0  # reader's offset + delta = sender's
        self.read_to = 0  # up to which the reader has read, once placed
        self.stash: deque[tuple[int, bytes, int]] = deque()  # (offset, bytes, time) read ahead of `arrived`
        self.stash_bytes = 0

    @property
    def late(self) -> bool:
        """The reader is ahead of the sender's records."""
        return self.read_to > self.arrived

    def trim(self) -> None:
        assert self.sent is not None
        stash = self.stash
        while stash and stash[0][0] + len(stash[0][1]) <= self.sent:
            self.stash_bytes -= len(stash.popleft()[1])


class _Connection:
    __slots__ = ("held", "held_bytes", "late_since", "peer", "request", "response", "time")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.request = _Flow("request")
        self.response = _Flow("response")
        self.time = 0  # of its latest record
        self.late_since: int | None = None  # since when a reader is ahead of its sender's records
        self.held: list[tuple[_Flow, Data]] = []
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
        items: list[Item] = []
        if isinstance(record, Data):
            self._data(record, items)
        elif isinstance(record, Opened):
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
            self._give_up(connection, items, record.time)
        del self._connections[record.connection]
        items.append(Ended(record.connection, record.time, record.error))

    def _data(self, record: Data, items: list[Item]) -> None:
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
        late = connection.late_since
        if late is None:
            # As nearly always: the next bytes in order, and a reader that is behind them.
            offset, length = record.offset, record.length
            if sending:
                if written.sent == offset and len(record.data) == length and written.placing is None:
                    items.append(Chunk(record.connection, written.way, record.time, offset, record.data))
                    written.sent = written.arrived = offset + length
                    return
            elif read.placing is None:
                begin = offset + read.delta
                end = begin + length
                if read.read_to <= end <= read.arrived:
                    items.append(Read(record.connection, read.way, record.time, end, begin))
                    read.read_to = end
                    return
        elif record.time - late > LATE_NS and not (sending and written.late):
            self._give_up(connection, items, record.time)
        if not sending:
            self._read(connection, read, record, items)
        elif read.late:
            self._hold(connection, written, record, items)
        else:
            self._sent(connection, written, record, items)

    # the sender's records give the bytes

    def _sent(self, connection: _Connection, flow: _Flow, record: Data, items: list[Item]) -> None:
        if flow.late and record.offset >= flow.read_to:
            # The record that the reader was ahead of was lost; what is held was sent before this one.
            self._fill(connection, flow, record.time, items)
            self._caught_up(connection, items)
        flow.arrived = max(flow.arrived, record.offset + record.length)
        self._append(connection, flow, record, items)
        if connection.late_since is not None:
            self._caught_up(connection, items)

    def _append(self, connection: _Connection, flow: _Flow, record: Data, items: list[Item]) -> None:
        offset, data = record.offset, record.data
        end = offset + record.length
        if flow.sent is None:
            flow.sent = offset
        if end <= flow.sent:
            # Given up before it came, and filled from the reader's record.
            self.stats.stale += 1
            return
        if offset > flow.sent:
            self._hole(connection, flow, record.time, offset, items)
        else:
            data = data[flow.sent - offset :]
        if data:
            items.append(Chunk(record.connection, flow.way, record.time, flow.sent, data))
            if flow.placing is not None:
                self._place(connection, flow, flow.placing.sent(flow.sent, data), items)
            flow.sent += len(data)
        if flow.sent < end:
            self._hole(connection, flow, record.time, end, items)
        flow.trim()

    def _hole(self, connection: _Connection, flow: _Flow, time: int, until: int, items: list[Item]) -> None:
        """Emit what the reader saw of `[flow.sent, until)`, and a `Gap` for the rest."""
        assert flow.sent is not None
        name = connection.peer.connection
        for start, data, read_at in flow.stash:
            if start >= until:
                break
            if start + len(data) <= flow.sent:
                continue
            if start > flow.sent:
                self._gap(flow, name, time, start, items)
            part = data[flow.sent - start : until - start]
            items.append(Chunk(name, flow.way, read_at, flow.sent, part, filled=True))
            self.stats.filled += 1
            flow.sent += len(part)
        if flow.sent < until:
            self._gap(flow, name, time, until, items)

    def _gap(self, flow: _Flow, name: str, time: int, until: int, items: list[Item]) -> None:
        assert flow.sent is not None
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
        if end > flow.arrived:
            if connection.late_since is None:
                connection.late_since = record.time
            if record.data:
                flow.stash.append((begin, record.data, record.time))
                flow.stash_bytes += len(record.data)
                while flow.stash_bytes > MAX_STASH_BYTES:
                    flow.stash_bytes -= len(flow.stash.popleft()[1])

    def _place(self, connection: _Connection, flow: _Flow, delta: int | None, items: list[Item]) -> None:
        if delta is None or flow.placing is None:
            return
        reads, flow.placing = flow.placing.reads, None
        flow.delta = delta
        for read in reads:
            self._read(connection, flow, read, items)

    # records that are late

    def _hold(self, connection: _Connection, flow: _Flow, record: Data, items: list[Item]) -> None:
        flow.arrived = max(flow.arrived, record.offset + record.length)
        connection.held.append((flow, record))
        connection.held_bytes += len(record.data)
        self.stats.held += 1
        if connection.held_bytes > MAX_HELD_BYTES:
            self._give_up(connection, items, record.time)

    def _give_up(self, connection: _Connection, items: list[Item], time: int) -> None:
        """The late records were lost: go on with what the readers saw."""
        flows = (connection.request, connection.response)
        for flow in flows:
            if flow.late and flow.sent == flow.arrived:
                self._fill(connection, flow, time, items)
        self._release(connection, items)
        for flow in flows:
            # Of these, records were held that come before what is missing.
            if flow.late:
                self._fill(connection, flow, time, items)
        connection.late_since = None

    def _fill(self, connection: _Connection, flow: _Flow, time: int, items: list[Item]) -> None:
        """Emit what the reader is ahead by."""
        self._hole(connection, flow, time, flow.read_to, items)
        flow.arrived = flow.read_to
        flow.trim()

    def _caught_up(self, connection: _Connection, items: list[Item]) -> None:
        if not connection.request.late and not connection.response.late:
            connection.late_since = None
            self._release(connection, items)

    def _release(self, connection: _Connection, items: list[Item]) -> None:
        held, connection.held, connection.held_bytes = connection.held, [], 0
        for flow, record in held:
            self._append(connection, flow, record, items)
