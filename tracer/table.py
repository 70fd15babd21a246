"""The header table of one direction (RFC 7541), also when it is older than the tracer.

An index counts from the newest entry, so entries that were added since the tracer joined are always exact. An older
entry gets a stable identity instead of a text: `entries added since - position - 1`, a negative number that stays the
same however many entries come later.
"""

from hpack import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

DEFAULT_LIMIT = 4096
"""Size of an encoder's table until it says otherwise (RFC 9113, section 6.5.2)."""

CAPACITY = 64 * 1024
"""Size our copy of the table has at least (RFC 7541, section 4.1). Too large is harmless, as an encoder never refers
to an evicted entry; too small would lose entries."""

MAX_LIMIT = 1 << 20
"""The largest table an encoder may have; gRPC peers announce at most 64 KiB."""

MAX_NAME = 256
"""Bytes an older entry's name may have; gRPC's longest has 28."""

MAX_INTEGER = 1 << 32
"""Larger than any length or index of a block that is kept."""

UNKNOWN = b"\x00"
"""Begins what stands for an older entry's name or value; no header does (RFC 9113, section 8.2.1)."""

Field = tuple[bytes, bytes]

_STATIC: tuple[Field, ...] = HeaderTable.STATIC_TABLE
_FIRST = len(_STATIC) + 1  # index of the newest entry


class MalformedBlock(ValueError):  # noqa: N818  (never leaves `headers`)
    """A block that no encoder writes, or whose effect on the table is not certain: the table is of no more use."""


class Table:
    """`whole`: no entry is older than the tracer. `added`: entries since; `changed`: how often indices changed."""

    __slots__ = ("_entries", "_limit", "_size", "added", "changed", "whole")

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.added = 0
        self.changed = 0
        self._limit = DEFAULT_LIMIT if whole else None  # the encoder's, once it is certain
        self._entries: list[Field] = []  # newest last
        self._size = 0

    def decode(self, block: bytes) -> list[Field]:
        """The block's fields in wire order; raises `MalformedBlock`."""
        try:
            return self._decode(block)
        except (IndexError, HPACKError) as error:
            raise MalformedBlock(str(error)) from error

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        entries = self._entries
        at, end = 0, len(block)
        while at < end:
            byte = block[at]
            if byte & 0x80:  # indexed field (section 6.1)
                at += 1
                index = byte & 0x7F
                if index == 0x7F:
                    index, at = _integer(block, at, 0x7F)
                if index < _FIRST:
                    if not index:
                        raise MalformedBlock("index 0")
                    fields.append(_STATIC[index - 1])
                elif index - _FIRST < len(entries):
                    fields.append(entries[_FIRST - 1 - index])
                else:
                    fields.append(self._older(index))
            elif byte & 0x40:  # literal, to be added (section 6.2.1)
                name, value, at = self._literal(block, at, 0x3F)
                self._add(name, value)
                fields.append((name, value))
            elif byte & 0x20:  # size update (section 6.3)
                if fields:
                    raise MalformedBlock("size update after a field")
                size, at = byte & 0x1F, at + 1
                if size == 0x1F:
                    size, at = _integer(block, at, 0x1F)
                self._resize(size)
            else:  # literal, not to be added (sections 6.2.2 and 6.2.3)
                name, value, at = self._literal(block, at, 0x0F)
                fields.append((name, value))
        return fields

    def _older(self, index: int) -> Field:
        entry = self.added - (index - _FIRST) - 1
        if self.whole or entry >= 0:
            raise MalformedBlock(f"index {index} is of no entry")
        text = UNKNOWN + b"%d" % entry
        return (text, text)

    def _name(self, index: int) -> bytes:
        if index < _FIRST:
            return _STATIC[index - 1][0]
        if index - _FIRST < len(self._entries):
            return self._entries[_FIRST - 1 - index][0]
        return self._older(index)[0]

    def _literal(self, block: bytes, at: int, prefix: int) -> tuple[bytes, bytes, int]:
        index = block[at] & prefix
        at += 1
        if index == prefix:
            index, at = _integer(block, at, prefix)
        if index:
            name = self._name(index)
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        return name, value, at

    def _add(self, name: bytes, value: bytes) -> None:
        self.changed += 1
        size = 32 + len(name) + len(value)
        slack = MAX_NAME if name[:1] == UNKNOWN else 0
        if size > (self._limit or DEFAULT_LIMIT) - slack:
            # It empties the encoder's table and is not added (section 4.4). Go's encoder does not try.
            if self._limit is None or slack:
                raise MalformedBlock("an entry that may be larger than the table")
            self._empty()
            return
        self.added += 1
        self._entries.append((name, value))
        self._size += size
        evicted = 0
        while self._size > max(CAPACITY, self._limit or 0):
            old = self._entries[evicted]
            self._size -= 32 + len(old[0]) + len(old[1])
            evicted += 1
        if evicted:
            del self._entries[:evicted]

    def _resize(self, size: int) -> None:
        """Of what a smaller table evicts ours may keep too much; but nothing outlives an empty one (section 4.2)."""
        if size > MAX_LIMIT:
            raise MalformedBlock(f"a table of {size} bytes")
        self._limit = size
        if not size:
            self.changed += 1
            self._empty()

    def _empty(self) -> None:
        self._entries.clear()
        self._size = 0
        self.whole = True


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """(value, offset of the byte after it) of an integer whose prefix is full (section 5.1)."""
    value, shift = prefix, 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if value > MAX_INTEGER or shift > 32:
            raise MalformedBlock("an integer without end")
        if byte < 0x80:
            return value, at
        shift += 7


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """(text, offset of the byte after it) of a string literal (section 5.2)."""
    first = block[at]
    at += 1
    length = first & 0x7F
    if length == 0x7F:
        length, at = _integer(block, at, 0x7F)
    end = at + length
    text = block[at:end]
    if len(text) != length:
        raise MalformedBlock("a string beyond the block's end")
    if first & 0x80:
        text = decode_huffman(text)
    if text[:1] == UNKNOWN:
        raise MalformedBlock("a string that begins with NUL")
    return text, end
