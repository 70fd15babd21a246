"""Relists, their parts and their events, by hand-written calls."""

import pytest

from tests.unit.kubelet.script import MS, S, Script, container, pod, sandbox
from tracer import health
from tracer.facts import EXITED, RUNNING, UNKNOWN_STATE, Scope

A = [sandbox("a")], [container("a")]


def test_a_fresh_kubelet_gives_events_for_everything_its_first_relist_shows():
    script = Script(fresh=True)
    script.relist(*A, inspect="a")
    assert script.events == [("ContainerStarted", "a-s0"), ("ContainerStarted", "a-main0")]


def test_the_first_relist_of_an_older_kubelet_gives_no_events():
    script = Script()
    script.relist(*A)
    script.relist(*A)
    assert script.events == []
    assert [r.outcome for r in script.relists] == ["ok", "ok"]


def test_a_death_is_one_event_after_the_inspection_of_its_pod():
    script = Script()
    script.relist(*A)
    script.relist(A[0], [container("a", EXITED)], inspect="a")
    script.relist(A[0], [container("a", EXITED)])
    assert script.events == [("ContainerDied", "a-main0")]
    (inspection,) = script.relists[1].inspections
    assert inspection.pod == pod("a")
    assert len(inspection.calls) == 2


def test_a_vanished_pod_gives_its_events_without_a_call():
    script = Script()
    script.relist(*A)
    script.relist([], [])
    assert sorted(script.events) == [
        ("ContainerDied", "a-main0"), ("ContainerDied", "a-s0"),
        ("ContainerRemoved", "a-main0"), ("ContainerRemoved", "a-s0"),
    ]  # fmt: skip
    assert script.relists[1].inspections == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, RUNNING, ["ContainerStarted"]),
        (None, EXITED, ["ContainerDied"]),
        (None, UNKNOWN_STATE, ["ContainerChanged"]),
        (RUNNING, EXITED, ["ContainerDied"]),
        (RUNNING, UNKNOWN_STATE, ["ContainerChanged"]),
        (RUNNING, None, ["ContainerDied", "ContainerRemoved"]),
        (EXITED, RUNNING, ["ContainerStarted"]),
        (EXITED, UNKNOWN_STATE, ["ContainerChanged"]),
        (EXITED, None, ["ContainerRemoved"]),
        (UNKNOWN_STATE, RUNNING, ["ContainerStarted"]),
        (UNKNOWN_STATE, EXITED, ["ContainerDied"]),
        (UNKNOWN_STATE, None, ["ContainerDied", "ContainerRemoved"]),
        (RUNNING, RUNNING, []),
        (EXITED, EXITED, []),
    ],
)
def test_events_follow_the_kubelets_state_table(old, new, expected):
    def listed(state):
        return [sandbox("a")], [] if state is None else [container("a", state)]

    script = Script()
    script.relist(*listed(old))
    script.relist(*listed(new), inspect="a" if expected else "")
    assert script.events == [(kind, "a-main0") for kind in expected]


def test_an_on_demand_relist_updates_only_its_pod():
    script = Script()
    script.relist([], [])
    script.wait(100 * MS)
    script.pod_relist("a", *A)
    script.relist([*A[0], sandbox("b")], [*A[1]], inspect="b")
    assert script.events == [
        ("ContainerStarted", "a-s0"), ("ContainerStarted", "a-main0"), ("ContainerStarted", "b-s0"),
    ]  # fmt: skip
    assert [r.kind for r in script.relists] == ["generic", "pod", "generic"]


def test_a_failed_inspection_holds_the_events_back_until_one_succeeds():
    script = Script()
    script.relist(*A)
    died = A[0], [container("a", EXITED)]
    script.relist(*died, inspect="a", a="UNKNOWN")
    assert script.events == []
    script.relist(*died, inspect="a")
    script.relist(*died)
    assert script.events == [("ContainerDied", "a-main0")]


def test_intervals_run_from_start_to_start():
    script = Script()
    for _ in range(3):
        script.relist(*A)
    first, second, third = script.relists
    assert first.interval is None
    assert second.interval == second.start - first.start
    assert third.interval == third.start - second.start


def test_a_stats_pass_is_no_relist_though_one_is_due():
    script = Script()
    script.relist(*A)
    script.wait(S)
    c = script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]))
    s = script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]))
    x = script.call("ListContainerStats")
    script.wait(S)
    assert len(script.relists) == 1
    assert [script.activity[call.id][0] for call in (c, s, x)] == ["stats"] * 3


def test_a_garbage_collection_is_no_relist_though_one_is_due():
    script = Script()
    script.relist(*A)
    script.wait(S)
    calls = [
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1])),
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1])),
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=(*A[0], sandbox("x", ready=False))),
        script.call("StopPodSandbox", sandbox_id="x-s0", pod=pod("x")),
        script.call("RemovePodSandbox", sandbox_id="x-s0", pod=pod("x")),
    ]
    script.wait(S)
    assert len(script.relists) == 1
    assert [script.activity[call.id][0] for call in calls] == ["container_gc"] * 3 + ["sandbox_gc"] * 2
    assert script.passes == {}


def test_image_detection_is_no_relist():
    script = Script()
    script.relist(*A)
    script.wait(300 * MS)
    calls = [
        script.call("ListImages"),
        script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0])),
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1])),
        script.call("ContainerStatus", container_id="a-main0", pod=pod("a")),
    ]
    script.wait(S)
    assert len(script.relists) == 1
    assert {script.activity[call.id][0] for call in calls} == {"image_gc"}


def test_housekeeping_is_the_pair_of_ready_sandboxes_and_running_containers():
    script = Script()
    calls = [
        script.call("ListPodSandbox", scope=Scope.READY, sandboxes=()),
        script.call("ListContainers", scope=Scope.READY, containers=()),
    ]
    assert [script.activity[call.id][0] for call in calls] == ["housekeeping"] * 2


def test_log_rotation_asks_for_running_containers_after_one_list():
    script = Script()
    script.relist(*A)
    script.wait(200 * MS)
    calls = [
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1])),
        script.call("ContainerStatus", container_id="a-main0", pod=pod("a")),
    ]
    script.wait(S)
    assert [script.activity[call.id][0] for call in calls] == ["log_rotation"] * 2


def test_a_garbage_collection_in_the_midst_of_a_relist_does_not_take_its_list():
    """Its own second list comes after removals and shows them: taken for the relist it would give events too soon."""
    script = Script()
    gone = [container("a"), container("b", EXITED)]
    script.relist([sandbox("a"), sandbox("b")], gone)
    script.wait(S)
    first = script.send("ListPodSandbox", scope=Scope.ALL, sandboxes=(sandbox("a"), sandbox("b")))
    script.now += MS
    collector = script.send("ListContainers", scope=Scope.ALL, containers=tuple(gone))
    script.answer(first)
    script.now += MS // 10
    script.answer(collector)
    script.now += MS // 10
    second = script.send("ListContainers", scope=Scope.ALL, containers=tuple(gone))
    script.call("ContainerStatus", container_id="b-main0", pod=pod("b"))
    script.answer(second)
    script.call("RemoveContainer", container_id="b-main0", pod=pod("b"))
    script.call("ListContainers", scope=Scope.ALL, containers=(container("a"),))
    script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=(sandbox("a"), sandbox("b")))
    script.wait(S // 2)
    assert script.events == []
    assert script.relists[1].list_containers is second
    assert script.activity[collector.id][0] == "container_gc"


def pleg(script, after=0):
    return health.pleg([("/run/containerd/containerd.sock", 100, script.kubelet)], script.now + after, 0)


def test_a_hung_list_is_seen_while_it_hangs():
    script = Script()
    script.relist(*A)
    began = script.relists[0].start
    script.wait(S)
    script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]))
    hung = script.send("ListContainers", scope=Scope.ALL)
    script.wait(60 * S)
    now = pleg(script)
    assert now["stage"] == "list_containers"
    assert now["waiting_for"]["id"] == hung.id
    assert now["waiting_for"]["age_seconds"] == pytest.approx(60, abs=0.1)
    assert now["seconds_until_unhealthy"] == pytest.approx(180 - (script.now - began) / S)
    assert now["healthy"]
    script.wait(130 * S)
    assert not pleg(script)["healthy"]
    assert script.kubelet.open_relists()[0].outcome == "open"


def test_a_hung_inspection_names_the_pod_and_keeps_other_pods_events():
    script = Script()
    b = [sandbox("b")], [container("b")]
    script.relist([*A[0], *b[0]], [*A[1], *b[1]])
    died = [container("a", EXITED)], [container("b", EXITED)]
    script.relist([*A[0], *b[0]], [*died[0], *died[1]], inspect="a")
    script.call("PodSandboxStatus", sandbox_id="b-s0", pod=pod("b"))
    hung = script.send("ContainerStatus", container_id="b-main0", pod=pod("b"))
    script.wait(30 * S)
    now = pleg(script)
    assert (now["stage"], now["waiting_for"]["id"]) == ("inspect", hung.id)
    assert now["waiting_for"]["pod"]["name"] == "b"
    # The lists of the running relist succeeded: the kubelet counts from its start.
    assert now["age_seconds"] == pytest.approx(30, abs=0.2)
    assert script.events == [("ContainerDied", "a-main0")]


def test_a_failed_list_ends_the_relist_as_failed_and_gives_nothing():
    script = Script()
    script.relist(*A)
    script.wait(S)
    script.call("ListPodSandbox", scope=Scope.ALL, status="UNAVAILABLE")
    script.wait(200 * MS)
    assert script.relists[-1].outcome == "failed"
    assert script.events == []
    assert pleg(script)["age_seconds"] > 1.2


def test_a_list_whose_answer_was_not_seen_whole_gives_no_events_and_says_so():
    script = Script()
    script.relist(*A)
    script.wait(S)
    script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]))
    script.call("ListContainers", scope=Scope.ALL)
    script.relist(*A)
    assert script.events == []
    assert [r.complete for r in script.relists] == [True, False, True]


def test_the_kubelet_of_1_35_lists_again_for_each_changed_pod():
    script = Script()
    script.relist(*A)
    died = A[0], [container("a", EXITED)]
    script.relist(*died)
    uid = pod("a").uid
    script.call("ListPodSandbox", scope=Scope.POD, pod_uid=uid, pod=pod("a"), sandboxes=tuple(A[0]))
    script.call("PodSandboxStatus", sandbox_id="a-s0", pod=pod("a"))
    script.call("ListContainers", scope=Scope.POD, pod_uid=uid, pod=pod("a"), containers=tuple(died[1]))
    script.call("ContainerStatus", container_id="a-main0", pod=pod("a"))
    assert script.events == [("ContainerDied", "a-main0")]
    assert [r.kind for r in script.relists] == ["generic", "generic"]
    assert len(script.relists[1].calls) == 6
