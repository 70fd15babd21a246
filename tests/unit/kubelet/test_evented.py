"""Evented PLEG and streamed lists: what a kubelet does while its runtime streams, and when that breaks."""

import pytest

from tests.unit.kubelet.script import MS, S, Script, container, sandbox
from tracer import health
from tracer.facts import EVENT_STOPPED, ContainerEvent, Scope

A = [sandbox("a")], [container("a")]


def relist(script, answered="OK"):
    """Without waiting for its turn."""
    script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]), status=answered)
    if answered == "OK":
        script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]))


def evented():
    script = Script()
    stream = script.send("GetContainerEvents")
    script.relist(*A)
    return script, stream


def pleg(script):
    return health.pleg([("/run/containerd/containerd.sock", 100, script.kubelet)], script.now, 0)


def breaks(script, stream, status="UNAVAILABLE"):
    """The stream ends; the kubelet relists at once and opens the next."""
    script.answer(stream, status)
    script.now += script.gap
    relist(script)
    return script.send("GetContainerEvents")


def test_while_events_are_streamed_a_relist_may_take_ten_minutes():
    script, _ = evented()
    script.call("Status")  # any other call that ends
    script.wait(250 * S)
    now = pleg(script)
    assert now["healthy"]
    assert now["seconds_until_unhealthy"] == pytest.approx(350, abs=1)


def test_the_stream_is_nothing_that_the_pleg_waits_for():
    script, stream = evented()
    script.wait(250 * S)
    assert (pleg(script)["stage"], pleg(script)["waiting_for"]) == ("idle", None)
    assert script.kubelet.activity_of(stream) == ("relist", None)
    assert script.kubelet.open_relists() == []


def test_a_broken_stream_brings_a_relist_at_once_and_is_opened_again():
    script, stream = evented()
    script.wait(200 * MS)
    breaks(script, stream)
    assert len(script.relists) == 2
    assert [relist.outcome for relist in script.relists] == ["ok", "ok"]
    assert script.kubelet.evented
    assert set(script.activity.values()) >= {("relist", script.relists[1].id)}


def test_events_go_on_over_the_new_stream():
    script, stream = evented()
    again = breaks(script, stream)
    again.event = ContainerEvent(EVENT_STOPPED, "a-main0", A[0][0].pod)
    changed = script.kubelet.streamed(again, script.now)
    assert [(event.type, event.relist) for event in changed.events] == [("ContainerDied", again.id)]


def test_a_runtime_without_events_is_asked_five_times_each_with_a_relist_and_then_no_more():
    script = Script(fresh=True)
    stream = script.send("GetContainerEvents")
    for number in range(5):
        script.now += MS
        script.answer(stream, "UNIMPLEMENTED")
        script.now += script.gap
        relist(script)
        assert script.kubelet.evented is (number < 4)
        if number < 4:
            stream = script.send("GetContainerEvents")
    relist(script)  # the generic PLEG starts with one at once
    for _ in range(3):
        script.relist(*A)
    assert len(script.relists) == 5 + 1 + 3
    assert {kind for kind, _ in script.activity.values()} == {"relist"}
    assert pleg(script)["seconds_until_unhealthy"] < 180


def test_two_relists_without_a_stream_say_that_it_fell_back_however_often_it_broke_before():
    """A tracer that came late does not know how often."""
    script, stream = evented()
    script.answer(stream, "UNAVAILABLE")
    script.now += script.gap
    relist(script)
    assert script.kubelet.evented
    script.relist(*A)
    assert not script.kubelet.evented


def test_a_list_off_the_rhythm_is_no_relist_when_no_stream_broke():
    script, _ = evented()
    script.wait(200 * MS)
    relist(script)
    script.wait(S)
    assert len(script.relists) == 1


def test_lists_that_the_runtime_cannot_stream_are_asked_for_plainly_by_whoever_tried():
    """The client asks for plain lists from the first answer on; by then another goroutine may have tried too."""
    script = Script(fresh=True)
    tried = [script.send("StreamPodSandboxes", scope=Scope.ALL), script.send("StreamContainers", scope=Scope.ALL)]
    script.now += MS
    for call in tried:
        script.answer(call, "UNIMPLEMENTED")
    rotation = script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]))
    first = script.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(A[0]))
    second = script.call("ListContainers", scope=Scope.ALL, containers=tuple(A[1]))
    script.inspect("a", *A)
    script.wait(S)
    assert [script.activity[call.id][0] for call in (*tried, first, second)] == ["startup"] * 2 + ["relist"] * 2
    assert script.activity[rotation.id][0] == "log_rotation"
    assert [(r.list_sandboxes, r.list_containers, r.outcome) for r in script.relists] == [(first, second, "ok")]
    assert len(script.events) == 2


def test_a_relist_by_streamed_lists_is_one_like_any_other():
    script = Script(fresh=True)
    for _ in range(2):
        script.call("StreamPodSandboxes", scope=Scope.ALL, sandboxes=tuple(A[0]))
        script.call("StreamContainers", scope=Scope.ALL, containers=tuple(A[1]))
        if not script.relists:
            script.inspect("a", *A)
        script.wait(S)
    assert [relist.outcome for relist in script.relists] == ["ok", "ok"]
    assert {kind for kind, _ in script.activity.values()} == {"relist"}


def test_a_list_that_streams_for_long_is_what_the_pleg_waits_for():
    """It has a deadline as any list: it is the endless ones that are never late."""
    script = Script()
    script.relist(*A)
    script.wait(S)
    hangs = script.send("StreamPodSandboxes", scope=Scope.ALL)
    script.wait(30 * S)
    assert pleg(script)["waiting_for"]["id"] == hangs.id
