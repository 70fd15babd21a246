"""Counts beside the objects that a replay of a real node's capture prints."""

from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.outputs.scripted import samples, series
from tests.unit.replayed import DATA, replayed
from tracer.agent import Replayed
from tracer.capture import CaptureFile
from tracer.outputs.prometheus import Metrics, exposition
from tracer.replay import replay
from tracer.store import Store

CAPTURES = ["startup", "truth", "traced", "crio", "k120"]


def fed(name, registry):
    metrics = Metrics(registry)
    pipeline, _ = replay(CaptureFile(DATA / f"{name}.jsonl.gz"), metrics.feed, lambda _: None)
    return metrics, pipeline


def ended(rows):
    return [row for row in rows if row["duration_seconds"] is not None]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_count_is_that_of_the_replays_rows(name, registry):
    fed(name, registry)
    found = replayed(name)
    calls, relists, passes = (ended(found[kind]) for kind in ("calls", "relists", "sync_passes"))
    cri = [call for call in calls if call["api"]]

    assert sum(samples(registry, "criscope_cri_calls_total").values()) == len(calls)
    by_method = Counter()
    for (_, method, _), value in samples(registry, "criscope_cri_calls_total").items():
        if not method.startswith("containerd."):
            by_method[method] += value
    assert by_method == Counter(call["method"] for call in cri)

    durations = samples(registry, "criscope_cri_call_duration_seconds_sum")
    assert sum(durations.values()) == pytest.approx(sum(c["duration_seconds"] for c in cri if not c["streaming"]))
    assert sum(samples(registry, "criscope_pleg_relist_duration_seconds_count").values()) == len(relists)
    assert samples(registry, "criscope_pleg_relist_duration_seconds_sum")["generic",] == pytest.approx(
        sum(relist["duration_seconds"] for relist in relists if relist["kind"] == "generic")
    )
    events = Counter(event["type"] for event in found["pleg_events"])
    assert {
        kind: value for (kind,), value in samples(registry, "criscope_pleg_events_total").items() if value
    } == events
    assert sum(samples(registry, "criscope_sync_pass_duration_seconds_count").values()) == len(passes)


def test_a_replayed_captures_metrics_are_read_back_as_they_were(registry):
    metrics, pipeline = fed("traced", registry)
    with Store(None) as store:
        metrics.watch(Replayed(pipeline, "traced"), store.status)
        text, _ = exposition(registry, "")
        read = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        }
        made = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in registry.collect()
            for sample in family.samples
        }
        assert read.keys() == made.keys()
        moving = ("criscope_process_", "criscope_store_")
        assert {k: v for k, v in read.items() if not k[0].startswith(moving)} == {
            k: v for k, v in made.items() if not k[0].startswith(moving)
        }
        assert series(registry) < 1000
