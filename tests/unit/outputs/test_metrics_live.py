"""What a scrape shows of the moment it comes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.registry import DuplicateTimeseries

from tests.unit.outputs.scripted import IDLE, ScriptedLive, samples
from tests.unit.store.sample import NOW, SECOND, call
from tracer.outputs.prometheus import Metrics, exposition
from tracer.rows import rfc3339
from tracer.store import Status, Store

IN_FLIGHT = "criscope_cri_calls_in_flight"
OLDEST = "criscope_cri_oldest_call_age_seconds"
RELIST = "criscope_pleg_relist_in_flight_seconds"
LEFT = "criscope_pleg_seconds_until_unhealthy"
LAST = "criscope_pleg_last_relist_timestamp_seconds"
LOST = "criscope_lost_records_total"


@pytest.fixture
def live(metrics):
    live = ScriptedLive()
    metrics.watch(live, None)
    return live


def test_a_hanging_relist_and_its_call_grow_older_from_scrape_to_scrape(registry, live):
    """Scraped at 30, 60, 170 and 200 s of a hang."""
    seen = []
    for age in (30.0, 60.0, 170.0, 200.0):
        live.time = NOW + int(age * SECOND)
        live.calls = [("ListPodSandbox", "kubelet", age)]
        live.pleg_ = IDLE | {
            "stage": "list_sandboxes",
            "relist_age_seconds": age,
            "seconds_until_unhealthy": 179.0 - age,
            "last_relist_start": rfc3339(NOW - SECOND),
        }
        seen.append(tuple(samples(registry, name) for name in (RELIST, LEFT, OLDEST, LAST)))
    assert seen == [
        ({(): age}, {(): 179.0 - age}, {("ListPodSandbox",): age}, {(): (NOW - SECOND) // 1000 / 1e6})
        for age in (30.0, 60.0, 170.0, 200.0)
    ]


def test_open_calls_are_counted_by_method_and_client_and_aged_by_the_oldest(registry, live):
    live.calls = [
        ("ExecSync", "kubelet", 1.0), ("ExecSync", "kubelet", 12.0), ("ExecSync", "crictl", 7.0),
        ("Subscribe", "ctr", 99.0), ("unknown", "kubelet", 3.0),
    ]  # fmt: skip
    assert samples(registry, IN_FLIGHT) == {
        ("kubelet", "ExecSync"): 2, ("other", "ExecSync"): 1, ("other", "other"): 1, ("kubelet", "unknown"): 1,
    }  # fmt: skip
    assert samples(registry, OLDEST) == {("ExecSync",): 12.0, ("other",): 99.0, ("unknown",): 3.0}


def test_what_was_open_is_shown_as_none_open_afterwards(registry, live):
    live.calls = [("RunPodSandbox", "kubelet", 5.0)]
    assert samples(registry, IN_FLIGHT) == {("kubelet", "RunPodSandbox"): 1}
    live.calls = []
    assert samples(registry, IN_FLIGHT) == {("kubelet", "RunPodSandbox"): 0}
    assert samples(registry, OLDEST) == {("RunPodSandbox",): 0}


def test_an_endless_stream_is_in_flight_but_no_old_call(registry, live):
    live.calls = [("GetContainerEvents", "kubelet", 86_400.0)]
    assert samples(registry, IN_FLIGHT) == {("kubelet", "GetContainerEvents"): 1}
    assert samples(registry, OLDEST) == {}


def test_a_call_from_the_future_of_a_clock_set_back_is_not_negative(registry, live):
    live.calls = [("Status", "kubelet", -5.0)]
    assert samples(registry, OLDEST) == {("Status",): 0}


def test_without_a_relist_seen_nothing_is_said_about_pleg(registry, live):
    assert [samples(registry, name) for name in (RELIST, LEFT, LAST)] == [{}, {}, {}]
    live.pleg_ = IDLE | {"last_relist_start": None, "seconds_until_unhealthy": None}
    assert [samples(registry, name) for name in (RELIST, LEFT, LAST)] == [{(): 0}, {}, {}]


def test_an_unhealthy_plegs_seconds_are_negative(registry, live):
    live.pleg_ = IDLE | {"seconds_until_unhealthy": -20.5}
    assert samples(registry, LEFT) == {(): -20.5}


def test_losses_are_told_by_program_and_what_no_program_is_told_for_as_unknown(registry, live):
    live.counters_ = {"streams.lost": 7, "streams.gaps": 2}
    assert samples(registry, LOST) == {("unknown",): 7}
    assert samples(registry, "criscope_stream_gaps_total") == {(): 2}
    # The kernel's own counters are ahead of the records that tell of a loss.
    live.counters_ |= {"kernel.lost_records": 8, "kernel.lost_records.socket_send": 8,
                       "kernel.lost_records.socket_receive": 0}  # fmt: skip
    assert samples(registry, LOST) == {("socket_send",): 8, ("socket_receive",): 0, ("unknown",): 0}


def test_a_tracer_that_ended_and_a_program_that_was_refused_are_0(registry, live):
    live.health_ = {
        "tracing": False,
        "connections": 3,
        "probes": [{"program": "socket_send", "attached": True}, {"program": "process_exec", "attached": False}],
    }
    assert samples(registry, "criscope_tracing") == {(): 0}
    assert samples(registry, "criscope_connections") == {(): 3}
    assert samples(registry, "criscope_probe_attached") == {("socket_send",): 1, ("process_exec",): 0}


def test_every_counter_of_every_stage_is_exported(registry, live):
    live.counters_ = {"streams.lost": 0, "streams.gaps": 0, "rpc.calls": 5, "pipeline.busy_ns": 2_500_000_000}
    assert samples(registry, "criscope_stage_items_total") == {
        ("streams.lost",): 0, ("streams.gaps",): 0, ("rpc.calls",): 5,
    }  # fmt: skip
    assert samples(registry, "criscope_pipeline_busy_seconds_total") == {(): 2.5}


def test_the_stores_rows_and_its_trouble_are_shown(metrics, registry):
    broken = Status("full", rows=9, bytes=8, queued=7, written=6, rejected=5, dropped=4, deleted=3, failures=2)
    metrics.watch(ScriptedLive(), lambda: broken)
    states = samples(registry, "criscope_store_state")
    assert states["full",] == 1
    assert states["ok",] == 0
    assert sum(states.values()) == 1
    assert samples(registry, "criscope_store_handled_rows_total") == {
        ("written",): 6, ("rejected",): 5, ("dropped",): 4, ("deleted",): 3,
    }  # fmt: skip
    names = ("rows", "bytes", "queued_rows", "failures_total")
    assert [samples(registry, f"criscope_store_{name}")[()] for name in names] == [9, 8, 7, 2]


def test_the_state_of_a_real_store_is_one_of_those_shown(metrics, registry):
    with Store(None) as store:
        metrics.watch(ScriptedLive(), store.status)
        store.feed([call("c1-1")])
        assert store.flush()
        assert samples(registry, "criscope_store_state")["ok",] == 1
        assert samples(registry, "criscope_store_rows") == {(): 1}


def test_memory_and_processor_time_of_the_process_are_shown(metrics, registry):
    assert samples(registry, "criscope_process_resident_memory_bytes")[()] > 1 << 20
    assert samples(registry, "criscope_process_cpu_seconds_total")[()] > 0


def test_one_registry_takes_the_metrics_once(metrics, registry):
    with pytest.raises(DuplicateTimeseries):
        Metrics(registry)
    metrics.watch(ScriptedLive(), None)
    with pytest.raises(DuplicateTimeseries):
        metrics.watch(ScriptedLive(), None)


def test_scrapes_while_rows_come_are_whole(metrics, registry, live):
    """In every answer the buckets of a histogram agree with its count, and nothing is ever taken back."""

    def scrape(_):
        live.calls = [("Status", "kubelet", 1.0)]
        exposition(registry, "")
        buckets = samples(registry, "criscope_cri_call_duration_seconds_bucket")
        counts = samples(registry, "criscope_cri_calls_total")
        return sum(value for labels, value in buckets.items() if "+Inf" in labels), sum(counts.values())

    with ThreadPoolExecutor(3) as pool:
        feeding = pool.submit(
            lambda: [
                metrics.feed([call(f"c{n}-{i}", status=("OK", None)[i % 2]) for i in range(50)]) for n in range(200)
            ]
        )
        seen = list(pool.map(scrape, range(40)))
        feeding.result()
    assert all(timed % 50 == 0 and counted % 50 == 0 for timed, counted in seen)
    assert scrape(0) == (10_000, 10_000)
