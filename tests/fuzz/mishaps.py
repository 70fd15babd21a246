"""Mishaps: real records as a source might have seen them otherwise, four bytes a mishap.

The first is what: lost, later, again, trimmed, in two, begun late, a pause, crossed. Two are which record
(little-endian). The last is how many, how far, how much.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.unit.wire.rewrite import late
from tracer.records import Data, Record

STEP = 4
MOST = 60
UNDER_WAY = 8
"""Records at a source's beginning that are not late: it could not tell them from those before it began."""

LOST, LATER, AGAIN, TRIMMED, SPLIT, BEGUN, PAUSE, CROSSED = range(8)


def befallen(records: Sequence[Record], data: bytes) -> list[Record]:
    found = list(records)
    steps = [data[at : at + STEP] for at in range(0, min(len(data), MOST * STEP) - STEP + 1, STEP)]
    for step in sorted(steps, key=lambda each: each[0] % 8 != BEGUN):  # the tracer's beginning first
        place, detail = int.from_bytes(step[1:3], "little"), step[3]
        if found:
            found = _befall(found, step[0] % 8, place % len(found), detail)
    return found


def _befall(found: list[Record], what: int, place: int, detail: int) -> list[Record]:
    record = found[place]
    if what == LOST:
        return found[:place] + found[place + 1 + detail % 4 :]
    if what == BEGUN:
        return late(found, place)
    if what == PAUSE:
        pause = detail << 24  # up to four seconds
        return found[:place] + [replace(each, time=each.time + pause) for each in found[place:]]
    if not isinstance(record, Data):
        return found
    if what in (LATER, CROSSED):
        if place < UNDER_WAY:
            return found
        # A sender's record comes after the reader's: its stamp is as late as it is.
        rest = found[:place] + found[place + 1 :]
        place = min(place + 1 + detail % 6, len(rest))
        if what == LATER and place:
            record = replace(record, time=max(record.time, rest[place - 1].time))
        return [*rest[:place], record, *rest[place:]]
    if what == AGAIN:
        return [*found[: place + 1], record, *found[place + 1 :]]
    cut = len(record.data) * detail // 256
    if what == TRIMMED:
        found[place] = replace(record, data=record.data[:cut])
    elif record.length == len(record.data) and 0 < cut < record.length:
        rest = record.data[cut:]
        found[place : place + 1] = [
            replace(record, length=cut, data=record.data[:cut]),
            replace(record, offset=record.offset + cut, length=len(rest), data=rest),
        ]
    return found


def mutate(data: bytes, size: int, chance: random.Random) -> bytes:
    """Other mishaps, at least as likely fewer as more."""
    steps = [data[at : at + STEP] for at in range(0, len(data) - STEP + 1, STEP)]
    for _ in range(chance.choice((1, 2, 3))):
        if steps and chance.random() < 0.5:
            at = chance.randrange(len(steps))
            step = bytearray(steps[at])
            step[chance.randrange(STEP)] = chance.randrange(256)
            steps[at] = bytes(step)
        else:
            steps.insert(chance.randrange(len(steps) + 1), chance.randbytes(STEP))
    most = min(chance.choice((2, 5, 15, MOST)), size // STEP)
    while len(steps) > most:
        del steps[chance.randrange(len(steps))]
    return b"".join(steps)
