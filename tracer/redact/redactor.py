"""Overwrites secrets in records, between a source and a file: same lengths, same order, and every message still parses.

A record is held back until each of its bytes is decided, which takes until the messages in it are whole. Whatever
cannot be decided stays overwritten.
"""

from collections import deque
from dataclasses import dataclass, field

from tracer.paths import is_ttrpc
from tracer.records import Data, Exec, Record
from tracer.redact import process
from tracer.redact.content import Contents, ContentStats
from tracer.redact.cover import Cover
from tracer.redact.grpc import Grpc
from tracer.redact.ttrpc import Ttrpc
from tracer.streams import MAX_PLACING_BYTES, Chunk, Ended, Gap, Read, Streams, Way

MAX_HELD_NS = 60_000_000_000
"""A record is held no longer than this by the time of those behind it: a kubelet or runtime that stands still in the
middle of a message does so for seconds in most of the incidents that end well, for ever in the others."""

MAX_HELD_BYTES = 48 * 1024 * 1024
"""Bytes of records held: both ends of a message of 16 MiB, and what else happens meanwhile."""

MAX_UNPLACED_NS = 250_000_000
"""A reader's record waits no longer than this for its place in the sender's bytes: those records are microseconds late,
and on a socket that does not speak HTTP/2 the place is never known."""

MAX_LATE_NS = 2_000_000_000
"""A record waits no longer than this for bytes that `Streams` has not given: it takes a sender's record for lost with
the connection's first record after 200 ms, and a kubelet asks something each second."""

RECORD_BYTES = 600
"""What a held record costs besides its data (measured: the object, its numbers and its place in the queue)."""

MAX_BEHIND = 256 * 1024
"""Bytes kept of a direction for a reader that is behind; a unix socket's buffer holds 208 KiB (`wmem_default`). While
the reader's place is not known they are as many as `Streams` looks through for it."""

MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Bytes kept of all connections, more than those of held records; beyond it readers that are behind are written without
bytes."""

FORGET_BYTES = 4096
"""Bytes that nobody needs are forgotten so many at once."""

MAX_COVERED_GAP = 1024 * 1024
"""A longer gap is not filled with overwritten bytes: numbers in a record can be anything."""


@dataclass(slots=True)
class RedactStats:
    """`given_up`: records decided before their messages were whole; `unplaced`: those written without their bytes."""

    records: int = 0
    given_up: int = 0
    unplaced: int = 0
    held: int = 0  # now
    contents: ContentStats = field(default_factory=ContentStats)


@dataclass(slots=True)
class _Held:
    """A record in the queue. Its bytes are `[start, start + length)` of `cover`, None when it has none to wait for."""

    record: Record
    cover: Cover | None = None
    start: int = 0
    length: int = 0
    connection: "_Connection | None" = None
    way: Way = "request"
    placed: bool = True
    shown: bytes = b""  # without a cover: what may be seen

    @property
    def patience(self) -> int:
        """How long it may wait, ns."""
        if not self.placed:
            return MAX_UNPLACED_NS
        late = self.cover is not None and self.start + self.length > self.cover.end
        return MAX_LATE_NS if late else MAX_HELD_NS

    @property
    def decided(self) -> bool:
        return self.placed and (self.cover is None or self.cover.settled(self.start + self.length))


class _Connection:
    __slots__ = ("covers", "decoder", "unplaced")

    def __init__(self, path: str, contents: Contents) -> None:
        self.covers: dict[Way, Cover] = {"request": Cover(0), "response": Cover(0)}
        # Readers on ttrpc are never placed: `Placing` looks for frames of HTTP/2.
        self.decoder: Grpc | Ttrpc = (Ttrpc if is_ttrpc(path) else Grpc)(contents, self.covers)
        self.unplaced: dict[Way, list[_Held]] = {"request": [], "response": []}  # reader's records


class Redactor:
    """Feed records, get those that are decided, in the order they came; `flush` at the end.

    Call `expire` when time passes without records. `orderly`: lists of sandboxes and containers come out in one order,
    whatever order the runtime gave them.
    """

    def __init__(self, *, orderly: bool = False) -> None:
        self._streams = Streams()
        self._contents = Contents(orderly=orderly)
        self.stats = RedactStats(contents=self._contents.stats)
        self._connections: dict[str, _Connection] = {}
        self._queue: deque[_Held] = deque()
        self._held_bytes = 0
        self._kept_bytes = 0  # of the covers of connections that have not ended

    def feed(self, record: Record) -> list[Record]:
        self.stats.records += 1
        if isinstance(record, Data):
            held = self._data(record)
        else:
            for item in self._streams.feed(record):
                if not isinstance(item, Read):
                    self._item(item)
            held = _Held(process.clean(record) if isinstance(record, Exec) else record)
        if not self._queue and held.decided:
            # As nearly always.
            return [self._final(held)]
        self._queue.append(held)
        self._held_bytes += held.length + RECORD_BYTES
        out: list[Record] = []
        self._release(out)
        while self._held_bytes > MAX_HELD_BYTES:
            self._give_up(out)
        self._expire(record.time, out)
        return out

    @property
    def waiting_since(self) -> int | None:
        """The time of the oldest record held; every one before it was given."""
        return self._queue[0].record.time if self._queue else None

    def expire(self, now: int) -> list[Record]:
        """Records that were held for too long by now, decided or not; `now` is monotonic ns."""
        out: list[Record] = []
        self._expire(now, out)
        return out

    def flush(self) -> list[Record]:
        """Every record still held."""
        out: list[Record] = []
        while self._queue:
            self._give_up(out)
        return out

    # what the streams say

    def _data(self, record: Data) -> _Held:
        sending = record.direction == "send"
        way: Way = "request" if sending == (record.side == "client") else "response"
        before = self._connections.get(record.connection)
        cover = before.covers[way] if before is not None else None
        reads: list[Read] = []
        for item in self._streams.feed(record):
            if isinstance(item, Read):
                reads.append(item)
            else:
                self._item(item)
        connection = self._connection(record.connection)
        held = _Held(record, None, record.offset, len(record.data), connection, way)
        if not record.data:
            held.length = 0
        elif sending:
            now = connection.covers[way]
            held.cover = cover if cover is not None and record.offset < now.base else now
        elif isinstance(connection.decoder, Grpc):
            held.placed = False
            connection.unplaced[way].append(held)
        else:
            held.shown = connection.decoder.read(way, record.data)
            self.stats.unplaced += not held.shown
        for read in reads:
            self._place(connection, read)
        return held

    def _place(self, connection: _Connection, read: Read) -> None:
        """`Streams` knows where a reader stands: its reads come in order, the latest record's last."""
        waiting = connection.unplaced[read.way]
        if not waiting or waiting[-1].record.time != read.time:
            return
        latest = waiting[-1].record
        assert isinstance(latest, Data)
        delta = read.begin - latest.offset
        for held in waiting:
            assert isinstance(held.record, Data)
            held.start = held.record.offset + delta
            held.cover = connection.covers[read.way]
            held.placed = True
        waiting.clear()

    def _connection(self, name: str) -> _Connection:
        connection = self._connections.get(name)
        if connection is None:
            peer = self._streams.known(name)
            connection = self._connections[name] = _Connection(peer.path if peer else "", self._contents)
        return connection

    def _item(self, item: Chunk | Gap | Ended) -> None:
        if isinstance(item, Ended):
            ended = self._connections.pop(item.connection, None)
            if ended is not None:
                for cover in ended.covers.values():
                    self._end(cover)
            return
        connection = self._connection(item.connection)
        way, cover = item.way, connection.covers[item.way]
        gap = item.length if isinstance(item, Gap) else 0
        if gap > MAX_COVERED_GAP:
            connection.decoder.give_up(way)
            self._end(cover)
            cover = connection.covers[way] = Cover(item.offset + gap)
            gap = 0
        length = len(item.data) if isinstance(item, Chunk) else gap
        cover.extend(length)
        self._kept_bytes += length
        if self._kept_bytes > MAX_KEPT_BYTES:
            self._forget_kept()
        connection.decoder.feed(item)

    def _end(self, cover: Cover) -> None:
        cover.ended = True
        self._kept_bytes -= cover.end - cover.base

    # the queue

    def _release(self, out: list[Record]) -> None:
        queue = self._queue
        while queue:
            held = queue[0]
            if not held.decided:
                break
            queue.popleft()
            self._held_bytes -= held.length + RECORD_BYTES
            out.append(self._final(held))
        self.stats.held = len(queue)

    def _final(self, held: _Held) -> Record:
        record = held.record
        return self._covered(record, held) if isinstance(record, Data) and record.data else record

    def _covered(self, record: Data, held: _Held) -> Data:
        cover, data = held.cover, held.shown
        if cover is not None:
            data = cover.take(held.start, held.length)
            end = held.start + record.length
            if record.direction == "send":
                cover.sent = max(cover.sent, end)
            else:
                cover.read, cover.placed = max(cover.read, end), True
            if not cover.ended:
                behind = MAX_BEHIND if cover.placed else MAX_PLACING_BYTES
                until = min(cover.sent, max(cover.read, cover.sent - behind))
                if until - cover.base >= FORGET_BYTES:
                    self._kept_bytes -= cover.forget(until)
        if data == record.data:
            return record
        return Data(
            record.time, record.connection, record.side, record.direction, record.path, record.pid, record.tid,
            record.comm, record.fd, record.offset, record.length, data, record.syscall,
        )  # fmt: skip

    def _expire(self, now: int, out: list[Record]) -> None:
        while self._queue:
            held = self._queue[0]
            if now - held.record.time <= held.patience:
                return
            self._give_up(out)

    def _give_up(self, out: list[Record]) -> None:
        """Decide the oldest record held."""
        held, connection = self._queue[0], self._queue[0].connection
        if connection is not None and not held.decided:
            if held.placed:
                self.stats.given_up += 1
                connection.decoder.give_up(held.way)
            else:
                connection.unplaced[held.way].remove(held)
                held.placed = True
            if not held.decided:
                held.cover = None
            self.stats.unplaced += held.cover is None
        self._release(out)

    def _forget_kept(self) -> None:
        for connection in self._connections.values():
            for cover in connection.covers.values():
                self._kept_bytes -= cover.forget(cover.sent)
