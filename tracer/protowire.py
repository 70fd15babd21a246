"""Protobuf's wire format without its meaning: where the fields of a message lie (protobuf.dev, "Encoding")."""

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

MAX_VARINT = 10
"""Bytes of the longest varint: 64 bits, 7 a byte."""


Field = tuple[int, int, int]
"""A field's tag (number << 3 | wire type) and where its value begins and ends. A plain tuple: millions are made."""


class Malformed(Exception):  # noqa: N818  (never leaves the wire)
    """The bytes are not a message; `at` is where the field begins that cannot be."""

    def __init__(self, at: int = 0) -> None:
        super().__init__(at)
        self.at = at


class Cut(Malformed):
    """The bytes end within a field; `tag` and `begin` are those of a LENGTH field whose value has begun, else 0."""

    def __init__(self, at: int, tag: int = 0, begin: int = 0) -> None:
        super().__init__(at)
        self.tag = tag
        self.begin = begin


def fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Every field of the message in `data[at:end]`; raises `Malformed` where it stops being one."""
    while at < end:
        start = at
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = varint(data, start, end)
        if tag < 8:
            raise Malformed(start)  # field number 0
        wire = tag & 7
        if wire == LENGTH:
            if at >= end:
                raise Cut(start)
            length = data[at]
            if length > 0x7F:
                length, at = varint(data, at, end, start)
            else:
                at += 1
            begin, at = at, at + length
        elif wire == VARINT:
            begin = at
            while at < end and data[at] > 0x7F:
                at += 1
            at += 1
            if at - begin > MAX_VARINT:
                raise Malformed(start)
        elif wire == FIXED64:
            begin, at = at, at + 8
        elif wire == FIXED32:
            begin, at = at, at + 4
        else:
            raise Malformed(start)  # groups: proto2 only, and gone from there too
        if at > end:
            raise Cut(start, tag, begin) if wire == LENGTH else Cut(start)
        yield tag, begin, at


def varint(data: bytes, at: int, end: int, start: int | None = None) -> tuple[int, int]:
    """(value, offset of the byte after it)."""
    value = shift = 0
    begin = at
    while at < end and at - begin < MAX_VARINT:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    start = begin if start is None else start
    raise Malformed(start) if at - begin >= MAX_VARINT else Cut(start)
