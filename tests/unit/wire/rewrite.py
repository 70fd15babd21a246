"""The same conversation as a source might have seen it otherwise: cut into other pieces, later, with losses."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from tracer.records import Data, Record


def split(records: Iterable[Record], cuts: Callable[[Data], Collection[int]]) -> list[Record]:
    """Each record in pieces that end at the offsets `cuts` gives, at the same time."""
    out: list[Record] = []
    for record in records:
        if not isinstance(record, Data):
            out.append(record)
            continue
        borders = sorted({0, len(record.data), *(at for at in cuts(record) if 0 < at < len(record.data))})
        for begin, end in pairwise(borders):
            out.append(replace(record, offset=record.offset + begin, length=end - begin, data=record.data[begin:end]))
    return out


def bytewise(records: Iterable[Record]) -> list[Record]:
    return split(records, lambda record: range(len(record.data)))


def merged(records: Iterable[Record]) -> list[Record]:
    """Neighbours of one end and direction in one piece: a writer that flushes late, a reader that reads seldom."""
    out: list[Record] = []
    for record in records:
        last = out[-1] if out else None
        if (
            isinstance(record, Data)
            and isinstance(last, Data)
            and (last.connection, last.side, last.direction) == (record.connection, record.side, record.direction)
        ):
            out[-1] = replace(last, time=record.time, length=last.length + record.length, data=last.data + record.data)
        else:
            out.append(record)
    return out


def without(records: Sequence[Record], lost: Collection[int]) -> list[Record]:
    """As if the records at these places had been lost."""
    return [record for place, record in enumerate(records) if place not in lost]


def late(records: Sequence[Record], start: int) -> list[Record]:
    """As a source sees it that starts at this place: each end counts from its first record since."""
    first: dict[tuple[str, str, str], int] = {}
    out: list[Record] = []
    for record in records[start:]:
        if isinstance(record, Data):
            base = first.setdefault((record.connection, record.side, record.direction), record.offset)
            out.append(replace(record, offset=record.offset - base))
        else:
            out.append(record)
    return out


def trimmed(records: Iterable[Record], keep: int, direction: str = "recv") -> list[Record]:
    """Only the first `keep` bytes of each record of a direction: what the kernel side keeps of what is received."""
    return [
        replace(record, data=record.data[:keep])
        if isinstance(record, Data) and record.direction == direction
        else record
        for record in records
    ]
