"""Joining late: whatever was before is dropped, and what is named afterwards is named as the whole capture has it."""

import dataclasses
from collections import Counter
from functools import cache

import pytest

from tests.unit.replayed import DATA, offset
from tracer.capture import CaptureFile
from tracer.pipeline import Pipeline
from tracer.records import Data

NAMES = ["startup", "truth", "traced", "crio", "k120", "evented"]
CUTS = [0.07, 0.23, 0.41, 0.58, 0.77, 0.9]
EARLY_NS = 10_000_000_000


@cache
def records(name):
    source = CaptureFile(DATA / f"{name}.jsonl.gz")
    found = list(source.records())
    source.close()
    return found


def rows(found, name):
    """Last row of each call by (connection, stream)."""
    pipeline = Pipeline(offset(name))
    last = {}

    def keep(new):
        for row in new:
            if row.kind == "call":
                last[row.fields["connection"], row.fields["stream"]] = row

    tick = 0
    for record in found:
        keep(pipeline.feed(record))
        if record.time > tick:
            tick = record.time + 250_000_000
            keep(pipeline.tick(record.time))
    keep(pipeline.finish())
    return last


@cache
def whole(name):
    return rows(records(name), name)


def since(name, share):
    """The records after a share of the capture's time, offsets counted anew, as a tracer started then has them."""
    found = records(name)
    begin, end = found[0].time, max(record.time for record in found)
    cut = begin + share * (end - begin)
    first, kept = {}, []
    for record in found:
        if record.time < cut:
            continue
        if isinstance(record, Data):
            base = first.setdefault((record.connection, record.side, record.direction), record.offset)
            record = dataclasses.replace(record, offset=record.offset - base)  # noqa: PLW2901
        kept.append(record)
    return int(cut), kept


@pytest.mark.parametrize("share", CUTS)
@pytest.mark.parametrize("name", NAMES)
def test_no_name_or_status_is_wrong_and_nearly_all_are_known(name, share):
    cut, kept = since(name, share)
    counts = Counter()
    for key, row in rows(kept, name).items():
        fields, true = row.fields, whole(name)[key].fields
        assert fields["method"] in (None, true["method"]), key
        assert fields["status"] in (None, true["status"]), key
        assert fields["pod"] is None or fields["pod"] == true["pod"], key
        if true["service"].startswith("runtime."):
            late = row.start - offset(name) - cut > EARLY_NS
            counts[late, fields["method"] is not None] += 1
        else:
            assert fields["method"] is None or fields["method_source"] == "header", "containerd's own service"
    assert counts[False, True] >= 0.8 * (counts[False, True] + counts[False, False]), counts
    assert counts[True, True] >= 0.98 * (counts[True, True] + counts[True, False]), counts


def test_a_connection_seen_from_its_start_never_uses_inference():
    for name in NAMES:
        assert {row.fields["method_source"] for row in whole(name).values()} == {"header"}


def test_an_inferred_name_says_so():
    _, kept = since("truth", 0.3)
    sources = Counter(row.fields["method_source"] for row in rows(kept, "truth").values())
    assert sources["inferred"] > 100
    for row in rows(kept, "truth").values():
        assert (row.fields["method"] is None) == (row.fields["method_source"] == "unknown")
