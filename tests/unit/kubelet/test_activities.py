"""What else a kubelet does: which activity each call is, by the calls around it."""

import pytest

from tests.unit.kubelet.script import MS, S, Script, container, pod, sandbox
from tracer.facts import EXITED, RUNNING, UNKNOWN_STATE, Container, Scope

A = [sandbox("a")], [container("a")]
NO_FILTER = 5


def settled(**options):
    """A kubelet of one pod, after three relists."""
    script = Script(**options)
    for _ in range(3):
        script.relist(*A)
    script.wait(300 * MS)
    return script


def kinds(script, calls):
    return [script.activity.get(call.id, (None,))[0] for call in calls]


def ids(script, calls):
    return {script.activity[call.id][1] for call in calls}


def pair(script):
    return [
        script.call("ListPodSandbox", scope=Scope.READY, sandboxes=tuple(A[0])),
        script.call("ListContainers", scope=Scope.READY, containers=tuple(A[1])),
    ]


def of_a(script, method, **facts):
    ident = Container("a-main0", "main", 0)
    return script.call(method, pod=pod("a"), container=ident, container_id=ident.id, **facts)


def sweep(script, containers=A[1]):
    return script.call("ListContainers", scope=Scope.ALL, containers=tuple(containers))


# requests of the API server


@pytest.mark.parametrize("method", ["Exec", "Attach", "ExecSync", "CheckpointContainer"])
def test_a_request_has_the_two_lists_that_it_begins_with(method):
    script = settled()
    calls = [*pair(script), of_a(script, method, **({"timeout": 0} if method == "ExecSync" else {}))]
    assert kinds(script, calls) == ["exec_api"] * 3
    assert len(ids(script, calls)) == 1
    assert script.passes == {}


def test_a_port_forward_has_the_list_of_its_pods_sandboxes_too():
    script = settled()
    calls = pair(script)
    calls.append(script.call("ListPodSandbox", scope=Scope.POD, pod_uid="uid-a", pod=pod("a"), sandboxes=tuple(A[0])))
    calls.append(script.call("PortForward", pod=pod("a"), sandbox_id="a-s0"))
    script.wait(S)
    assert kinds(script, calls) == ["exec_api"] * 4
    assert [relist.kind for relist in script.relists] == ["generic"] * 3


def test_housekeeping_before_a_relist_of_one_pod_stays_housekeeping():
    script = settled()
    calls = pair(script)
    script.pod_relist("a", *A, inspect=False)
    assert kinds(script, calls) == ["housekeeping"] * 2
    assert script.relists[-1].kind == "pod"


def test_each_pair_of_a_kubelet_that_lists_once_is_a_pass_of_its_own():
    script = settled()
    first, second = pair(script), [*pair(script), of_a(script, "Exec")]
    assert kinds(script, first) == ["housekeeping"] * 2
    assert kinds(script, second) == ["exec_api"] * 3


def test_the_status_of_one_container_alone_is_a_look_at_its_logs():
    script = settled()
    script.wait(10 * S)
    calls = []
    for _ in range(3):
        calls.append(of_a(script, "ContainerStatus"))
        script.wait(S)
    assert kinds(script, calls) == ["exec_api"] * 3


def test_it_may_be_the_rest_of_another_run_that_is_under_way():
    script = settled()
    script.wait(10 * S)
    sweep(script, [])
    call = of_a(script, "ContainerStatus")
    script.wait(S)
    assert kinds(script, [call]) == ["unknown"]


def test_it_may_be_anything_when_bytes_were_lost_a_moment_ago():
    script = settled()
    script.kubelet.lost_at = script.now
    call = of_a(script, "ContainerStatus")
    script.wait(S)
    assert kinds(script, [call]) == ["unknown"]


def test_and_when_a_removal_would_have_no_name():
    script = settled()
    script.wait(10 * S)
    call = script.send("ContainerStatus", container_id="a-main0")
    call.method_source = "inferred"
    script.answer(call)
    script.wait(S)
    assert kinds(script, [call]) == ["unknown"]


# hooks


def test_a_hook_after_a_start_is_of_its_pass_although_housekeeping_has_just_listed():
    script = settled()
    script.start("a", of="second")
    housekeeping = pair(script)
    ident = Container("a-second0", "second", 0)
    hook = script.call("ExecSync", pod=pod("a"), container=ident, container_id=ident.id, timeout=0)
    assert kinds(script, [*housekeeping, hook]) == ["housekeeping", "housekeeping", "lifecycle_hook"]
    assert script.activity[hook.id][1] == next(iter(script.passes))


def test_a_hook_before_a_stop_is_of_its_pass_although_housekeeping_had_just_listed():
    script = settled()
    housekeeping = pair(script)
    hook = of_a(script, "ExecSync", timeout=0, lasts=S)
    of_a(script, "StopContainer", grace=29)
    script.call("StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    assert kinds(script, [*housekeeping, hook]) == ["housekeeping", "housekeeping", "lifecycle_hook"]
    (sync,) = script.passes.values()
    assert [call.method for call in sync.calls] == ["ExecSync", "StopContainer", "StopPodSandbox"]
    assert sync.kind == "terminate"


def test_a_hook_that_outlasts_the_grace_is_followed_by_the_stop():
    script = settled()
    ident = Container("a-main0", "main", 0)
    hook = script.send("ExecSync", pod=pod("a"), container=ident, container_id=ident.id, timeout=0)
    script.wait(30 * S)
    of_a(script, "StopContainer", grace=2)
    script.answer(hook, "UNKNOWN")
    (sync,) = script.passes.values()
    assert {call.method for call in sync.calls} == {"ExecSync", "StopContainer"}
    assert script.activity[hook.id][0] == "lifecycle_hook"


def test_a_hook_alone_is_a_pass_of_which_something_is_missing():
    script = settled()
    of_a(script, "ExecSync", timeout=0)
    for _ in range(3):
        script.relist(*A)
    (sync,) = script.passes.values()
    assert (sync.outcome, sync.complete) == ("unknown", False)


# sweeps over all containers


def test_log_rotation_and_a_removal_at_the_same_time_are_kept_apart():
    """Log rotation asks for running containers only; the one that just died is removed by another goroutine."""
    script = settled()
    listed = [container("a"), container("a", EXITED, of="old")]
    rotation = [sweep(script, listed), of_a(script, "ContainerStatus")]
    removal = [script.call("ContainerStatus", container_id="a-old0", pod=pod("a")) for _ in range(2)]
    removal.append(script.call("RemoveContainer", container_id="a-old0", pod=pod("a")))
    script.wait(S)
    assert kinds(script, rotation) == ["log_rotation"] * 2
    assert len(ids(script, rotation)) == 1
    assert kinds(script, removal) == ["container_gc"] * 3


def test_a_log_that_is_rotated_belongs_to_the_look_at_it():
    script = settled()
    calls = [sweep(script), of_a(script, "ContainerStatus"), of_a(script, "ReopenContainerLog")]
    script.wait(S)
    assert kinds(script, calls) == ["log_rotation"] * 3
    assert len(ids(script, calls)) == 1


def test_garbage_collection_stops_what_the_runtime_knows_nothing_of_before_it_removes_it():
    script = settled()
    listed = [container("a"), container("a", UNKNOWN_STATE, of="lost")]
    lost = {"container_id": "a-lost0", "pod": pod("a")}
    calls = [
        sweep(script, listed),
        script.call("ContainerStatus", **lost),
        script.call("StopContainer", **lost),
        script.call("ContainerStatus", **lost),
        script.call("ContainerStatus", **lost),
        script.call("RemoveContainer", **lost),
        sweep(script),
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0])),
    ]
    script.wait(S)
    assert kinds(script, calls) == ["container_gc"] * 8
    assert len(ids(script, calls)) == 1
    assert script.passes == {}


def test_a_pod_that_goes_while_sandboxes_are_collected_is_stopped_by_its_own_worker():
    script = settled()
    of_a(script, "StopContainer", grace=2)
    dead = sandbox("old", ready=False)
    calls = [sweep(script), sweep(script)]
    calls.append(script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=(*A[0], dead)))
    calls.append(script.call("StopPodSandbox", pod=pod("old"), sandbox_id=dead.id))
    calls.append(script.call("RemovePodSandbox", pod=pod("old"), sandbox_id=dead.id))
    stop = script.call("StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    script.wait(S)
    assert kinds(script, calls) == ["container_gc"] * 3 + ["sandbox_gc"] * 2
    assert kinds(script, [stop]) == ["terminate"]


def test_what_starts_at_the_same_moment_is_kept_apart():
    """Garbage collection, image detection and the first relist all begin when the kubelet does."""
    script = Script(fresh=True)
    gc = [script.send("ListContainers", scope=Scope.ALL, containers=())]
    first = script.send("ListPodSandbox", scope=Scope.ALL, sandboxes=())
    images = [script.send("ListImages"), script.send("ListImages")]
    script.now += MS // 4
    script.answer(first)
    script.now += MS // 5
    second = script.send("ListContainers", scope=Scope.ALL, containers=())
    script.now += MS // 4
    script.answer(images[0])
    script.answer(images[1])
    script.now += MS // 10
    script.answer(gc[0])
    script.answer(second)
    script.now += MS // 10
    images.append(script.send("ListPodSandbox", scope=Scope.ALL, sandboxes=()))
    gc.append(script.send("ListContainers", scope=Scope.ALL, containers=()))
    script.now += MS // 10
    script.answer(images[-1])
    script.answer(gc[-1])
    script.now += MS // 10
    images.append(script.send("ListContainers", scope=Scope.ALL, containers=()))
    gc.append(script.send("ListPodSandbox", scope=Scope.ALL, sandboxes=()))
    script.now += MS // 10
    script.answer(images[-1])
    script.answer(gc[-1])
    script.wait(S)
    assert kinds(script, [first, second]) == ["relist"] * 2
    assert kinds(script, gc) == ["container_gc"] * 3
    assert kinds(script, images) == ["image_gc"] * 4


def test_the_container_manager_is_known_by_lists_without_any_filter():
    script = settled()
    calls = [
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]), size=NO_FILTER),
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]), size=NO_FILTER),
    ]
    rotation = sweep(script)
    script.wait(S)
    assert kinds(script, calls) == ["startup"] * 2
    assert kinds(script, [rotation]) == ["log_rotation"]


def test_a_stats_pass_is_known_by_the_filter_of_a_kubelet_whose_relists_have_none():
    """Kubelets up to 1.35: a sandbox list without a filter is the PLEG's, GC's or the image manager's."""
    script = Script()
    for _ in range(2):
        script.wait(S)
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]), size=NO_FILTER)
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]))
    script.wait(S)
    calls = [
        sweep(script),
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0])),
        script.call("ListContainerStats"),
    ]
    script.wait(S)
    assert kinds(script, calls) == ["stats"] * 3
    assert len(script.relists) == 2


def test_image_collection_has_its_file_system_and_its_removals():
    script = settled()
    script.wait(300 * MS)
    calls = [
        script.call("ListImages"),
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0])),
        sweep(script),
        of_a(script, "ContainerStatus"),
        script.call("RemoveImage", image="old"),
        script.call("ImageFsInfo"),
        script.call("RemoveImage", image="unused"),
    ]
    script.wait(S)
    assert kinds(script, calls) == ["image_gc"] * 7
    assert len(ids(script, calls)) == 1


# what is the kubelet's start


def test_the_calls_of_a_start_are_its_own():
    script = Script(fresh=True)
    calls = [
        script.call("Version", size=5),
        script.call("ImageFsInfo"),
        *[script.call("RuntimeConfig") for _ in range(3)],
        script.call("Version", size=12),
        script.call("UpdateRuntimeConfig"),
    ]
    later = [script.call("Status"), script.call("Version", size=12), script.call("ImageFsInfo")]
    script.wait(S)
    assert kinds(script, calls) == ["startup"] * 7
    assert kinds(script, later) == ["runtime_status", "node_version", "stats"]


# pods


def test_a_resize_may_begin_with_a_look_at_the_pods_memory():
    script = settled()
    look = script.call("ListContainerStats", pod=pod("a"), sandbox_id="a-s0")
    script.call("UpdatePodSandboxResources", pod=pod("a"), sandbox_id="a-s0")
    of_a(script, "UpdateContainerResources")
    script.call("UpdatePodSandboxResources", pod=pod("a"), sandbox_id="a-s0", status="UNIMPLEMENTED")
    script.relist(*A)
    (sync,) = script.passes.values()
    assert sync.kind == "resize"
    assert [stage.name for stage in sync.stages] == ["resize"]
    assert sync.calls[0] is look


def test_all_containers_restarted_at_once_are_stopped_and_removed_in_the_pods_pass():
    script = settled()
    of_a(script, "StopContainer", grace=2)
    removal = of_a(script, "RemoveContainer")
    script.relist(A[0], [])
    (sync,) = script.passes.values()
    assert sync.calls[-1] is removal
    assert [stage.name for stage in sync.stages] == ["stop_container", "remove"]


def test_a_pod_nobody_knows_is_killed_after_a_look_and_without_a_check():
    script = settled()
    pair(script)
    script.wait(100 * MS)
    look = of_a(script, "ContainerStatus")
    of_a(script, "StopContainer", grace=2)
    script.call("StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    script.relist([sandbox("a", ready=False)], [container("a", EXITED)], inspect="a")
    (sync,) = script.passes.values()
    assert (sync.kind, sync.outcome, sync.complete) == ("terminate", "ok", True)
    assert sync.calls[0] is look
    assert script.activity[look.id][0] == "terminate"


def test_the_kubelet_of_1_35_checks_a_termination_with_the_sandboxes_status_between_its_lists():
    script = settled()
    of_a(script, "StopContainer", grace=30)
    script.call("StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    dead = (sandbox("a", ready=False),), (container("a", EXITED),)
    script.call("ListPodSandbox", scope=Scope.POD, pod_uid="uid-a", pod=pod("a"), sandboxes=dead[0])
    script.call("PodSandboxStatus", pod=pod("a"), sandbox_id="a-s0")
    script.call("ListContainers", scope=Scope.POD, pod_uid="uid-a", pod=pod("a"), containers=dead[1])
    of_a(script, "ContainerStatus")
    (sync,) = script.passes.values()
    assert (sync.outcome, len(sync.calls)) == ("ok", 6)
    assert [stage.name for stage in sync.stages] == ["stop_container", "stop_sandbox", "check"]


def test_with_trace_ids_the_lists_that_find_a_pods_address_for_a_hook_are_of_its_pass():
    script = settled()
    trace = "a" * 32
    ident = Container("a-main0", "main", 0)
    script.call("CreateContainer", pod=pod("a"), container=ident, container_id=ident.id, trace=trace)
    script.call("StartContainer", pod=pod("a"), container=ident, container_id=ident.id, trace=trace)
    uid = {"scope": Scope.POD, "pod_uid": "uid-a", "pod": pod("a"), "trace": trace}
    lists = [
        script.call("ListPodSandbox", sandboxes=tuple(A[0]), **uid),
        script.call("ListContainers", containers=tuple(A[1]), **uid),
        script.call("PodSandboxStatus", pod=pod("a"), sandbox_id="a-s0", trace=trace),
        script.call("ContainerStatus", pod=pod("a"), container_id="a-main0", trace=trace),
    ]
    script.wait(S)
    assert kinds(script, lists) == ["sync"] * 4
    assert len(script.relists) == 3
    (sync,) = script.kubelet.open_passes()
    assert [stage.name for stage in sync.stages] == ["create", "start", "hook"]


@pytest.mark.parametrize("state", [RUNNING, EXITED])
def test_a_list_that_was_not_seen_whole_still_opens_what_follows_it(state):
    script = settled()
    calls = [script.call("ListContainers", scope=Scope.ALL), of_a(script, "ContainerStatus")]
    if state == EXITED:
        calls += [of_a(script, "ContainerStatus"), of_a(script, "RemoveContainer")]
    script.wait(S)
    assert kinds(script, calls) == (["log_rotation"] * 2 if state == RUNNING else ["container_gc"] * 4)
