"""Serves 20,000 things in a day's ring of one real node: the rows of `truth`, again and again further back in time.

`python -m tests.web.many` says where, as the command does.
"""

import dataclasses
import logging
from collections.abc import Iterator

from tests.unit.replayed import DATA
from tracer.agent import Replayed
from tracer.capture import CaptureFile
from tracer.replay import Result, replay
from tracer.rows import Row, rfc3339
from tracer.serving import Server
from tracer.store import Store

ITEMS = 20_000
PERIOD_NS = 61_000_000_000
"""A little more than the capture lasts, so that nothing overlaps with itself."""


def earlier(row: Row, times: int) -> Row:
    """The row `times` periods earlier, with an id of its own; the ids in it still mean the original's."""
    shift = times * PERIOD_NS
    ident = f"{times}.{row.id}"
    moments = {name: rfc3339(row.start - shift) for name in ("start", "time") if name in row.fields}
    return dataclasses.replace(
        row,
        id=ident,
        start=row.start - shift,
        end=None if row.end is None else row.end - shift,
        fields={**row.fields, "id": ident, **moments},
    )


def batches(rows: list[Row]) -> Iterator[list[Row]]:
    for times in range(-(-ITEMS // len(rows))):
        yield [earlier(row, times) for row in rows][: ITEMS - times * len(rows)]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    result = Result()
    pipeline, _ = replay(CaptureFile(DATA / "truth.jsonl.gz"), result.feed, lambda _: None)
    with Store(None) as store:
        for batch in batches(result.rows()):
            store.feed(batch)
            assert store.flush()
        Server("127.0.0.1:0").serve(store, Replayed(pipeline, "many"), "serving")


if __name__ == "__main__":
    main()
