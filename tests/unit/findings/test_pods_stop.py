"""Pods that cannot end: stuck, stubborn, or failing to be cleaned up."""

from tests.unit.findings.story import OTHER, Story, pod, pods
from tracer.facts import Container


def of(name, **more):
    ident = f"{name}-main0"
    return {"pod": pod(name), "container_id": ident, "container": Container(ident, "main", 0), **more}


def found(story, kind, *severities):
    return [each for each in story.findings(*severities) if each["kind"] == kind]


def stop(story, name, grace, seconds):
    call = story.send("StopContainer", **of(name, grace=grace))
    story.live(seconds)
    story.answer(call)
    story.live(2)
    return call


def test_a_stop_that_uses_its_whole_grace_tells_that_the_container_was_killed():
    story = Story()
    story.live(3)
    call = stop(story, "p0", 5, 5.06)
    finding = story.only()
    assert (finding["kind"], finding["severity"], finding["calls"]) == ("stop_ignored", "warning", [call.id])
    assert finding["summary"] == (
        "StopContainer of container main in pod default/p0 took 5.1 s, its whole grace of 5 s: the container did not"
        " end upon its stop signal and was killed."
    )


def test_a_stop_within_its_grace_is_nothing():
    story = Story()
    stop(story, "p0", 30, 28)
    assert story.kinds("info", "warning", "critical") == []


def test_a_stop_whose_request_lay_unread_is_not_the_containers_fault():
    story = Story()
    call = story.send("StopContainer", read=False, **of("p0", grace=5))
    story.live(4)
    story.read(call)
    story.live(1.5)
    story.answer(call)
    story.live(2)
    assert found(story, "stop_ignored") == []


def test_a_stop_in_its_grace_is_not_stuck_and_beyond_it_it_is():
    story = Story()
    call = story.send("StopContainer", **of("p0", grace=30))
    story.live(38)
    assert found(story, "stop_stuck") == []
    story.live(4)
    (finding,) = found(story, "stop_stuck")
    assert finding["calls"] == [call.id]
    assert "has not ended for 41" in finding["summary"]
    assert "30 s of it the container's grace" in finding["summary"]
    story.answer(call)
    story.live(2)
    assert found(story, "stop_stuck")[0]["state"] == "ended"


# OP-70


def test_a_stop_that_hangs_for_hours_is_one_finding_with_its_count():
    story = Story()
    story.live(3)
    for _ in range(12):
        call = story.send("StopContainer", **of("p0", grace=30))
        story.live(20)
        story.call("ContainerStatus", **of("p0"))
        story.live(130)
        story.end(call, "deadline")
        story.live(2)
    (finding,) = found(story, "stop_stuck")
    assert "hung 12 times within 30 min" in finding["summary"]
    assert "always by the kubelet's deadline" in finding["summary"]
    assert "its status is answered meanwhile, so only what kills it hangs" in finding["summary"]
    assert len(finding["calls"]) == 12
    assert pods(finding) == {"p0"}
    story.live(380)
    (finding,) = found(story, "stop_stuck")
    assert finding["state"] == "ended"


# OP-75


def test_a_stop_without_grace_that_waits_for_one_with_is_told_so_whoever_asks():
    story = Story()
    story.live(2)
    first = story.send("StopContainer", **of("p0", grace=300))
    story.live(20)
    urgent = story.send("StopContainer", peer=OTHER, **of("p0", grace=0))
    story.live(8)
    (finding,) = found(story, "stop_stuck")
    assert "with 0 s of grace waits behind an earlier stop of the same container with 300 s" in finding["summary"]
    assert set(finding["calls"]) == {first.id, urgent.id}
    story.end(urgent, "deadline")
    story.live(5)
    assert len(found(story, "stop_stuck")) == 1


# OP-72


def test_a_removal_that_fails_at_once_and_for_ever_is_no_hang():
    story = Story()
    stop(story, "p0", 30, 1)
    story.call("StopPodSandbox", sandbox_id="p0-s0", pod=pod("p0"))
    for _ in range(5):
        story.call("RemoveContainer", 0.02, "UNKNOWN", error="unlinkat /run/x: device or resource busy", **of("p0"))
        story.live(60)
    finding = story.only()
    assert finding["kind"] == "cleanup_failing"
    assert "RemoveContainer of container main in pod default/p0 failed 5 times, each within 20 ms" in finding["summary"]
    assert "something on the host still uses it" in finding["summary"]
    story.call("RemoveContainer", 0.02, **of("p0"))
    story.live(2)
    assert story.only()["state"] == "ended"


def test_a_removal_that_fails_once_is_nothing():
    story = Story()
    story.call("RemoveContainer", 0.02, "UNKNOWN", error="busy", **of("p0"))
    story.call("RemoveContainer", 0.02, **of("p0"))
    story.live(2)
    assert story.kinds("info", "warning") == []


# OP-77


def test_sandboxes_whose_network_cannot_be_taken_down_are_one_finding():
    for seconds, words in ((30.0, 'failed to destroy network for sandbox "{}": plugin type="calico" failed (delete)'),
                           (0.001, "cni plugin not initialized")):  # fmt: skip
        story = Story(pods=23)
        for _ in range(2):
            ids = {f"p{n}": f"{n:02}" * 32 for n in range(23)}
            calls = [
                story.send("StopPodSandbox", sandbox_id=ident, pod=pod(name), error=words.format(ident))
                for name, ident in ids.items()
            ]
            story.live(seconds)
            for call in calls:
                story.answer(call, "UNKNOWN")
            story.live(15)
        (finding,) = found(story, "cleanup_failing")
        assert "StopPodSandbox failed for 23 of 23 sandboxes (46 times)" in finding["summary"]
        assert "the pod network cannot be taken down" in finding["summary"]
        assert len(pods(finding)) == 23
        assert len(story.findings()) <= 2


# OP-107


def test_stops_that_hang_only_below_one_cgroup_name_it():
    story = Story(pods=19)
    for n in range(19):
        kind = "burstable" if n < 7 else "besteffort"
        facts = {"pod": pod(f"p{n}"), "attempt": 0, "cgroup_parent": f"kubepods-{kind}-podu{n}.slice"}
        story.call("RunPodSandbox", 0.1, **facts)
    calls = [story.send("StopContainer", **of(f"p{n}", grace=2)) for n in range(7)]
    for n in range(7, 19):
        story.call("StopContainer", 0.1, **of(f"p{n}", grace=2))
    story.live(20)
    (finding,) = found(story, "stop_stuck")
    assert "in 7 pods hang at once; all 7 whose cgroup is known are below kubepods-burstable" in finding["summary"]
    assert "none of the 12 pods below other cgroups hangs" in finding["summary"]
    assert set(finding["calls"]) == {call.id for call in calls}
    assert finding["confidence"] == "medium"
