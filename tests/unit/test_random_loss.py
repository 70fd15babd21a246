"""Loss: whatever records are missing, nothing wrong is told; what is hurt says so."""

import random
from collections import Counter

import pytest

from tests.unit.replayed import offset, replayed
from tests.unit.test_late_join import records, rows, whole
from tracer.paths import is_ttrpc
from tracer.pipeline import Pipeline
from tracer.records import Data


def lossy(name, share, seed):
    chance = random.Random(seed)
    return [record for record in records(name) if not isinstance(record, Data) or chance.random() >= share]


SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("name", ["startup", "crio", "k120"])
def test_no_call_is_wrong(name, share, seed):
    for key, row in rows(lossy(name, share, seed), name).items():
        fields = row.fields
        assert key in whole(name), "a call that never was"
        true = whole(name)[key].fields
        for field in ("service", "method", "status", "pod", "sandbox_id", "image", "deadline_seconds"):
            assert fields[field] in (None, true[field]), (key, field)
        assert fields["container"] is None or fields["container"]["id"] in (None, true["container"]["id"]), key
        if fields["complete"]:
            assert fields["request_bytes"] <= true["request_bytes"]
        if fields["duration_seconds"] is not None and fields["ended_by"] == true["ended_by"] == "server":
            # A sender's stamp that was lost is replaced by the reader's, which may be some microseconds before it.
            assert fields["duration_seconds"] <= true["duration_seconds"] + 5e-5


@pytest.mark.parametrize("seed", SEEDS)
def test_every_event_is_one_that_happened(seed):
    real = {(e["type"], e["container_id"]) for e in replayed("truth")["pleg_events"]}
    pipeline = Pipeline(offset("truth"))
    found = [row for record in lossy("truth", 0.02, seed) for row in pipeline.feed(record)]
    events = {(r.fields["type"], r.fields["container_id"]) for r in found if r.kind == "pleg_event"}
    assert events <= real


def test_most_calls_survive_a_percent_of_loss():
    """Each byte is seen twice: the other end's record fills most holes."""
    found = rows(lossy("truth", 0.01, 1), "truth")
    named = Counter(row.fields["method"] is not None and row.fields["status"] is not None for row in found.values())
    assert named[True] > 0.9 * len(whole("truth"))


def test_decoding_recovers_within_two_seconds_of_a_burst_of_loss():
    found = [record for record in records("truth") if not isinstance(record, Data) or not is_ttrpc(record.path)]
    begin = found[0].time
    burst = (begin + 20_000_000_000, begin + 21_000_000_000)
    kept = [record for record in found if not burst[0] <= record.time < burst[1]]
    after = burst[1] + 2_000_000_000 + offset("truth")
    named = rows(kept, "truth")
    late = {key: row for key, row in whole("truth").items() if row.start > after}
    lost = [key for key, row in late.items() if named[key].fields["method"] != row.fields["method"]]
    # The first call on a connection that was silent since the loss is the one that shows the loss.
    assert len(lost) <= 1
    assert len(late) > 80
    assert [key for key in late if key not in lost and named[key].fields["status"] != late[key].fields["status"]] == []
