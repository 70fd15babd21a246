"""Bytes that never crossed a socket: flipped, cut, dropped, begun in the middle. The whole pipeline survives them."""

import dataclasses
import random

import pytest

from tests.unit.replayed import offset
from tests.unit.test_late_join import NAMES, records
from tracer.pipeline import Pipeline
from tracer.records import Data


def spoiled(found, chance, rate):
    """The records with some bytes of some of them changed, some cut short, some missing."""
    for record in found:
        if not isinstance(record, Data) or not record.data or chance.random() >= rate:
            yield record
            continue
        kind = chance.randrange(3)
        if kind == 0:
            data = bytearray(record.data)
            for _ in range(chance.choice([1, 3, 20])):
                data[chance.randrange(len(data))] = chance.randrange(256)
            yield dataclasses.replace(record, data=bytes(data))
        elif kind == 1:
            yield dataclasses.replace(record, data=record.data[: chance.randrange(len(record.data))])


@pytest.mark.parametrize("seed", range(18))
def test_the_pipeline_never_raises_and_keeps_answering(seed):
    chance = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    found = records(name)
    pipeline, tick, calls = Pipeline(offset(name)), 0, set()
    begin = chance.choice([0, chance.randrange(len(found) // 2)])
    for record in spoiled(found[begin:], chance, chance.choice([0.005, 0.02, 0.1])):
        calls |= {row.id for row in pipeline.feed(record) if row.kind == "call"}
        if record.time > tick:
            tick = record.time + 250_000_000
            pipeline.tick(record.time)
            pipeline.open()
            pipeline.pleg()
    pipeline.finish()
    assert len(calls) > 20
    assert len(pipeline.rpc.open_calls()) < 50
