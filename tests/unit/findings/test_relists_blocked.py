"""A relist that hangs: in which call, and behind what that began before it."""

import pytest

from tests.unit.findings.story import OTHER, Story, pod, pods
from tracer.facts import Container, Scope

DEADLINE = 120.0


def container_of(name):
    return {
        "container_id": f"{name}-main0", "container": Container(f"{name}-main0", "main", 0), "pod": pod(name),
    }  # fmt: skip


def quiet(seconds=5.0, *, pods=2):
    """A story of a node whose kubelet relists, up to where the next relist is due."""
    story = Story(pods=pods)
    story.live(seconds)
    story.wait(1)
    return story


def relisted(story, name):
    """The beginning of a relist that finds the pod changed: its lists, then the status of its sandbox."""
    story.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
    story.call("ListContainers", scope=Scope.ALL, containers=tuple(story.containers))
    story.call("PodSandboxStatus", sandbox_id=f"{name}-s0", pod=pod(name))


def change(story, name, state):
    """The runtime lists the pod's container in another state from now on."""
    story.containers = [
        item._replace(state=state) if item.id == f"{name}-main0" else item for item in story.containers
    ]  # fmt: skip


def live_beside(story, seconds, *, each=5.0):
    """Other calls are answered while a relist hangs: Status, as each 5 s."""
    end = story.now + int(seconds * 1e9)
    while story.now < end:
        story.wait(min(each, (end - story.now) / 1e9))
        if story.now < end:
            story.call("Status")


# OP-01


def test_lists_that_hang_behind_an_update_name_its_container_as_likely_holder_of_the_lock():
    story = quiet(60, pods=30)
    update = story.send("UpdateContainerResources", **container_of("p7"))
    story.wait(0.35)
    first = story.send("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
    story.answer(first)
    hung = story.send("ListContainers", scope=Scope.ALL)
    live_beside(story, 3)
    finding = story.findings("info", "warning")[0]
    assert (finding["kind"], finding["state"], pods(finding)) == ("relist_blocked", "active", {"p7"})
    assert set(finding["calls"]) == {update.id, hung.id}
    live_beside(story, DEADLINE - 3)
    story.end(hung, "deadline")
    story.end(update, "deadline")
    story.wait(1)
    for _ in range(2):
        story.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
        again = story.send("ListContainers", scope=Scope.ALL)
        live_beside(story, DEADLINE)
        story.end(again, "deadline")
        story.wait(1)
    (finding,) = [each for each in story.findings() if each["kind"] == "relist_blocked"]
    assert finding["severity"] == "critical"
    assert "ListContainers does not answer" in finding["summary"]
    assert "UpdateContainerResources of container main in pod default/p7 began 350 ms before" in finding["summary"]
    assert "given up, which does not end it in the runtime: likely it holds the runtime's lock" in finding["summary"]
    assert "(3 given up by the kubelet)" in finding["summary"]
    assert "ListPodSandbox, Status answered meanwhile" in finding["summary"]
    assert finding["confidence"] == "medium"
    assert set(story.kinds()) == {"relist_blocked", "pleg_unhealthy"}


def test_a_stop_that_was_open_while_lists_were_answered_does_not_hold_them_up():
    story = quiet()
    story.send("StopContainer", grace=600, **container_of("p0"))
    story.live(30)
    story.send("UpdateContainerResources", **container_of("p1"))
    story.wait(0.2)
    story.send("ListPodSandbox", scope=Scope.ALL)
    story.wait(10)
    assert pods(story.only()) == {"p1"}


def test_with_several_changes_just_before_the_first_is_named_first_and_none_for_sure():
    story = quiet(pods=3)
    for name in ("p2", "p0", "p1"):
        story.send("StartContainer", **container_of(name))
        story.wait(0.1)
    story.send("ListPodSandbox", scope=Scope.ALL)
    story.wait(10)
    finding = story.only()
    assert (finding["kind"], finding["confidence"], finding["pods"]) == ("relist_blocked", "low", [])
    assert "StartContainer of container main in pod default/p2" in finding["summary"]
    assert "or one of 2 others" in finding["summary"]


def test_a_list_that_hangs_with_nothing_open_before_names_nobody():
    story = quiet()
    story.send("ListPodSandbox", scope=Scope.ALL)
    story.wait(10)
    finding = story.only()
    assert (finding["kind"], finding["pods"], finding["confidence"]) == ("relist_blocked", [], "low")
    assert "lock" not in finding["summary"]


def test_a_list_that_was_slow_once_is_over_with_its_answer():
    story = quiet()
    slow = story.send("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
    story.wait(6)
    story.answer(slow)
    story.call("ListContainers", scope=Scope.ALL, containers=tuple(story.containers))
    story.wait(1)
    story.live(10)
    finding = story.only()
    assert (finding["state"], finding["duration_seconds"]) == ("ended", pytest.approx(6, abs=0.1))


def test_a_list_of_another_client_that_hangs_blocks_no_relist():
    story = quiet()
    story.send("ListContainers", OTHER, scope=Scope.ALL)
    story.live(20)
    assert "relist_blocked" not in story.kinds("info", "warning", "critical")


# OP-03


def test_a_status_behind_a_stop_with_long_grace_counts_down_to_its_end():
    story = quiet(pods=30)
    stop = story.send("StopContainer", grace=600, deadline_ns=720 * 10**9, **container_of("p3"))
    story.wait(0.5)
    change(story, "p3", 2)
    for _ in range(3):
        relisted(story, "p3")
        status = story.send("ContainerStatus", **container_of("p3"))
        live_beside(story, DEADLINE)
        story.end(status, "deadline")
        story.wait(1)
    relisted(story, "p3")
    story.send("ContainerStatus", **container_of("p3"))
    live_beside(story, 10)
    finding = next(each for each in story.findings() if each["kind"] == "container_blocked")
    assert (pods(finding), finding["state"]) == ({"p3"}, "active")
    assert "StopContainer with 600 s grace, which began 504 ms before, is open" in finding["summary"]
    assert "expected to clear when the grace ends, in 3 min 4" in finding["summary"]
    assert "3 given up, each after 120 s" in finding["summary"]
    assert "1 of 30 pods takes 100 %" in finding["summary"]
    assert "both lists answered" in finding["summary"]
    assert finding["calls"][0] == stop.id
    assert set(story.kinds()) <= {"container_blocked", "pleg_unhealthy"}


def test_it_ends_when_the_stop_returns_and_the_status_is_answered():
    story = quiet()
    stop = story.send("StopContainer", grace=30, **container_of("p0"))
    story.wait(0.5)
    change(story, "p0", 2)
    relisted(story, "p0")
    status = story.send("ContainerStatus", **container_of("p0"))
    story.wait(30)
    story.answer(stop)
    story.answer(status)
    story.wait(1)
    story.live(3)
    change(story, "p0", 1)
    story.relist(inspect="p0")
    story.live(5)
    finding = story.only()
    assert (finding["kind"], finding["state"]) == ("container_blocked", "ended")
    assert finding["duration_seconds"] == pytest.approx(30, abs=0.5)
    assert "likely held it up and took 30.5 s" in finding["summary"]


# OP-10


def test_one_pod_whose_start_hangs_is_said_to_take_all_of_the_relists_time_and_no_runtime_is_down():
    story = quiet(pods=30)
    start = story.send("StartContainer", **container_of("p9"))
    story.wait(3)
    change(story, "p9", 0)
    story.call("ListPodSandbox", 0.01, scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
    story.call("ListContainers", 0.01, scope=Scope.ALL, containers=tuple(story.containers))
    first = story.send("PodSandboxStatus", sandbox_id="p9-s0", pod=pod("p9"))
    live_beside(story, DEADLINE)
    story.end(first, "deadline")
    story.wait(1)
    relisted(story, "p9")
    second = story.send("ContainerStatus", **container_of("p9"))
    live_beside(story, 70)
    finding = next(each for each in story.findings() if each["kind"] == "container_blocked")
    assert "1 of 30 pods takes 100 % of the relist's time" in finding["summary"]
    assert "StartContainer of container main, which began 3.0 s before, is open for 3 min 14 s" in finding["summary"]
    assert set(finding["calls"]) == {start.id, first.id, second.id}
    forecast = next(each for each in story.findings() if each["kind"] == "pleg_unhealthy")
    assert "NotReady" in forecast["summary"]
    assert "runtime_down" not in story.kinds("info", "warning", "critical")
    assert len(story.findings()) == 2


# OP-12


def test_stalls_that_come_and_go_are_one_finding_with_their_number_and_the_node_is_said_to_flap():
    story = quiet()
    story.send("StartContainer", **container_of("p1"))
    story.wait(1)
    change(story, "p1", 0)
    for _ in range(5):  # with a request timeout of four minutes, which many set
        relisted(story, "p1")
        status = story.send("ContainerStatus", **container_of("p1"))
        live_beside(story, 240)
        story.end(status, "deadline")
        story.wait(1)
    relisted(story, "p1")
    blocked, flaps = story.findings()
    assert (blocked["kind"], flaps["kind"]) == ("container_blocked", "pleg_unhealthy")
    assert "5 given up, each after 240 s" in blocked["summary"]
    assert any("shows the container as CREATED" in each["text"] for each in blocked["evidence"])
    assert "runc" not in blocked["summary"], "what hangs below the CRI is not seen from the socket"
    assert "below the CRI" in blocked["unknown"][0]
    assert any("p1-main0" in step for step in blocked["next_steps"])
    assert "unhealthy 5 times so far, about every 4 min 1 s: the node flaps" in flaps["summary"]


def test_a_pod_that_hangs_hours_later_again_is_another_finding():
    story = quiet()
    for state in (0, 2):
        change(story, "p1", state)
        relisted(story, "p1")
        story.call("ContainerStatus", 8, **container_of("p1"))
        story.wait(1)
        story.live(700)
        story.wait(1)
    assert story.kinds() == ["container_blocked", "container_blocked"]


# OP-17


def test_a_container_that_stops_answering_after_an_exec_is_one_finding_over_status_and_stops():
    story = quiet()
    story.call("ExecSync", 0.4, timeout=5, exit_code=0, deadline_ns=10**9, **container_of("p0"))
    story.wait(1.5)
    change(story, "p0", 3)
    relisted(story, "p0")
    status = story.send("ContainerStatus", **container_of("p0"))
    stops = []
    for _ in range(3):
        stop = story.send("StopContainer", grace=1, **container_of("p0"))
        stops.append(stop)
        story.wait(40)
        story.end(stop, "deadline")
    finding = next(each for each in story.findings() if each["kind"] == "container_blocked")
    assert "stopped answering 1.5 s after an ExecSync" in finding["summary"]
    assert "ContainerStatus, StopContainer" in finding["summary"]
    assert set(finding["calls"]) == {status.id, *(stop.id for stop in stops)}
    assert finding["confidence"] == "low"
    assert set(story.kinds()) == {"container_blocked", "pleg_unhealthy"}


# OP-19


def test_a_sandbox_whose_creation_was_given_up_and_that_answers_nothing_since_is_one_finding():
    story = quiet(pods=3)
    run = story.send("RunPodSandbox", pod=pod("p2"))
    story.live(240)
    story.end(run, "deadline")
    story.wait(1)
    for number in range(7):
        story.sandboxes = [
            item._replace(ready=number % 2 == 1) if item.pod.name == "p2" else item for item in story.sandboxes
        ]  # fmt: skip
        story.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
        story.call("ListContainers", scope=Scope.ALL, containers=tuple(story.containers))
        status = story.send("PodSandboxStatus", sandbox_id="p2-s0", pod=pod("p2"))
        stop = story.send("StopPodSandbox", sandbox_id="p2-s0", pod=pod("p2"))
        live_beside(story, DEADLINE)
        story.end(status, "deadline")
        story.end(stop, "deadline")
        story.wait(1)
    blocked = [each for each in story.findings() if each["kind"] == "container_blocked"]
    assert len(blocked) == 1
    assert "The sandbox of pod default/p2" in blocked[0]["summary"]
    assert "14 given up" in blocked[0]["summary"]
    assert "RunPodSandbox" in blocked[0]["summary"]
    assert "was given up by its client after 4 min 0 s and is likely still going on" in blocked[0]["summary"]
    assert blocked[0]["calls"][0] == run.id
    assert "(see start_failed)" in blocked[0]["summary"]
    assert sorted(story.kinds()) == ["container_blocked", "pleg_unhealthy", "start_failed"]


# OP-47


def test_a_stop_within_a_start_that_never_ends_is_told_as_their_overlap():
    story = quiet()
    start = story.send("StartContainer", **container_of("p1"))
    story.wait(0.4)
    stop = story.send("StopContainer", grace=1, **container_of("p1"))
    story.live(20)
    finding = story.only()
    assert finding["kind"] == "container_blocked"
    assert "StartContainer, which began 400 ms before, is open" in finding["summary"]
    assert set(finding["calls"]) == {start.id, stop.id}


# OP-97


def test_log_rotation_behind_the_containers_own_stop_is_told_with_its_grace():
    story = quiet()
    story.send("StopContainer", grace=3600, **container_of("p0"))
    story.wait(2)
    for _ in range(2):
        status = story.send("ContainerStatus", **container_of("p0"))
        story.live(120)
        story.end(status, "deadline")
        story.live(10)
    finding = story.only()
    assert (finding["kind"], finding["severity"]) == ("container_blocked", "warning")
    assert "StopContainer with 3600 s grace" in finding["summary"]
    assert "the relist" not in finding["summary"]


@pytest.mark.parametrize(("kind", "severity"), [("shim_hung", "info"), ("stop_stuck", "warning")])
def test_where_a_deeper_cause_of_the_holder_is_known_it_is_pointed_to_and_what_waits_only_follows(kind, severity):
    story = quiet()
    update = story.send("UpdateContainerResources", **container_of("p0"))
    story.pipeline.board._explained[update.id] = kind
    story.wait(0.5)
    status = story.send("ContainerStatus", **container_of("p0"))
    story.live(20)
    (finding,) = story.findings("info", "warning", "critical")
    assert (finding["kind"], finding["severity"]) == ("container_blocked", severity)
    assert f"(see {kind})" in finding["summary"]
    assert finding["calls"] == [update.id, status.id]


def test_a_holder_that_ended_while_what_waited_still_hangs_was_none():
    story = quiet()
    update = story.send("UpdateContainerResources", **container_of("p0"))
    story.wait(0.5)
    story.send("ContainerStatus", **container_of("p0"))
    story.live(8)
    assert "UpdateContainerResources" in story.only()["summary"]
    story.answer(update)
    story.live(8)
    assert "UpdateContainerResources" not in story.only()["summary"]


# what must stay quiet


def test_a_stop_that_uses_its_grace_while_everything_answers_is_nothing():
    story = quiet()
    story.send("StopContainer", grace=600, **container_of("p0"))
    story.live(200)
    assert story.kinds("info", "warning", "critical") == []


def test_the_status_of_another_container_of_the_pod_does_not_wait_for_its_neighbours_stop():
    story = quiet()
    story.send("StopContainer", grace=600, **container_of("p0"))
    story.wait(0.5)
    side = Container("p0-side0", "side", 0)
    story.send("ContainerStatus", container_id=side.id, container=side, pod=pod("p0"))
    story.live(20)
    assert "StopContainer" not in story.only()["summary"]


def test_statuses_of_many_pods_that_hang_are_no_trouble_of_any_one_of_them():
    story = quiet(pods=8)
    for number in range(8):
        story.send("ContainerStatus", **container_of(f"p{number}"))
    story.live(20)
    assert "container_blocked" not in story.kinds("info", "warning", "critical")


def test_a_status_that_another_client_waits_for_is_not_the_kubelets_trouble():
    story = quiet()
    story.send("ContainerStatus", OTHER, **container_of("p0"))
    story.live(20)
    assert story.kinds("info", "warning", "critical") == []


# OP-110, and the forecast


def test_the_forecast_begins_two_minutes_before_and_counts_down_while_the_call_is_open():
    story = quiet()
    begun = story.now
    listed = story.send("ListPodSandbox", scope=Scope.ALL)
    left = []
    for until in (55, 70, 170, 200):
        story.wait(until - (story.now - begun) / 1e9)
        found = [each for each in story.findings() if each["kind"] == "pleg_unhealthy"]
        left.append(found[0]["summary"] if found else None)
    assert left[0] is None
    assert "will call its PLEG unhealthy in 108." in left[1]
    assert "will call its PLEG unhealthy in 8." in left[2]
    assert "calls its PLEG unhealthy for 21." in left[3]
    assert "it waits for ListPodSandbox, open for 3 min 20 s (see relist_blocked)" in left[3]
    (found,) = [each for each in story.findings() if each["kind"] == "pleg_unhealthy"]
    assert found["severity"] == "critical"
    assert found["calls"] == [listed.id]


def test_the_forecast_ends_with_the_next_lists_that_succeed():
    story = quiet()
    hung = story.send("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
    story.wait(100)
    story.answer(hung)
    story.call("ListContainers", scope=Scope.ALL, containers=tuple(story.containers))
    story.wait(1)
    story.live(3)
    (found,) = [each for each in story.findings() if each["kind"] == "pleg_unhealthy"]
    assert found["state"] == "ended"
    assert "came near to unhealthy, and relists again; it waited for ListPodSandbox" in found["summary"]


def test_lists_that_fail_at_once_are_named_with_their_status():
    story = quiet()
    for _ in range(90):
        story.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
        story.call("ListContainers", status="RESOURCE_EXHAUSTED", scope=Scope.ALL)
        story.wait(1)
    (found,) = [each for each in story.findings() if each["kind"] == "pleg_unhealthy"]
    assert "will call its PLEG unhealthy in 8" in found["summary"]
    assert "ListContainers of the latest relist failed with RESOURCE_EXHAUSTED" in found["summary"]


def test_an_answer_that_the_kubelet_leaves_unread_is_no_list_that_hangs():
    story = quiet()
    listed = story.send("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(story.sandboxes))
    story.wait(0.1)
    story.answer(listed, taken=False)
    story.wait(10)
    assert "relist_blocked" not in story.kinds("info", "warning", "critical")


def test_a_kubelet_whose_stream_of_events_breaks_is_not_called_unhealthy_before_it_can_relist():
    story = quiet()
    streams = []
    for _ in range(5):
        streams.append(story.send("GetContainerEvents"))
        story.wait(1)
        if len(streams) < 5:
            story.end(streams[-1], "connection")
            story.relist()
    for _ in range(20):
        story.wait(10)
        story.call("Status")
    assert story.kinds() == []
    story.end(streams[-1], "connection")  # the fifth: from now on a relist each second
    story.wait(1)
    story.live(5)
    assert story.kinds() == []


def test_a_kubelet_whose_relists_cannot_be_seen_is_not_called_unhealthy():
    story = quiet()
    story.pipeline._lost_at = story.now + 10**9
    for _ in range(40):
        story.call("Status")
        story.wait(5)
    assert "pleg_unhealthy" not in story.kinds()
