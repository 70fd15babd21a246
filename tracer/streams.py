"""Streams: from records of both ends of a connection to each direction's bytes in order.

Every byte of a connection is seen twice: when one end sends it and when the other end reads it. The sender's record
gives the bytes; the reader's gives the time at which they were read, and the bytes again where the sender's record
was lost. Both ends count bytes from their own first record; on a connection that is older than the source the two
counts differ by what was in flight then, so the reader is placed by content before its offsets mean anything.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Literal

from tracer.records import Closed, Data, Lost, Opened, Record

Way = Literal["request", "response"]
"""`request`: client to server; `response`: server to client."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, section 3.4

MAX_CONNECTIONS = 4096
"""Connections remembered at once; far above what a node's runtime sockets carry, so only leaks reach it."""

MAX_PLACING_BYTES = 64 * 1024
"""Sent bytes kept to place the reader of an old connection; a reader is rarely further behind."""

MAX_STASH_BYTES = 256 * 1024
"""Bytes kept of a reader that is ahead of the sender's records, to fill holes with."""

FRAME_HEADER = 9  # RFC 9113, section 4.1


@dataclass(slots=True)
class Chunk:
    """Bytes `[offset, offset + len(data))` of one direction, in order; `time` is when their sender had sent them."""

    connection: str
    way: Way
    time: int
    offset: int
    data: bytes


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
    """The receiving end has read everything before `offset`; `exact` is false when its records have a hole there."""

    connection: str
    way: Way
    time: int
    offset: int
    exact: bool


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

    `gaps`, `gap_bytes`: missing in both ends' records; `filled`: holes closed from the other end's record; `lost`:
    records a source said it lost; `evicted`: connections forgotten for room; `stale`: records out of order.
    """

    records: int = 0
    gaps: int = 0
    gap_bytes: int = 0
    filled: int = 0
    lost: int = 0
    evicted: int = 0
    stale: int = 0


class _Flow:
    """One direction of one connection."""

    __slots__ = ("delta", "placing", "placing_from", "read_end", "reader_seen", "sent", "stash", "stash_bytes")

    def __init__(self) -> None:
        self.sent: int | None = None  # sender's offset up to which items were emitted
        self.delta: int | None = None  # reader offset + delta = sender offset, once placed
        self.placing = b""  # sender's latest bytes, only until the reader is placed
        self.placing_from = 0
        self.read_end = 0  # reader's own offset
        self.reader_seen = False
        self.stash: deque[tuple[int, bytes, int]] = deque()  # (sender offset, bytes, time) read ahead of the sender
        self.stash_bytes = 0


class _Connection:
    __slots__ = ("peer", "request", "response")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.request = _Flow()
        self.response = _Flow()


class Streams:
    """Feed records, get `Chunk`, `Gap`, `Read` and `Ended` items; one instance for all connections of a source."""

    def __init__(self) -> None:
        self.stats = StreamStats()
        self._connections: OrderedDict[str, _Connection] = OrderedDict()

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
        if isinstance(record, Data):
            return self._data(record)
        if isinstance(record, Opened):
            return self._opened(record)
        if isinstance(record, Closed):
            return self._closed(record)
        if isinstance(record, Lost):
            self.stats.lost += record.count
        return []

    def _connection(self, name: str, path: str, items: list[Item], time: int) -> _Connection:
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = _Connection(Peer(name, path))
            if len(self._connections) > MAX_CONNECTIONS:
                oldest, _ = self._connections.popitem(last=False)
                self.stats.evicted += 1
                items.append(Ended(oldest, time, 0, evicted=True))
        else:
            self._connections.move_to_end(name)
        return connection

    def _opened(self, record: Opened) -> list[Item]:
        items: list[Item] = []
        self._ends(self._connection(record.connection, record.path, items, record.time), record)
        return items

    @staticmethod
    def _ends(connection: _Connection, record: Opened | Data) -> None:
        peer = connection.peer
        if record.side == "client":
            if record.pid != peer.client_pid:
                peer.client_pid, peer.client_comm = record.pid, record.comm
        elif record.pid != peer.server_pid:
            peer.server_pid, peer.server_comm = record.pid, record.comm
        if record.path and not peer.path:
            peer.path = record.path

    def _closed(self, record: Closed) -> list[Item]:
        if self._connections.pop(record.connection, None) is None:
            return []
        return [Ended(record.connection, record.time, record.error)]

    def _data(self, record: Data) -> list[Item]:
        items: list[Item] = []
        connection = self._connection(record.connection, record.path, items, record.time)
        self._ends(connection, record)
        if (record.side == "client") == (record.direction == "send"):
            way: Way = "request"
            flow = connection.request
        else:
            way = "response"
            flow = connection.response
        if record.direction == "send":
            self._sent(flow, way, record, items)
        else:
            self._read(flow, way, record, items)
        return items

    # the sender's records give the bytes

    def _sent(self, flow: _Flow, way: Way, record: Data, items: list[Item]) -> None:
        name, time, offset, data = record.connection, record.time, record.offset, record.data
        if flow.sent is None:
            flow.sent = offset
            flow.placing_from = offset
        if offset > flow.sent:
            self._hole(flow, way, name, time, offset, items)
        end = offset + record.length
        if offset < flow.sent:
            # Filled from the reader's records before this one arrived.
            if end <= flow.sent:
                self.stats.stale += 1
                return
            data = data[flow.sent - offset :]
            offset = flow.sent
        if data:
            items.append(Chunk(name, way, time, offset, data))
            flow.sent = offset + len(data)
        if flow.sent < end:
            self._hole(flow, way, name, time, end, items)
        if flow.delta is None:
            self._remember(flow, offset, data)
        elif flow.stash:
            self._trim(flow)

    def _hole(self, flow: _Flow, way: Way, name: str, time: int, until: int, items: list[Item]) -> None:
        """Emit what the reader saw of `[flow.sent, until)`, and a `Gap` for the rest."""
        assert flow.sent is not None
        for start, data, read_at in flow.stash:
            if start >= until:
                break
            end = start + len(data)
            if end <= flow.sent:
                continue
            if start > flow.sent:
                self._gap(flow, way, name, time, start, items)
            part = data[flow.sent - start : until - start]
            items.append(Chunk(name, way, read_at, flow.sent, part))
            self.stats.filled += 1
            flow.sent += len(part)
        self._trim(flow)
        if flow.sent < until:
            self._gap(flow, way, name, time, until, items)

    def _gap(self, flow: _Flow, way: Way, name: str, time: int, until: int, items: list[Item]) -> None:
        assert flow.sent is not None
        missing = until - flow.sent
        items.append(Gap(name, way, time, flow.sent, missing))
        self.stats.gaps += 1
        self.stats.gap_bytes += missing
        flow.sent = until
        if flow.delta is None:
            flow.placing, flow.placing_from = b"", until

    # the reader's records give the times

    def _read(self, flow: _Flow, way: Way, record: Data, items: list[Item]) -> None:
        exact = not flow.reader_seen or record.offset == flow.read_end
        flow.reader_seen = True
        flow.read_end = record.offset + record.length
        if flow.delta is None:
            flow.delta = self._place(flow, record)
            if flow.delta is None:
                return
            flow.placing = b""
        end = flow.read_end + flow.delta
        items.append(Read(record.connection, way, record.time, end, exact))
        if flow.sent is not None and end > flow.sent and record.data:
            flow.stash.append((record.offset + flow.delta, record.data, record.time))
            flow.stash_bytes += len(record.data)
            while flow.stash_bytes > MAX_STASH_BYTES:
                flow.stash_bytes -= len(flow.stash.popleft()[1])

    @staticmethod
    def _place(flow: _Flow, record: Data) -> int | None:
        """Where the reader stands in the sender's count, or None while that is not certain.

        A HEADERS frame is certain: no two of one connection are alike (stream ids never repeat; the answer's headers
        and trailers of one stream differ), so its bytes occur once. Two counts that both start with the connection's
        first bytes (the client preface; the server's SETTINGS) agree from the start.
        """
        data = record.data
        if record.offset == 0 and flow.placing_from == 0:
            first = len(PREFACE) if data.startswith(PREFACE[:3]) else FRAME_HEADER
            opening = data.startswith(PREFACE[:first]) or data[3:9] == b"\x04\x00\x00\x00\x00\x00"
            if opening and len(data) >= first and flow.placing[:first] == data[:first]:
                return 0
        if len(data) <= FRAME_HEADER or data[3] != 1 or not data[8] & 1:
            return None
        length = int.from_bytes(data[:3], "big")
        at = flow.placing.find(data[: FRAME_HEADER + length])
        if at < 0 or len(data) < FRAME_HEADER + length:
            return None
        return flow.placing_from + at - record.offset

    @staticmethod
    def _remember(flow: _Flow, offset: int, data: bytes) -> None:
        if flow.placing_from + len(flow.placing) != offset:
            flow.placing, flow.placing_from = b"", offset
        flow.placing += data
        if len(flow.placing) > MAX_PLACING_BYTES:
            cut = len(flow.placing) - MAX_PLACING_BYTES // 2
            flow.placing, flow.placing_from = flow.placing[cut:], flow.placing_from + cut

    @staticmethod
    def _trim(flow: _Flow) -> None:
        assert flow.sent is not None
        while flow.stash and flow.stash[0][0] + len(flow.stash[0][1]) <= flow.sent:
            flow.stash_bytes -= len(flow.stash.popleft()[1])
