"""A recording, replayed, shows what the live pipeline showed."""

import dataclasses
import gzip
import json

import pytest

from tests.unit.flight.flown import flown, records, shown
from tests.unit.replayed import offset, replayed
from tracer.capture import CaptureFile
from tracer.records import Data

NAMES = ["startup", "truth", "crio", "midstream", "restart", "slowcni", "evented", "k120"]
LISTS = ("calls", "relists", "pleg_events", "sync_passes", "steps", "exits")


def plain(found):
    """Without what redaction removes and the order within a list, which is random.

    Removed are which command a probe runs, errors of shims, and of calls that may be an exec's as their headers do not
    name their method.
    """
    found = json.loads(json.dumps({name: found[name] for name in LISTS}))
    for call in found["calls"]:
        if call["activity"]["kind"] == "probe" and call["activity"]["id"]:
            call["activity"]["id"] = call["activity"]["id"].partition("-")[0]
        call["error"] = call["error"] if call["method_source"] == "header" else None
    for step in found["steps"]:
        step["error"] = step["error"] if step["kind"] != "shim" else None
    for event in [*found["pleg_events"], *(event for relist in found["relists"] for event in relist["events"])]:
        event.pop("id")
    for relist in found["relists"]:
        relist["events"].sort(key=json.dumps)
    found["pleg_events"].sort(key=lambda event: (event["time"], json.dumps(event)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_of_everything_shows_the_same(name, tmp_path):
    assert plain(shown(flown(records(name), tmp_path, offset(name)))) == plain(replayed(name))


@pytest.mark.parametrize("name", ["truth", "startup", "crio", "k120"])
def test_of_a_ring_that_turned_over_no_relist_is_missing_and_no_name_is_wrong(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.flight.ring.AGE_NS", 20_000_000_000)
    monkeypatch.setattr("tracer.flight.ring.SEGMENT_NS", 5_000_000_000)
    kept, whole = shown(flown(records(name), tmp_path, offset(name))), replayed(name)
    begin = min(call["start"] for call in kept["calls"])
    assert begin > min(call["start"] for call in whole["calls"]), "the ring turned over"

    def relists(found):
        return [
            (relist["start"], relist["duration_seconds"], relist["outcome"])
            for relist in found["relists"]
            if relist["start"] >= begin
        ]

    assert relists(kept) == relists(whole)
    true = {call["id"]: call["method"] for call in whole["calls"]}
    named = [call["method"] for call in kept["calls"] if call["method"] is not None]
    assert all(call["method"] in (None, true[call["id"]]) for call in kept["calls"])
    assert len(named) >= 0.9 * len(kept["calls"])
    assert {call["id"] for call in kept["calls"]} >= {
        call["id"] for call in whole["calls"] if call["start"] > begin and call["service"] != "unknown"
    }


def test_seconds_after_the_freeze_are_in_the_recording_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.flight.ring.AFTER_NS", 3_000_000_000)
    found = records("truth")
    at = found[int(0.5 * (len(found) - 1))].time
    with CaptureFile(flown(found, tmp_path, 0, freeze_at=0.5)) as recording:
        last = max(record.time for record in recording.records())
    assert 2_900_000_000 < last - at < 4_000_000_000


def test_records_lose_nothing_but_secrets_and_the_order_of_lists(tmp_path):
    found = records("k120")
    with CaptureFile(flown(found, tmp_path, 0)) as recording:
        safe = list(recording.records())
    assert len(safe) == len(found)
    for before, after in zip(found, safe, strict=True):
        if isinstance(before, Data):
            assert dataclasses.replace(after, data=b"") == dataclasses.replace(before, data=b"")
            assert len(after.data) in (0, len(before.data))


def test_a_list_that_repeats_is_held_once(tmp_path):
    text = gzip.decompress(flown(records("crio"), tmp_path, 0).read_bytes())
    size = sum(len(record.data) for record in records("crio") if isinstance(record, Data))
    assert b'"ev":"piece"' in text
    assert len(text) > size / 2, "what is small is not"
