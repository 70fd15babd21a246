"""The whole pipeline: any records give rows that JSON and the store take, within every limit, and never an error."""

import json
from collections.abc import Iterator

from pydantic_core import to_json

from tests.fuzz.contract import limits
from tests.fuzz.mutation import mutate
from tests.fuzz.samples import scripts
from tests.fuzz.script import scene
from tracer import kept, rpc, streams
from tracer.facts import CriCall
from tracer.pipeline import Pipeline
from tracer.rows import Row
from tracer.store.columns import columns
from tracer.texts import MAX_ERROR

OFFSET = 1_796_000_000_000_000_000
TICK_NS = 250_000_000
OPEN = 40


def run(data: bytes) -> None:
    with limits(rpc, MAX_STREAMS=OPEN, MAX_OPEN=OPEN), limits(kept, MAX_KEPT=60_000):
        with limits(streams, MAX_HELD_BYTES=20_000, MAX_AHEAD_BYTES=20_000):
            _feed(data)


def _feed(data: bytes) -> None:
    pipeline = Pipeline(OFFSET)
    ended: dict[tuple[str, str], int] = {}
    before: dict[str, int] = {}
    tick = 0
    for record in scene(data).records:
        rows = pipeline.feed(record)
        if record.time > tick:
            tick = record.time + TICK_NS
            rows += pipeline.tick(record.time)
            rows += pipeline.open()
            to_json(pipeline.pleg())
            now = pipeline.counters()
            assert all(now[name] >= value >= 0 for name, value in before.items())
            before = now
        _check(rows, ended)
        calls: list[CriCall] = pipeline.cri.open_calls()
        assert len(calls) <= OPEN + 8
        assert len(pipeline.open_calls()) == len(calls)
    _check(pipeline.finish(), ended)
    to_json(pipeline.pleg())


def _check(rows: list[Row], ended: dict[tuple[str, str], int]) -> None:
    for row in rows:
        columns(row)
        fields = json.loads(to_json(row.fields))
        assert fields["id"] == row.id
        assert row.end is None or row.end >= row.start or row.kind != "call"
        if row.kind == "call":
            assert len(fields["error"] or "") <= MAX_ERROR
            assert (fields["method_source"] == "unknown") == (fields["method"] is None)
            assert (fields["duration_seconds"] is None) == (row.end is None)
        if row.end is not None:
            assert ended.setdefault((row.kind, row.id), row.end) == row.end, "it ended twice"


def seeds() -> Iterator[bytes]:
    return scripts(lambda _: True, 8, 60)


__all__ = ["mutate", "run", "seeds"]
