"""The reconstruction beside the log of the real kubelet whose calls they are."""

import contextlib
from collections import Counter, defaultdict

import pytest

from tests.unit.replayed import monotonic, replayed, truth

NEAR = 20_000_000  # ns between a line of the log and the wire
WITH_RELISTS = ["truth", "traced", "crio", "k120", "evented"]
WHOLE = ["startup", "truth", "traced", "crio", "k120", "evented"]


def spans_near(name, sync):
    start = monotonic(name, sync["start"])
    end = start + int((sync["duration_seconds"] or 0) * 1e9)  # open at the capture's end
    spans = truth(name).spans("SyncPod", "SyncTerminatingPod")
    return [s for s in spans if s[2] == sync["pod"]["uid"] and s[0] - NEAR <= start and end <= s[1] + NEAR]


@pytest.mark.parametrize("name", WHOLE)
def test_every_call_is_named_from_its_header(name):
    assert {call["method_source"] for call in replayed(name)["calls"]} == {"header"}


@pytest.mark.parametrize("name", WITH_RELISTS)
def test_each_logged_relist_is_found_and_no_other(name):
    logged = [event["t"] for event in truth(name).of("relist")]
    found = [monotonic(name, r["start"]) for r in replayed(name)["relists"] if r["kind"] == "generic"]
    assert abs(len(found) - len(logged)) <= 1
    assert [t for t in logged if min(abs(t - f) for f in found) > NEAR] == []
    assert [f for f in found if min(abs(t - f) for t in logged) > NEAR] == []


@pytest.mark.parametrize("name", ["truth", "traced", "crio"])
def test_each_logged_relist_of_one_pod_is_found_and_no_other(name):
    logged = Counter(event["pod_uid"] for event in truth(name).of("relist_pod"))
    calls = {call["id"]: call for call in replayed(name)["calls"]}
    pods = [r for r in replayed(name)["relists"] if r["kind"] == "pod"]
    assert Counter(calls[r["calls"][0]]["pod"]["uid"] for r in pods) == logged


@pytest.mark.parametrize("name", WITH_RELISTS)
def test_relists_last_what_the_kubelet_measured_less_its_own_work(name):
    measured = truth(name).metrics["kubelet_pleg_relist_duration_seconds_sum"]
    found = sum(r["duration_seconds"] for r in replayed(name)["relists"] if r["kind"] == "generic")
    assert 0.65 <= found / measured <= 1.02


@pytest.mark.parametrize("name", ["startup", "truth", "traced", "crio", "evented"])
def test_the_pleg_events_are_those_the_kubelet_logged(name):
    logged = Counter((e["type"], e["pod_uid"], e["id"]) for e in truth(name).of("pleg_event"))
    found = Counter(
        (e["type"], e["pod_uid"], e["container_id"])
        for e in replayed(name)["pleg_events"]
        if e["type"] in ("ContainerStarted", "ContainerDied")  # it does not log the others
    )
    assert found == logged


@pytest.mark.parametrize("name", ["startup", "truth", "traced", "crio", "evented", "slowcni", "midstream"])
def test_each_sync_pass_is_one_syncpod_of_its_pod(name):
    used = Counter()
    for sync in replayed(name)["sync_passes"]:
        near = spans_near(name, sync)
        assert near, sync
        used[min(near, key=lambda span: abs(span[0] - monotonic(name, sync["start"])))] += 1
    assert max(used.values()) == 1


LOGGED = {"sync_ticker": "timer", "pleg_event": "pleg", "config": "config", "probe": "probe"}


@pytest.mark.parametrize("name", ["startup", "truth", "traced", "crio", "evented", "slowcni", "midstream"])
def test_what_triggered_a_pass_is_what_the_kubelet_logged_just_before_it(name):
    told = Counter()
    for sync in replayed(name)["sync_passes"]:
        start, pod = monotonic(name, sync["start"]), sync["pod"]
        before = [e for e in truth(name).events if e["kind"] in LOGGED and -100_000_000 < e["t"] - start < 5_000_000]
        logged = {LOGGED[e["kind"]] for e in before if pod["uid"] in str(e) or pod["name"] in str(e)}
        assert sync["trigger"] in {*logged, "unknown"}, sync
        told[sync["trigger"] != "unknown" or sync["kind"] == "terminate"] += 1
    assert not told[False]  # a termination's reason is in no call


@pytest.mark.parametrize("name", ["startup", "truth", "traced", "crio", "evented"])
def test_no_changing_call_of_the_kubelet_is_outside_a_sync_pass(name):
    changing = {"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"}
    held = {call for sync in replayed(name)["sync_passes"] for call in sync["calls"]}
    stray = [
        call["id"]
        for call in replayed(name)["calls"]
        if call["method"] in changing and call["id"] not in held and call["activity"]["kind"] != "sandbox_gc"
    ]
    assert stray == []


@pytest.fixture(scope="module")
def traces():
    """Trace id of each call of `traced`, as the kubelet sent it: calls of one pass share theirs."""
    from tests.unit.decode import events
    from tests.unit.replayed import DATA
    from tracer.capture import CaptureFile
    from tracer.paths import is_ttrpc
    from tracer.records import Data
    from tracer.rpc import Finished

    source = CaptureFile(DATA / "traced.jsonl.gz")
    with contextlib.closing(source):
        records = [r for r in source.records() if isinstance(r, Data) and not is_ttrpc(r.path)]
    return {e.call.id: e.call.trace for e in events(records)[0] if isinstance(e, Finished)}


def test_the_calls_of_a_pass_are_exactly_those_that_share_its_trace_id(traces):
    calls = {call["id"]: call for call in replayed("traced")["calls"]}
    of_trace = defaultdict(set)
    for call_id, trace in traces.items():
        # Probe workers inherit the trace of the pass that started them; a standalone kubelet opens a pass with Version.
        if calls[call_id]["method"] not in ("ExecSync", "Version"):
            of_trace[trace].add(call_id)
    passes = replayed("traced")["sync_passes"]
    assert len(passes) > 10
    for sync in passes:
        (trace,) = {traces[call] for call in sync["calls"]}
        assert of_trace[trace] == set(sync["calls"])


def test_passes_are_the_same_when_the_kubelet_sends_no_trace_ids(monkeypatch):
    """The trace ids are an answer sheet, not a crutch: most kubelets send none."""
    from tests.unit.replayed import DATA
    from tracer import rpc
    from tracer.capture import CaptureFile
    from tracer.replay import Result, replay

    monkeypatch.setattr(rpc.Call, "trace", property(lambda _: None, lambda *_: None))
    result = Result()
    pipeline, _ = replay(CaptureFile(DATA / "traced.jsonl.gz"), result.feed, lambda _: None)
    without = {p["id"]: set(p["calls"]) for p in result.object("traced", pipeline)["sync_passes"]}
    exact = {p["id"]: set(p["calls"]) for p in replayed("traced")["sync_passes"]}
    assert without.keys() == exact.keys()
    for name, calls in without.items():
        # Of several pods that start at once with one image, whose ImageStatus it was is not known: nobody's.
        assert calls <= exact[name]
    assert sum(map(len, without.values())) >= 0.9 * sum(map(len, exact.values()))


@pytest.mark.parametrize("name", ["midstream", "restart", "slowcni"])
def test_of_a_kubelet_older_than_the_capture_every_event_is_one_it_logged(name):
    logged = Counter((e["type"], e["id"]) for e in truth(name).of("pleg_event"))
    found = Counter(
        (e["type"], e["container_id"])
        for e in replayed(name)["pleg_events"]
        if e["type"] in ("ContainerStarted", "ContainerDied")
    )
    assert found - logged == Counter()
    begin = min(monotonic(name, call["start"]) for call in replayed(name)["calls"])
    later = Counter((e["type"], e["id"]) for e in truth(name).of("pleg_event") if e["t"] > begin + 5_000_000_000)
    assert sum((found & later).values()) >= 0.95 * sum(later.values())


def test_a_restarted_runtime_is_traced_by_names_from_headers_again():
    calls = [call for call in replayed("restart")["calls"] if call["client"]["comm"] == "kubelet"]
    sources = [call["method_source"] for call in sorted(calls, key=lambda call: call["start"])]
    assert "inferred" in sources
    assert sources[-30:] == ["header"] * 30


def test_the_events_of_an_evented_kubelet_come_from_its_stream():
    streams = {call["id"] for call in replayed("evented")["calls"] if call["method"] == "GetContainerEvents"}
    assert streams
    assert {e["relist"] in streams for e in replayed("evented")["pleg_events"]} == {True, False}
    (stream,) = [call for call in replayed("evented")["calls"] if call["id"] in streams]
    assert (stream["streaming"], stream["duration_seconds"], stream["ended_by"]) == (True, None, None)


@pytest.mark.parametrize("name", WHOLE)
def test_nearly_every_call_of_the_kubelet_has_an_activity(name):
    calls = [
        call
        for call in replayed(name)["calls"]
        if call["client"]["role"] == "kubelet" and call["service"].startswith("runtime.")
    ]
    unknown = [call["id"] for call in calls if call["activity"]["kind"] == "unknown"]
    assert len(unknown) <= 0.01 * len(calls)


@pytest.mark.parametrize("name", WHOLE)
def test_each_logged_housekeeping_pass_is_found_and_no_other(name):
    logged = [event["t"] for event in truth(name).of("housekeeping")]
    found = {}
    for call in replayed(name)["calls"]:
        if call["activity"]["kind"] == "housekeeping":
            found.setdefault(call["activity"]["id"], monotonic(name, call["start"]))
    assert abs(len(found) - len(logged)) <= 1
    assert [t for t in found.values() if min(abs(t - logged_at) for logged_at in logged) > NEAR] == []


def test_calls_that_share_a_trace_id_never_end_up_in_different_activities(traces):
    of_trace = defaultdict(set)
    for call in replayed("traced")["calls"]:
        # Probe workers inherit a pass's trace; a standalone kubelet opens a pass with Version.
        if call["method"] not in ("ExecSync", "Version"):
            of_trace[traces[call["id"]]].add(call["activity"]["id"])
    of_trace.pop(None, None)
    assert len(of_trace) > 300
    assert {trace: ids for trace, ids in of_trace.items() if len(ids) > 1} == {}
