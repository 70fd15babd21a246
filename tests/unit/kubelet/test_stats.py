"""Stats passes, and who asked for them."""

from tests.unit.kubelet.script import MS, S, Script, container, sandbox
from tests.unit.replayed import DATA, offset
from tracer.capture import CaptureFile
from tracer.facts import Scope
from tracer.pipeline import Pipeline

A = [sandbox("a")], [container("a")]


def settled():
    script = Script()
    for _ in range(2):
        script.relist(*A)
    script.wait(300 * MS)
    return script


def look(script, *, fs=0, traces=None):
    """One pass; `fs`: so often it asks for the images' file system first."""
    traces = iter(traces or [])
    calls = [script.call("ImageFsInfo", trace=next(traces, None)) for _ in range(fs)]
    calls.append(script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]), trace=next(traces, None)))
    calls.append(script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]), trace=next(traces, None)))
    calls.append(script.call("ListContainerStats", trace=next(traces, None)))
    return calls


def askers(script):
    script.wait(S)
    return [found.asked_by for found in script.kubelet.stats]


def test_a_look_at_the_file_system_belongs_to_the_pass_behind_it():
    script = settled()
    calls = look(script, fs=1)
    script.wait(S)
    assert {script.activity[call.id] for call in calls} == {("stats", script.activity[calls[-1].id][1])}
    (found,) = script.kubelet.stats
    assert (found.calls, found.file_system) == (calls, True)
    assert (found.start, found.end) == (calls[0].rpc.start, calls[-1].rpc.end)


def test_a_look_at_the_file_system_before_a_log_rotation_stays_alone():
    script = settled()
    fs = script.call("ImageFsInfo")
    rotation = script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]))
    script.wait(S)
    assert script.activity[fs.id][0] == "stats"
    assert script.activity[rotation.id][0] == "log_rotation"
    assert [found.calls for found in script.kubelet.stats] == [[fs]]


def test_the_eviction_manager_looks_ten_seconds_after_its_last_look_ended():
    script = settled()
    for _ in range(3):
        look(script, fs=1)
        script.wait(10 * S)
    assert askers(script) == ["eviction"] * 3


def test_its_first_look_asks_for_the_file_system_twice():
    script = settled()
    look(script, fs=2)
    assert askers(script) == ["eviction"]


def test_a_look_at_the_file_system_off_that_rhythm_is_a_summarys():
    script = settled()
    for _ in range(2):
        look(script, fs=1)
        script.wait(10 * S)
    look(script, fs=1)
    script.wait(4 * S)
    look(script, fs=1)
    assert askers(script) == ["eviction"] * 3 + ["summary"]


def test_whose_it_is_stays_unknown_before_there_is_a_rhythm():
    script = settled()
    look(script, fs=1)
    assert askers(script) == [None]


def test_two_passes_at_once_without_the_file_system_are_a_scrape_of_metrics():
    script = settled()
    look(script)
    look(script)
    assert askers(script) == ["metrics"] * 2


def test_one_alone_is_of_the_resources():
    script = settled()
    look(script)
    script.wait(15 * S)
    look(script)
    assert askers(script) == ["resource"] * 2


def test_trace_ids_decide():
    """A request of the API server has one; the kubelet's own calls have one each."""
    script = settled()
    look(script, fs=1, traces=["a" * 32] * 4)
    script.wait(15 * S)
    look(script, fs=1, traces=[letter * 32 for letter in "bcde"])
    assert askers(script) == ["summary", "eviction"]


def test_a_pass_without_its_last_step_is_a_stats_pass_too():
    script = settled()
    calls = [
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1])),
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]), status="UNAVAILABLE"),
    ]
    script.wait(S)
    assert [script.activity[call.id][0] for call in calls] == ["stats"] * 2
    assert len(list(script.kubelet.stats)) == 1


def test_a_real_eviction_manager_is_found_by_its_rhythm():
    pipeline = Pipeline(offset("truth"))
    source = CaptureFile(DATA / "truth.jsonl.gz")
    for record in source.records():
        pipeline.feed(record)
    source.close()
    (kubelet,) = pipeline.kubelets.values()
    assert [found.asked_by for found in kubelet.stats] == ["eviction"] * 6
