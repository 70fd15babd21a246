"""Header blocks (RFC 7541) of one direction of a connection, also of one that is older than the tracer.

An index counts from the newest entry, so entries that were added since the tracer joined are always exact. An older
entry gets a stable identity instead of a text: `entries added since - position - 1`, a negative number that stays the
same however many entries come later. A lost header block may have added entries: everything known is forgotten then
and a new `epoch` begins, in which identities of the former mean nothing.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hpack import Decoder, HPACKError, InvalidTableIndex
from hpack.table import HeaderTable

from tracer.http2 import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PADDED, PRIORITY_FLAG, Frame

logging.getLogger("hpack").setLevel(logging.WARNING)  # it formats every block for DEBUG otherwise

TABLE_SIZE = 64 * 1024
"""Size our copy of the table starts with. Too large is harmless, as an encoder never refers to an evicted entry; too
small would lose entries. Peers of the CRI use 4096."""

TABLE_LIMIT = 1 << 20
"""The largest table a peer may announce; gRPC peers announce at most 64 KiB."""

MAX_MEMO = 512
"""Blocks remembered a direction: about twenty CRI methods with a few deadlines each."""

MAX_BLOCK = 256 * 1024
"""Bytes of one header block collected over CONTINUATION frames; gRPC peers refuse more than 16 KiB by default."""

Fields = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Old:
    """An entry older than the tracer: which one it is, but not what it says."""

    epoch: int
    entry: int


@dataclass(slots=True)
class Block:
    """Decoded header fields in wire order. `old`: positions of fields that are only an older entry's identity."""

    fields: Fields
    old: tuple[tuple[int, Old], ...] = ()


@dataclass(slots=True)
class Received:
    """One whole header block of `stream`; `block` is None when it could not be decoded.

    `begin`, `end`: ns when its first and last byte were sent; `until`: offset of the byte after it.
    """

    stream: int
    block: Block | None
    end_stream: bool
    begin: int
    end: int
    until: int


@dataclass(slots=True)
class HeaderStats:
    """`memoised`: blocks decoded before; `forgotten`: times a table became uncertain."""

    blocks: int = 0
    memoised: int = 0
    malformed: int = 0
    forgotten: int = 0


class _Unknown(bytes):
    """Name or value of an older entry; its type tells it from one that a peer sent."""

    __slots__ = ()


class _JoinedTable(HeaderTable):
    """hpack's table, but an index beyond the known entries yields the identity of an older entry."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.added = 0
        self.whole = whole  # nothing older exists
        self.maxsize = TABLE_SIZE

    def get_by_index(self, index: int) -> tuple[bytes, bytes]:
        position = index - len(HeaderTable.STATIC_TABLE) - 1
        if self.whole or position < len(self.dynamic_entries):
            return super().get_by_index(index)
        entry = self.added - position - 1
        if entry >= 0:
            raise InvalidTableIndex(f"entry {entry} was evicted")
        mark = _Unknown(_UNKNOWN + b"%d" % entry)
        return (mark, mark)

    def add(self, name: bytes, value: bytes) -> None:
        self.added += 1
        super().add(name, value)


_UNKNOWN = b"\x00"  # cannot begin a header name or value (RFC 9113, section 8.2.1)


class Headers:
    """Decodes the blocks of one direction. `whole`: seen from the connection's first byte, so nothing is old."""

    __slots__ = ("_decoder", "_first", "_memo", "_parts", "_table", "epoch", "stats")

    def __init__(self, stats: HeaderStats, *, whole: bool) -> None:
        self.stats = stats
        self.epoch = 0
        self._memo: dict[bytes, Block] = {}
        self._first: Frame | None = None  # HEADERS whose CONTINUATION frames are still to come
        self._parts: list[bytes] = []
        self._start(whole=whole)

    def _start(self, *, whole: bool) -> None:
        self._table = _JoinedTable(whole=whole)
        self._decoder = Decoder()
        self._decoder.header_table = self._table
        self._decoder.max_allowed_table_size = TABLE_LIMIT
        self._memo.clear()

    def feed(self, frame: Frame) -> Received | None:
        """A header block when this frame completes one (RFC 9113, section 6.10)."""
        if frame.type == HEADERS:
            fragment = _fragment(frame)
            if self._first is not None or fragment is None:
                # A block without its end, or padding longer than the frame: the peer would have closed.
                return self._spoiled(frame)
            if frame.flags & END_HEADERS:
                end_stream = bool(frame.flags & END_STREAM)
                return Received(frame.stream, self.decode(fragment), end_stream, frame.begin, frame.end, frame.until)
            self._first, self._parts = frame, [fragment]
            return None
        if frame.type != CONTINUATION:
            return self._spoiled(frame) if self._first is not None else None
        first = self._first
        if first is None or first.stream != frame.stream or sum(map(len, self._parts)) > MAX_BLOCK:
            return self._spoiled(frame)
        self._parts.append(frame.payload)
        if not frame.flags & END_HEADERS:
            return None
        block = self.decode(b"".join(self._parts))
        self._first, self._parts = None, []
        return Received(first.stream, block, bool(first.flags & END_STREAM), first.begin, frame.end, frame.until)

    def _spoiled(self, frame: Frame) -> Received | None:
        self.stats.malformed += 1
        self.forget()
        if frame.type != HEADERS:
            return None
        return Received(frame.stream, None, bool(frame.flags & END_STREAM), frame.begin, frame.end, frame.until)

    def forget(self) -> None:
        """A block may be missing: nothing in the table is certain any more."""
        self._first, self._parts = None, []
        self.epoch += 1
        self.stats.forgotten += 1
        self._start(whole=False)

    def decode(self, block: bytes) -> Block | None:
        """The block's fields; None (and everything forgotten) when it is malformed."""
        self.stats.blocks += 1
        known = self._memo.get(block)
        if known is not None:
            self.stats.memoised += 1
            return known
        table = self._table
        before = (table.added, table.maxsize)
        try:
            result = self._block(self._decoder.decode(block, raw=True))
        except (HPACKError, IndexError, ValueError):
            self.stats.malformed += 1
            self.forget()
            return None
        if (table.added, table.maxsize) != before:
            # Indices mean something else now.
            self._memo.clear()
        else:
            if len(self._memo) >= MAX_MEMO:
                self._memo.clear()
            self._memo[block] = result
        return result

    def _block(self, raw: Iterable[Any]) -> Block:
        raw = list(raw)
        if any(text[:1] == _UNKNOWN and not isinstance(text, _Unknown) for field in raw for text in field):
            raise ValueError("a peer sent NUL")  # RFC 9113, section 8.2.1: malformed
        fields = tuple((bytes(name), bytes(value)) for name, value in raw)
        old = tuple(
            (i, Old(self.epoch, int(value[1:]))) for i, (_, value) in enumerate(fields) if value[:1] == _UNKNOWN
        )
        return Block(fields, old)


def _fragment(frame: Frame) -> bytes | None:
    """The header block fragment of a HEADERS frame without padding and priority (RFC 9113, section 6.2)."""
    payload = frame.payload
    begin, end = 0, len(payload)
    if frame.flags & PADDED:
        if not payload:
            return None
        begin, end = 1, end - payload[0]
    if frame.flags & PRIORITY_FLAG:
        begin += 5
    return payload[begin:end] if begin <= end else None
