"""Header blocks of one direction of a connection, also of one that is older than the tracer.

A lost header block may have added entries: everything known is forgotten then and a new `epoch` begins, in which the
identities of older entries (`tracer.table`) mean something else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tracer.heads import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PADDED, PRIORITY_FLAG
from tracer.http2 import Frame
from tracer.table import UNKNOWN, Field, MalformedBlock, Table

_PLAIN = END_HEADERS | PADDED | PRIORITY_FLAG

MAX_MEMO = 512
"""Blocks remembered a direction: about twenty CRI methods with a few deadlines each."""

MAX_MEMO_BLOCK = 256
"""Bytes of a block that is remembered; one of indices only has about ten."""

MAX_BLOCK = 256 * 1024
"""Bytes of one header block collected over CONTINUATION frames; grpc-go refuses more than 16 MiB, others more than
16 KiB, and no runtime's error text comes near either."""

Fields = tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Old:
    """An entry older than the tracer: which one it is, but not what it says."""

    epoch: int
    entry: int


@dataclass(slots=True)
class Block:
    """Decoded header fields in wire order. `old`: positions of fields that are only an older entry's identity.

    Of a name or value that is not known, `fields` has a text that begins with NUL. `meaning` is the next stage's: what
    it made of the block, so that it need not do so again (the same bytes give the same `Block` as long as they can).
    """

    fields: Fields
    old: tuple[tuple[int, Old], ...] = ()
    meaning: object = None


@dataclass(slots=True)
class Received:
    """One whole header block of `stream`; `block` is None when it could not be decoded.

    `begin`, `end`: ns when its first and last byte were sent (`filled`: read); `until`: offset of the byte after it.
    """

    stream: int
    block: Block | None
    end_stream: bool
    begin: int
    end: int
    until: int
    filled: bool = False


@dataclass(slots=True)
class HeaderStats:
    """`memoised`: blocks like one that was decoded before; `forgotten`: times a table became uncertain."""

    decoded: int = 0
    memoised: int = 0
    malformed: int = 0
    forgotten: int = 0


class Headers:
    """Decodes the blocks of one direction. `whole`: seen from the connection's first byte, so nothing is old."""

    __slots__ = ("_first", "_memo", "_parts", "_parts_size", "_table", "epoch", "stats")

    def __init__(self, stats: HeaderStats, *, whole: bool) -> None:
        self.stats = stats
        self.epoch = 0
        self._table = Table(whole=whole)
        self._memo: dict[bytes, Block] = {}
        self._first: Frame | None = None  # HEADERS whose CONTINUATION frames are still to come
        self._parts: list[bytes] = []
        self._parts_size = 0

    def feed(self, frame: Frame) -> Received | None:
        """A header block when this frame completes one (RFC 9113, section 6.10)."""
        if frame.type == HEADERS:
            flags, payload = frame.flags, frame.payload
            if flags & _PLAIN == END_HEADERS and self._first is None and not frame.missing:
                # As nearly always.
                block = self._memo.get(payload)
                if block is None:
                    block = self.decode(payload)
                else:
                    self.stats.memoised += 1
                end_stream = flags & END_STREAM == END_STREAM
                return Received(frame.stream, block, end_stream, frame.begin, frame.end, frame.until, frame.filled)
            fragment = block_fragment(frame)
            if self._first is not None or fragment is None:
                # A block without its end, or padding longer than the frame: the peer would have closed.
                return self._spoiled(frame)
            if frame.flags & END_HEADERS:
                return self._received(frame, self.decode(fragment), frame)
            self._first, self._parts, self._parts_size = frame, [fragment], len(fragment)
            return None
        first = self._first
        if frame.type != CONTINUATION:
            return self._spoiled(frame) if first is not None else None
        self._parts_size += len(frame.payload)
        if first is None or first.stream != frame.stream or frame.missing or self._parts_size > MAX_BLOCK:
            return self._spoiled(frame)
        self._parts.append(frame.payload)
        if not frame.flags & END_HEADERS:
            return None
        block = self.decode(b"".join(self._parts))
        self._first, self._parts = None, []
        return self._received(first, block, frame)

    @staticmethod
    def _received(first: Frame, block: Block | None, last: Frame) -> Received:
        end_stream = first.flags & END_STREAM == END_STREAM
        filled = first.filled or last.filled
        return Received(first.stream, block, end_stream, first.begin, last.end, last.until, filled)

    def _spoiled(self, frame: Frame) -> Received | None:
        self.stats.malformed += 1
        self.forget()
        return self._received(frame, None, frame) if frame.type == HEADERS else None

    def forget(self) -> None:
        """A block may be missing: nothing in the table is certain any more."""
        self._first, self._parts, self._parts_size = None, [], 0
        self.epoch += 1
        self.stats.forgotten += 1
        self._table = Table(whole=False)
        self._memo.clear()

    def decode(self, block: bytes) -> Block | None:
        """The block's fields; None (and everything forgotten) when it is malformed."""
        self.stats.decoded += 1
        table = self._table
        before = table.changed
        try:
            fields = table.decode(block)
        except MalformedBlock:
            self.stats.malformed += 1
            self.forget()
            return None
        result = Block(tuple(fields), self._old(fields))
        if table.changed != before:
            # Indices mean something else now.
            self._memo.clear()
        elif len(block) <= MAX_MEMO_BLOCK:
            if len(self._memo) >= MAX_MEMO:
                self._memo.clear()
            self._memo[block] = result
        return result

    def _old(self, fields: Sequence[Field]) -> tuple[tuple[int, Old], ...]:
        return tuple(
            (i, Old(self.epoch, int(value[1:]))) for i, (_, value) in enumerate(fields) if value[:1] == UNKNOWN
        )


def block_fragment(frame: Frame) -> bytes | None:
    """The header block fragment of a HEADERS frame without padding and priority (RFC 9113, section 6.2)."""
    payload, flags = frame.payload, frame.flags
    if frame.missing:
        return None
    if not flags & (PADDED | PRIORITY_FLAG):
        return payload
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            return None
        begin, end = 1, end - payload[0]
    if flags & PRIORITY_FLAG:
        begin += 5
    return payload[begin:end] if begin <= end else None
