"""Replay: a capture through the pipeline, as fast as it goes; its clock is the capture's own."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tracer.capture import CaptureFile
from tracer.errors import CaptureError
from tracer.pipeline import Pipeline
from tracer.records import Record
from tracer.rows import Kind, Row

TICK_NS = 250_000_000
"""Of the capture's time; as often as the agent ticks."""

_LISTS: dict[Kind, str] = {
    "call": "calls",
    "relist": "relists",
    "pleg_event": "pleg_events",
    "sync_pass": "sync_passes",
    "step": "steps",
    "finding": "findings",
    "node_event": "node_events",
    "exit": "exits",
}


class Result:
    """Collects rows into the object that `replay --json` prints (docs/rest.md)."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Kind, str], Row] = {}

    def feed(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows[row.kind, row.id] = row

    def rows(self) -> list[Row]:
        """Every row as it was last."""
        return list(self._rows.values())

    def object(self, capture: str, pipeline: Pipeline) -> dict[str, Any]:
        found: dict[str, Any] = {"capture": capture, **{name: [] for name in _LISTS.values()}}
        for row in sorted(self._rows.values(), key=lambda row: row.start):
            found[_LISTS[row.kind]].append(row.fields)
        return {**found, "stats": pipeline.counters()}


def _all(capture: CaptureFile) -> Iterator[Record]:
    with contextlib.closing(capture):
        yield from capture.records()


def replay(
    capture: CaptureFile, feed: Callable[[list[Row]], None], progress: Callable[[float], None]
) -> tuple[Pipeline, CaptureError | None]:
    """The pipeline after the capture's end, and the damage that ended it early, if any.

    `feed` gets the rows as they come; `progress` the share that was read, 0 to 1, four times a second of the capture.
    """
    pipeline = Pipeline(capture.realtime_offset_ns)
    tick = 0
    damage = None
    try:
        for record in _all(capture):
            rows: list[Row] = []
            # Time passes between records too: a kubelet that stands still leaves none.
            while record.time - tick >= TICK_NS and tick:
                tick += TICK_NS
                rows += pipeline.tick(tick)
                progress(capture.progress)
            tick = tick or record.time
            rows += pipeline.feed(record)
            if rows:
                feed(rows)
    except CaptureError as error:
        damage = error
    feed(pipeline.finish())
    return pipeline, damage
