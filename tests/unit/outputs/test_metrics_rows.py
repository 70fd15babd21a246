"""What rows become in the metrics."""

from typing import get_args

import pytest

from tests.unit.outputs.scripted import samples
from tests.unit.store.sample import NOW, SECOND, call, event, finding, relist, step, sync_pass
from tracer.outputs.prometheus import LARGEST_WINDOW_NS, REMEMBERED
from tracer.rows import Kind, rfc3339

CALLS = "criscope_cri_calls_total"
DURATIONS = "criscope_cri_call_duration_seconds"
STAGES = "criscope_cri_call_stage_seconds"
STARTS = "criscope_pod_start_stage_seconds"
RATIO = "criscope_cri_largest_list_ratio"


def test_every_kind_of_row_is_known(metrics):
    assert {*metrics._count, "finding"} == set(metrics._recent) == set(get_args(Kind))


def test_a_call_is_counted_when_it_is_over_and_once_however_often_it_comes(metrics, registry):
    metrics.feed([call("c1-1", seconds=None)])
    assert samples(registry, CALLS) == {}
    metrics.feed([call("c1-1"), call("c1-1"), call("c1-3")])
    metrics.feed([call("c1-1", activity={"kind": "stats", "id": None})])
    assert samples(registry, CALLS) == {("kubelet", "ListContainers", "OK"): 2}
    assert samples(registry, f"{DURATIONS}_count") == {("kubelet", "ListContainers"): 2}


def test_an_id_is_remembered_over_many_others_and_the_memory_of_them_is_bounded(metrics, registry):
    metrics.feed([call("first")])
    metrics.feed(call(f"c1-{n}") for n in range(REMEMBERED - 1))
    metrics.feed([call("first")])
    assert samples(registry, CALLS) == {("kubelet", "ListContainers", "OK"): REMEMBERED}
    metrics.feed(call(f"c2-{n}") for n in range(5 * REMEMBERED))
    recent = metrics._recent["call"]
    assert len(recent._young) + len(recent._old) <= 2 * REMEMBERED


def test_the_same_id_of_two_kinds_is_two_things(metrics, registry):
    metrics.feed([call("x"), relist("x"), event("x"), sync_pass("x")])
    assert sum(samples(registry, CALLS).values()) == 1
    assert sum(samples(registry, "criscope_pleg_relists_total").values()) == 1
    assert sum(samples(registry, "criscope_pleg_events_total").values()) == 1
    assert samples(registry, "criscope_sync_pass_duration_seconds_count") == {("create",): 1}


@pytest.mark.parametrize(
    ("status", "ended_by", "label"),
    [
        ("OK", "server", "OK"),
        ("DEADLINE_EXCEEDED", "server", "DEADLINE_EXCEEDED"),
        ("NOT_FOUND", "client_cancel", "NOT_FOUND"),
        (None, "server", "unknown"),
        (None, "client_cancel", "cancelled_by_client"),
        (None, "deadline", "deadline"),
        (None, "connection", "connection_lost"),
        (None, "unknown", "unknown"),
        ("<script>", "server", "unknown"),
    ],
)
def test_the_status_is_the_wires_or_what_ended_the_call(metrics, registry, status, ended_by, label):
    metrics.feed([call("c1-1", status=status, ended_by=ended_by)])
    assert samples(registry, CALLS) == {("kubelet", "ListContainers", label): 1}


@pytest.mark.parametrize(
    ("service", "method", "label"),
    [
        ("runtime.v1.RuntimeService", "Status", "Status"),
        ("runtime.v1alpha2.ImageService", "PullImage", "PullImage"),
        ("runtime.v1.RuntimeService", "OfTomorrow", "other"),
        (None, "Status", "Status"),
        (None, None, "unknown"),
        ("containerd.services.tasks.v1.Tasks", "Get", "containerd.tasks"),
        ("containerd.services.version.v1.Version", "Version", "containerd.version"),
        ("containerd.services.evil.v1.Evil", "Get", "other"),
        ("containerd.services", "Get", "other"),
        ("grpc.health.v1.Health", "Check", "other"),
        ("", "Status", "other"),
    ],
)
def test_the_method_is_the_cris_or_containerds_service(metrics, registry, service, method, label):
    metrics.feed([call("c1-1", service=service, method=method)])
    assert samples(registry, CALLS) == {("kubelet", label, "OK"): 1}


def test_calls_of_foreign_services_are_counted_but_not_timed(metrics, registry):
    metrics.feed([call("c1-1", service="containerd.services.tasks.v1.Tasks", method="Wait", api=None)])
    assert len(samples(registry, CALLS)) == 1
    assert samples(registry, f"{DURATIONS}_count") == {}


def test_a_call_that_was_lost_from_sight_is_counted_but_not_timed(metrics, registry):
    metrics.feed([call("c1-1", status=None, ended_by="unknown")])
    assert len(samples(registry, CALLS)) == 1
    assert samples(registry, f"{DURATIONS}_count") == {}


def test_streams_and_long_work_leave_the_latency_of_other_methods_as_it_was(metrics, registry):
    def unary():
        return {
            labels: value
            for labels, value in samples(registry, f"{DURATIONS}_bucket").items()
            if not {"PullImage", "StopContainer"} & set(labels)
        }

    metrics.feed(call(f"c1-{n}", seconds=0.002) for n in range(100))
    before = unary()
    metrics.feed(
        [
            call("c2-1", seconds=3600.0, method="GetContainerEvents", streaming=True, ended_by="connection"),
            call("c2-3", seconds=90.0, method="StreamContainers", streaming=True),
            call("c2-5", seconds=600.0, method="PullImage", service="runtime.v1.ImageService"),
            call("c2-7", seconds=30.0, method="StopContainer"),
        ]
    )
    assert unary() == before
    assert {labels[1] for labels in samples(registry, f"{DURATIONS}_count")} == {
        "ListContainers", "PullImage", "StopContainer",
    }  # fmt: skip
    assert {labels[0] for labels in samples(registry, f"{STAGES}_count")} == {
        "ListContainers", "PullImage", "StopContainer",
    }  # fmt: skip
    assert ("kubelet", "GetContainerEvents", "OK") in samples(registry, CALLS)


def test_a_duration_on_a_bound_counts_in_that_bucket(metrics, registry):
    metrics.feed([call("c1-1", seconds=0.01), call("c1-3", seconds=0.0101), call("c1-5", seconds=999.0)])
    buckets = {labels[1]: value for labels, value in samples(registry, f"{DURATIONS}_bucket").items()}
    assert (buckets["0.003"], buckets["0.01"], buckets["0.03"]) == (0, 1, 2)
    assert (buckets["300.0"], buckets["+Inf"]) == (2, 3)
    assert samples(registry, f"{DURATIONS}_sum") == {("kubelet", "ListContainers"): pytest.approx(999.0201)}


def test_a_stage_that_was_not_seen_is_not_zero(metrics, registry):
    metrics.feed([call("c1-1", request_wait_seconds=None, service_seconds=0.5, response_wait_seconds=None)])
    assert samples(registry, f"{STAGES}_sum") == {("ListContainers", "service"): 0.5}
    assert samples(registry, f"{STAGES}_count") == {("ListContainers", "service"): 1}


def test_bytes_are_counted_by_direction(metrics, registry):
    metrics.feed([call("c1-1"), call("c1-3")])
    assert samples(registry, "criscope_cri_message_bytes_sum") == {
        ("request", "ListContainers"): 14, ("response", "ListContainers"): 2468,
    }  # fmt: skip


def test_the_largest_list_is_shown_for_five_to_ten_minutes_of_lists(metrics, registry):
    def ratio():
        return samples(registry, RATIO)

    def listed(id_, start, size):
        metrics.feed([call(id_, start=start, response_bytes=size)])

    begun = NOW // LARGEST_WINDOW_NS * LARGEST_WINDOW_NS
    assert ratio() == {}
    listed("c1-1", begun, 8 << 20)
    listed("c1-3", begun + SECOND, 1 << 20)
    assert ratio() == {(): 0.5}
    listed("c1-5", begun + LARGEST_WINDOW_NS, 1 << 20)
    listed("c1-7", begun + SECOND, 2 << 20)  # a late one of the window before
    assert ratio() == {(): 0.5}
    listed("c1-9", begun + 2 * LARGEST_WINDOW_NS, 1 << 20)
    assert ratio() == {(): 0.125}
    listed("c1-11", begun + 9 * LARGEST_WINDOW_NS, 1 << 18)
    assert ratio() == {(): 1 / 64}
    listed("c1-13", begun, 1 << 19)  # the clock was set back
    assert ratio() == {(): 1 / 32}


def test_only_lists_make_the_largest_list(metrics, registry):
    metrics.feed([call("c1-1", method="ExecSync", response_bytes=15 << 20)])
    assert samples(registry, RATIO) == {}


def test_relists_count_with_their_parts(metrics, registry):
    metrics.feed(
        [
            relist("r1", interval_seconds=None, inspections=[], inspect_seconds=0),
            relist("r2"),
            relist("r3", seconds=None),
            relist(
                "r4", seconds=120.0, outcome="failed", list_containers_seconds=None, inspections=[], inspect_seconds=0
            ),
            relist("r5", kind="pod", interval_seconds=None),
        ]
    )
    assert samples(registry, "criscope_pleg_relists_total") == {
        ("generic", "ok"): 2, ("generic", "failed"): 1, ("pod", "ok"): 1, ("pod", "failed"): 0,
    }  # fmt: skip
    assert samples(registry, "criscope_pleg_relist_duration_seconds_count") == {("generic",): 3, ("pod",): 1}
    assert samples(registry, "criscope_pleg_relist_interval_seconds_count") == {(): 2}
    assert samples(registry, "criscope_pleg_relist_stage_seconds_count") == {
        ("list_sandboxes",): 4, ("list_containers",): 3, ("inspect",): 2,
    }  # fmt: skip


def test_events_and_passes_count_by_kind(metrics, registry):
    metrics.feed([event("e1"), event("e2", type="ContainerDied"), sync_pass("s1"), sync_pass("s2", seconds=None)])
    metrics.feed([sync_pass("s3", kind="terminate", seconds=2.0)])
    assert samples(registry, "criscope_pleg_events_total") == {
        ("ContainerStarted",): 1, ("ContainerDied",): 1, ("ContainerRemoved",): 0, ("ContainerChanged",): 0,
        ("PodSync",): 0,
    }  # fmt: skip
    assert samples(registry, "criscope_sync_pass_duration_seconds_sum") == {("create",): 0.4, ("terminate",): 2.0}


def test_calls_are_counted_by_how_their_method_is_known(metrics, registry):
    metrics.feed([call("c1-1"), call("c1-3", method=None, service=None, api=None, method_source="unknown")])
    assert samples(registry, "criscope_calls_by_method_source_total") == {
        ("header",): 1, ("inferred",): 0, ("unknown",): 1,
    }  # fmt: skip


def test_a_finding_is_counted_once_when_it_begins_and_shown_as_active_until_it_ends(metrics, registry):
    metrics.feed([finding("f1", seconds=None), finding("f1", seconds=None)])
    assert samples(registry, "criscope_findings_total") == {("shim_hung",): 1}
    assert samples(registry, "criscope_findings_active") == {("shim_hung",): 1}
    metrics.feed([finding("f1"), finding("f1")])
    assert samples(registry, "criscope_findings_total") == {("shim_hung",): 1}
    assert samples(registry, "criscope_findings_active") == {("shim_hung",): 0}


def test_steps_are_counted_by_kind_and_name_but_not_the_waiting_for_a_process_to_end(metrics, registry):
    metrics.feed([step("t1"), step("t2", kind="shim", name="Wait"), step("t3", seconds=None)])
    assert samples(registry, "criscope_runtime_step_duration_seconds_count") == {("runc", "create"): 1.0}


def begun(name, seconds):
    return {"name": name, "start": rfc3339(NOW), "duration_seconds": seconds, "calls": []}


def test_a_pods_start_is_told_by_its_stages_each_as_often_as_it_came(metrics, registry):
    stages = [begun("sandbox", 0.5), begun("sandbox_status", 0.001), *(begun("image", 2.0), begun("create", 0.1)) * 2]
    metrics.feed([sync_pass("s1", stages=[*stages, begun("start", None)], config_seen=rfc3339(NOW - 3 * SECOND))])
    assert samples(registry, f"{STARTS}_sum") == {("wait",): 3, ("sandbox",): 0.5, ("image",): 4, ("create",): 0.2}
    assert samples(registry, f"{STARTS}_count")["image",] == 2


@pytest.mark.parametrize(
    "fields",
    [{"outcome": "failed"}, {"config_seen": None}, {"config_seen": rfc3339(NOW + SECOND)}],
    ids=["it is tried again", "nobody said when", "the clock was set back"],
)
def test_how_long_a_pod_waited_for_its_sandbox_is_not_told_when(metrics, registry, fields):
    metrics.feed([sync_pass("s1", **{"config_seen": rfc3339(NOW - SECOND)} | fields)])
    assert samples(registry, f"{STARTS}_count") == {("sandbox",): 1}


def test_later_passes_are_no_start(metrics, registry):
    metrics.feed(sync_pass(kind, kind=kind) for kind in ("recreate_sandbox", "restart", "terminate"))
    assert samples(registry, f"{STARTS}_count") == {}
