"""The redactor: every record comes out, in order and with its length, whatever the bytes are; and of secrets that a
kubelet sends nothing survives, whatever is lost, late, repeated or cut."""

import random
from collections.abc import Iterator
from functools import cache

from tests.fuzz import mishaps, mutation
from tests.fuzz.contract import Growing, limits
from tests.fuzz.mutation import Change
from tests.fuzz.samples import scripts
from tests.fuzz.script import scene
from tests.unit.conversation import Conversation
from tests.unit.redact.canary import calls, leaks
from tracer.records import Data, Exec, Record
from tracer.redact import Redactor, redactor

HELD, KEPT = 20_000, 30_000
SCRIPT, PLANTED = 0, 1
CALLS = 4


def run(data: bytes) -> None:
    if data[:1] == bytes([PLANTED]):
        records = mishaps.befallen(_secrets(data[1] if len(data) > 1 else 0), data[2:])
        out = _redacted(records)
        assert leaks(out) == set()
    else:
        with limits(redactor, MAX_HELD_BYTES=HELD, MAX_KEPT_BYTES=KEPT, MAX_COVERED_GAP=4000, MAX_BEHIND=2000):
            _redacted(scene(data[1:]).records)


def _redacted(records: list[Record]) -> list[Record]:
    stage = Redactor()
    growing = Growing(stage.stats.contents)
    out: list[Record] = []
    for number, record in enumerate(records):
        out += stage.feed(record)
        if number % 16 == 0:
            growing.check()
        held = sum(each.length + redactor.RECORD_BYTES for each in stage._queue)
        assert held == stage._held_bytes <= redactor.MAX_HELD_BYTES
        assert stage.stats.held == len(stage._queue)
    out += stage.flush()
    assert len(out) == len(records)
    for record, safe in zip(records, out, strict=True):
        assert type(record) is type(safe)
        assert record.time == safe.time
        if isinstance(record, Data):
            assert isinstance(safe, Data)
            assert len(safe.data) in (0, len(record.data))
            assert (safe.connection, safe.side, safe.direction) == (record.connection, record.side, record.direction)
            assert (safe.offset, safe.length, safe.path) == (record.offset, record.length, record.path)
        elif isinstance(record, Exec):
            assert isinstance(safe, Exec)
            assert len(safe.argv) == len(record.argv)
        else:
            assert safe == record
    return out


@cache
def _secrets(which: int) -> list[Record]:
    """Some of the calls that carry secrets, after each was made once without, so that a late start finds indices."""
    every = list(calls().items())
    some = [every[(which + number) % len(every)] for number in range(CALLS)]
    talk = Conversation().open()
    for path, _ in some:
        talk.call(path)
    for path, (request, answer) in some:
        talk.call(path, request, answer)
    return talk.records


def mutate(data: bytes, size: int, seed: int, change: Change | None = None) -> bytes:
    chance = random.Random(seed)
    kind, rest = data[:1] or b"\0", data[1:]
    if chance.random() < 0.02:
        kind, rest = bytes([1 - (kind[0] & 1)]), b""
    if kind == bytes([PLANTED]):
        which = rest[:1] if rest and chance.random() < 0.9 else chance.randbytes(1)
        return kind + which + mishaps.mutate(rest[1:], size - 2, chance)
    return b"\0" + mutation.mutate(rest, size - 1, seed, change)


def seeds() -> Iterator[bytes]:
    yield from (b"\0" + each for each in scripts(lambda _: True, 6, 24))
    yield bytes([PLANTED])
    for place in range(0, 120, 9):
        for what in range(8):
            yield bytes([PLANTED, place // 9, what, place % 40, 0, 100])
