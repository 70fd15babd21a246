"""Calls that get their name, or their pod, after they were over: what was told stays, what shows now is told."""

import pytest

from tests.unit.kubelet.script import MS, S, Script, container, pod, sandbox
from tracer.facts import EXITED, Container, Scope

A = [sandbox("a")], [container("a")]
IDENT = Container("a-main0", "main", 0)


def nameless(script, lasts=MS):
    """A call whose method is only an old entry of its connection's table."""
    call = script.unnamed()
    script.now += lasts
    script.answer(call)
    script.now += script.gap
    return call


def name(script, call, method, **facts):
    call.method, call.method_source = method, "inferred"
    for key, value in facts.items():
        setattr(call, key, value)
    script.named(call)
    return script.activity[call.id]


def created(script):
    script.call("RunPodSandbox", pod=pod("a"), attempt=0, sandbox_id="a-s0")
    script.call("PodSandboxStatus", pod=pod("a"), sandbox_id="a-s0")
    script.image("a")
    script.call("CreateContainer", pod=pod("a"), sandbox_id="a-s0", container=IDENT, container_id=IDENT.id)


def test_a_start_that_is_named_later_completes_the_pass_that_waited_for_it():
    script = Script()
    script.relist([], [])
    created(script)
    start = nameless(script)
    for _ in range(4):
        script.relist(*A)
    (sync,) = script.passes.values()
    assert (sync.outcome, sync.complete) == ("unknown", False)
    kind, of = name(script, start, "StartContainer", pod=pod("a"), container=IDENT, container_id=IDENT.id)
    assert (kind, of) == ("sync", sync.id)
    assert (sync.outcome, sync.complete, sync.calls[-1]) == ("ok", True, start)
    assert sync.end == start.rpc.end


def test_a_start_of_another_container_does_not():
    script = Script()
    created(script)
    start = nameless(script)
    assert name(script, start, "StartContainer", pod=pod("a"), container_id="a-other0") == ("sync", None)
    assert len(script.kubelet.open_passes()[0].calls) == 5


def test_a_pass_of_which_a_call_must_follow_is_not_over_at_the_first_relist():
    """A node that stood still goes on with both at once."""
    script = Script()
    script.relist([], [])
    created(script)
    script.wait(4 * S)
    script.relist(A[0], [container("a", 0)], inspect="a")
    script.call("StartContainer", pod=pod("a"), container=IDENT, container_id=IDENT.id)
    script.pod_relist("a", *A, inspect=False)
    (sync,) = script.passes.values()
    assert (sync.outcome, sync.complete, len(sync.calls)) == ("ok", True, 6)


def test_a_call_that_comes_after_all_takes_back_that_it_was_missing():
    script = Script()
    script.relist([], [])
    created(script)
    for _ in range(4):
        script.relist(A[0], [container("a", 0)])
    (sync,) = script.passes.values()
    assert (sync.outcome, sync.complete) == ("unknown", False)
    script.call("StartContainer", pod=pod("a"), container=IDENT, container_id=IDENT.id)
    script.pod_relist("a", *A, inspect=False)
    assert list(script.passes.values()) == [sync]
    assert (sync.outcome, sync.complete) == ("ok", True)


def test_a_device_plugin_may_take_half_a_minute_after_a_pull():
    script = Script()
    script.relist([], [])
    script.call("ImageStatus", image="busybox", annotated=True, seen="seen-a")
    script.call("PullImage", image="busybox", pod=pod("a"), lasts=2 * S)
    for _ in range(20):
        script.relist([], [])
    (sync,) = script.kubelet.open_passes()
    assert [call.method for call in sync.calls] == ["ImageStatus", "PullImage"]


def test_a_sandbox_stopped_behind_its_container_makes_the_kill_a_termination():
    script = Script()
    script.relist(*A)
    kill = script.call("StopContainer", pod=pod("a"), container=IDENT, container_id=IDENT.id, grace=30)
    stop = nameless(script)
    script.relist([sandbox("a", ready=False)], [container("a", EXITED)], inspect="a")
    assert name(script, stop, "StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")[0] == "terminate"
    (sync,) = script.passes.values()
    assert (sync.kind, sync.calls) == ("terminate", [kill, stop])
    assert script.activity[kill.id] == ("terminate", sync.id)


def test_a_removal_that_is_named_later_tells_what_the_looks_before_it_were():
    script = Script()
    script.relist(*A)
    looks = [script.call("ContainerStatus", container_id="x", pod=pod("a")) for _ in range(2)]
    removal = nameless(script)
    script.wait(S)
    assert {script.activity[call.id][0] for call in (*looks, removal)} == {"unknown"}
    name(script, removal, "RemoveContainer", container_id="x", pod=pod("a"))
    assert {script.activity[call.id][0] for call in (*looks, removal)} == {"container_gc"}
    assert len({script.activity[call.id][1] for call in (*looks, removal)}) == 1


def test_a_look_that_found_nothing_any_more_belongs_to_the_same_removal():
    """The container was queued for its removal twice."""
    script = Script()
    script.relist(*A)
    looks = [script.call("ContainerStatus", container_id="x", pod=pod("a")) for _ in range(2)]
    removal = nameless(script)
    looks.append(script.call("ContainerStatus", container_id="x", pod=pod("a"), status=None))
    script.wait(S)
    name(script, removal, "RemoveContainer", container_id="x", pod=pod("a"))
    assert {script.activity[call.id][0] for call in (*looks, removal)} == {"container_gc"}


def test_the_stop_right_before_a_sandboxs_removal_is_garbage_collections():
    script = Script()
    script.relist(*A)
    early, stop, removal = nameless(script), nameless(script), nameless(script)
    name(script, early, "StopPodSandbox", pod=pod("a"), sandbox_id="b-s0")
    name(script, stop, "StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    name(script, removal, "RemovePodSandbox", pod=pod("a"), sandbox_id="a-s0")
    assert [script.activity[call.id][0] for call in (early, stop, removal)] == ["unknown", "sandbox_gc", "sandbox_gc"]


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("Status", "runtime_status"),
        ("Version", "node_version"),
        ("CreateContainer", "sync"),
        ("RemoveContainer", "container_gc"),
        ("RemovePodSandbox", "sandbox_gc"),
        ("StopPodSandbox", "unknown"),  # a pod worker's or garbage collection's
        ("ContainerStatus", "unknown"),
        ("ListContainers", "unknown"),
        ("ExecSync", "unknown"),  # a probe's or a hook's
        (None, "unknown"),
    ],
)
def test_otherwise_a_late_name_tells_only_what_the_method_tells(method, kind):
    script = Script()
    call = nameless(script)
    assert name(script, call, method) == (kind, None)


def test_a_late_exec_with_a_deadline_is_a_probe():
    script = Script()
    call = nameless(script)
    call.rpc.deadline_ns = 121 * S
    assert name(script, call, "ExecSync")[0] == "probe"


def test_what_a_call_was_told_to_be_stays_when_its_pod_is_known_later():
    script = Script()
    script.relist(*A)
    script.wait(300 * MS)
    calls = [
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1])),
        script.call("ContainerStatus", container_id="a-main0"),
    ]
    script.wait(S)
    for call in calls:
        assert script.kubelet.activity_of(call) == script.activity[call.id]
        assert script.activity[call.id][0] == "log_rotation"
