"""Sync passes: which calls are one, of which kind, with which stages."""

from tests.unit.kubelet.script import MS, S, Script, container, pod, sandbox
from tracer.facts import EXITED, Container, Scope

A = [sandbox("a")], [container("a")]


def started(**options):
    script = Script(**options)
    script.relist([], [])
    script.wait(100 * MS)
    script.create("a")
    script.pod_relist("a", *A)
    return script


def stages(sync):
    return [stage.name for stage in sync.stages]


def test_a_new_pod_is_one_pass_with_its_stages():
    sync = started().pass_of("a")
    assert (sync.kind, sync.trigger, sync.outcome) == ("create", "config", "ok")
    assert stages(sync) == ["sandbox", "sandbox_status", "image", "create", "start"]
    assert len(sync.calls) == 6
    assert sync.end == sync.calls[-1].rpc.end


def test_a_pass_is_open_until_a_relist_shows_that_it_is_over():
    script = Script()
    script.relist([], [])
    script.call("RunPodSandbox", pod=pod("a"), attempt=0, sandbox_id="a-s0")
    (sync,) = script.kubelet.open_passes()
    assert (sync.outcome, sync.end) == ("open", None)


def test_an_open_call_shows_its_stage_growing():
    script = Script()
    script.send("RunPodSandbox", pod=pod("a"), attempt=0)
    script.wait(30 * S)
    (sync,) = script.kubelet.open_passes()
    assert [(stage.name, stage.end) for stage in sync.stages] == [("sandbox", None)]


def test_the_containers_of_one_pass_are_not_split():
    script = Script()
    script.relist([], [])
    script.create("a")
    script.start("a", of="second")
    script.pod_relist("a", *A, inspect=False)
    assert len(script.pass_of("a").calls) == 10


def test_a_relist_within_a_slow_pass_does_not_split_it():
    script = Script()
    script.relist([], [])
    script.call("RunPodSandbox", pod=pod("a"), attempt=0, sandbox_id="a-s0", lasts=3 * S)
    script.call("PodSandboxStatus", pod=pod("a"), sandbox_id="a-s0")
    script.image("a")
    script.relist(A[0], [], inspect="a")  # a device plugin's PreStartContainer takes its time
    ident = Container("a-main0", "main", 0)
    script.call("CreateContainer", pod=pod("a"), sandbox_id="a-s0", container=ident, container_id=ident.id)
    script.call("StartContainer", pod=pod("a"), container=ident, container_id=ident.id)
    script.pod_relist("a", *A, inspect=False)
    sync = script.pass_of("a")
    assert stages(sync) == ["sandbox", "sandbox_status", "image", "create", "start"]


def test_a_restart_is_a_pass_of_its_own_triggered_by_the_death():
    script = started()
    died = A[0], [container("a", EXITED)]
    script.relist(*A)
    script.relist(*died, inspect="a")
    script.start("a", attempt=1)
    script.pod_relist("a", A[0], [container("a", EXITED), container("a", attempt=1, created=3)])
    first, second = script.passes.values()
    assert (first.kind, second.kind, second.trigger) == ("create", "restart", "pleg")
    assert len(second.calls) == 4


def test_a_restart_without_a_fresh_death_was_triggered_by_the_end_of_its_back_off():
    script = started()
    script.relist(*A)
    died = A[0], [container("a", EXITED)]
    script.relist(*died, inspect="a")
    for _ in range(10):
        script.relist(*died)
    script.start("a", attempt=1)
    assert list(script.passes.values())[-1].trigger == "timer"


def test_a_pass_tried_again_after_a_failure_was_triggered_by_a_timer():
    script = Script()
    script.relist([], [])
    for _ in range(2):
        script.call("RunPodSandbox", pod=pod("a"), attempt=0, status="UNKNOWN")
        for _ in range(3):
            script.relist([], [])
    assert [p.trigger for p in script.passes.values()] == ["config", "timer"]


def test_the_termination_of_a_pod_that_failed_before_has_no_known_trigger():
    script = Script()
    script.relist([], [])
    script.call("RunPodSandbox", pod=pod("a"), attempt=0, status="UNKNOWN")
    for _ in range(3):
        script.relist([], [])
    script.call("StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    assert [p.trigger for p in script.passes.values()] == ["config", "unknown"]


def test_the_next_init_container_is_started_by_a_pass_of_its_own():
    script = Script()
    script.relist([], [])
    script.create("a")
    listed = A[0], [container("a", EXITED)]
    script.pod_relist("a", *listed)
    script.start("a", of="second")
    script.pod_relist("a", A[0], [*listed[1], container("a", of="second", created=3)])
    assert [p.kind for p in script.passes.values()] == ["create", "start_container"]


def test_a_failed_sandbox_is_a_failed_pass_and_its_retry_another():
    script = Script()
    script.relist([], [])
    for _ in range(2):
        script.call("RunPodSandbox", pod=pod("a"), attempt=0, status="UNKNOWN")
        for _ in range(3):
            script.relist([], [])
    assert [(p.kind, p.outcome) for p in script.passes.values()] == [("create", "failed"), ("create", "failed")]


def stop(script, name="a", grace=30):
    ident = Container(f"{name}-main0", "main", 0)
    script.call("StopContainer", pod=pod(name), container=ident, container_id=ident.id, grace=grace, lasts=2 * S)


def terminate(script, name="a"):
    stop(script, name)
    script.call("StopPodSandbox", pod=pod(name), sandbox_id=f"{name}-s0")
    dead = [sandbox(name, ready=False)], [container(name, EXITED)]
    script.pod_relist(name, *dead)
    return dead


def test_a_termination_ends_with_its_check_of_every_container():
    script = started()
    script.relist(*A)
    terminate(script)
    sync = list(script.passes.values())[-1]
    assert (sync.kind, sync.outcome) == ("terminate", "ok")
    assert stages(sync) == ["stop_container", "stop_sandbox", "check"]
    assert len(sync.calls) == 6
    assert {script.activity[call.id][0] for call in sync.calls} == {"terminate"}


def test_an_inspection_during_a_termination_keeps_the_two_apart():
    script = started()
    script.relist(*A)
    stop(script)
    script.call("StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    dead = [sandbox("a", ready=False)], [container("a", EXITED)]
    relists = len(script.relists)
    script.pod_relist("a", *dead)
    script.relist(*dead, inspect="a")
    sync = list(script.passes.values())[-1]
    assert len(sync.calls) == 6
    assert len(script.relists) == relists + 1
    assert len(script.relists[-1].inspections) == 1


def test_a_killed_container_started_again_in_the_same_pass_is_a_restart():
    script = started()
    script.relist(*A)
    stop(script)
    script.start("a", attempt=1)
    script.relist(*A)
    sync = list(script.passes.values())[-1]
    assert sync.kind == "restart"
    assert stages(sync) == ["stop_container", "image", "create", "start"]


def test_a_sandbox_made_anew_is_a_recreation():
    script = started()
    script.relist(*A)
    stop(script)
    script.call("StopPodSandbox", pod=pod("a"), sandbox_id="a-s0")
    script.create("a", attempt=1)
    script.relist(*A)
    assert list(script.passes.values())[-1].kind == "recreate_sandbox"


def test_a_resize_is_a_pass_and_the_cpu_managers_update_is_not():
    script = started()
    script.relist(*A)
    ident = Container("a-main0", "main", 0)
    cpu = script.call(
        "UpdateContainerResources", pod=pod("a"), container=ident, container_id=ident.id, cpuset_only=True
    )
    assert script.activity[cpu.id] == ("cpu_manager", None)
    script.call("UpdateContainerResources", pod=pod("a"), container=ident, container_id=ident.id)
    script.relist(*A)
    assert [p.kind for p in script.passes.values()] == ["create", "resize"]


def test_exec_probes_are_no_part_of_a_pass_and_hooks_are():
    script = started()
    ident = Container("a-main0", "main", 0)
    probe = script.call("ExecSync", pod=pod("a"), container=ident, container_id=ident.id, timeout=1)
    assert script.activity[probe.id][0] == "probe"
    script.relist(*A)
    hook = script.call("ExecSync", pod=pod("a"), container=ident, container_id=ident.id, timeout=0)
    terminate(script)
    assert script.activity[hook.id][0] == "lifecycle_hook"
    assert list(script.passes.values())[-1].calls[0] is hook


def test_two_pods_that_start_at_once_are_kept_apart():
    script = Script()
    script.relist([], [])
    runs = [script.send("RunPodSandbox", pod=pod(name), attempt=0) for name in ("a", "b")]
    script.now += 200 * MS
    for name, run in zip(("b", "a"), reversed(runs), strict=True):
        run.sandbox_id = f"{name}-s0"
        script.answer(run)
        script.now += MS
    for name in ("a", "b"):
        script.call("PodSandboxStatus", pod=pod(name), sandbox_id=f"{name}-s0")
        script.start(name)
    for name in ("a", "b"):
        script.pod_relist(name, [sandbox(name)], [container(name)], inspect=False)
        assert {call.pod for call in script.pass_of(name).calls} == {pod(name)}


def test_removal_of_a_dead_container_belongs_to_garbage_collection():
    script = started()
    calls = [
        script.call("ContainerStatus", container_id="x", pod=pod("a")),
        script.call("ContainerStatus", container_id="x", pod=pod("a")),
        script.call("RemoveContainer", container_id="x", pod=pod("a")),
    ]
    script.wait(S)
    assert [script.activity[call.id][0] for call in calls] == ["container_gc"] * 3


def test_an_exec_request_is_told_from_housekeeping_by_what_follows():
    script = started()
    script.call("ListPodSandbox", scope=Scope.READY, sandboxes=())
    script.call("ListContainers", scope=Scope.READY, containers=())
    exec_ = script.call("Exec", container_id="a-main0", pod=pod("a"))
    assert script.activity[exec_.id][0] == "exec_api"
