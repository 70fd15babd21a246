"""Events that the runtime streams, exits that are lost, sandboxes that die, and waves of starts."""

from tests.unit.findings.story import NS, PATH, Story, container, pod, pods, sandbox
from tracer.facts import Answer, Container, ContainerEvent
from tracer.node import NodeEvent
from tracer.rows import rfc3339


def of(name, **more):
    ident = f"{name}-main0"
    return {"pod": pod(name), "container_id": ident, "container": Container(ident, "main", 0), **more}


def found(story, kind):
    return [each for each in story.findings("info", "warning", "critical") if each["kind"] == kind]


def restarted(story, seconds=0.4):
    """The runtime's process ends and another one serves."""
    story.node_event(NodeEvent("a", story.now, "runtime_stopped", "containerd ended.", PATH, 200, "containerd"))
    story.wait(seconds)
    story.node_event(NodeEvent("b", story.now, "runtime_started", "containerd serves.", PATH, 201, "containerd"))


# OP-80


def test_a_kubelet_that_lost_the_stream_of_events_for_good_is_told_with_its_tries():
    story = Story()
    stream = story.send("GetContainerEvents")
    story.relist()
    story.wait(120)
    lost = story.now
    story.end(stream, "connection")
    for _ in range(4):
        story.call("GetContainerEvents", 0.002, by="connection")
    story.live(30)
    (finding,) = found(story, "evented_pleg_fallback")
    assert finding["severity"] == "info"
    assert finding["state"] == "active"
    assert "kubelet (process 100) lost the runtime's stream of events" in finding["summary"]
    assert "4 further tries failed within" in finding["summary"]
    assert "it relists each 1.0 s, until it is started again" in finding["summary"]
    assert finding["start"] == rfc3339(lost)
    assert "anomaly" not in finding["summary"]


def test_a_stream_that_is_opened_again_is_not_lost():
    story = Story()
    stream = story.send("GetContainerEvents")
    story.live(60)
    story.end(stream, "connection")
    story.send("GetContainerEvents")
    story.live(30)
    assert found(story, "evented_pleg_fallback") == []


def test_a_runtime_that_does_not_stream_events_has_lost_none():
    story = Story()
    for _ in range(5):
        story.call("GetContainerEvents", 0.002, "UNIMPLEMENTED")
    story.live(30)
    (finding,) = found(story, "evented_pleg_fallback")
    assert "does not stream events" in finding["summary"]


# OP-82


def event(story, stream, name, kind=2):
    stream.event = ContainerEvent(kind, f"{name}-main0", pod(name))
    out = []
    story.pipeline.take(Answer(stream, story.now), out)
    story._take(out)


def test_events_of_one_pod_that_no_call_follows_are_a_suspicion_beside_pods_whose_are_heeded():
    story = Story()
    stream = story.send("GetContainerEvents")
    story.relist()
    for _ in range(4):
        event(story, stream, "p0")
        event(story, stream, "p1")
        story.wait(1)
        story.call("StopContainer", 0.1, **of("p1", grace=2))
        story.wait(14)
    story.wait(30)
    (finding,) = found(story, "events_unheeded")
    assert (finding["confidence"], pods(finding)) == ("low", {"p0"})
    assert "4 events of pod default/p0 arrived" in finding["summary"]
    assert "second" not in finding["summary"], "the error of unit is inside the kubelet"


def test_events_that_calls_follow_are_heeded():
    story = Story()
    stream = story.send("GetContainerEvents")
    story.relist()
    for _ in range(6):
        for name in ("p0", "p1"):
            event(story, stream, name)
            story.call("StopContainer", 0.1, **of(name, grace=2))
        story.wait(15)
    assert found(story, "events_unheeded") == []


# OP-79


def test_a_container_that_is_listed_as_running_while_execs_find_no_task_has_lost_its_exit_since_the_restart():
    story = Story()
    story.live(3)
    restarted(story)
    story.live(5)
    for _ in range(4):
        story.call("ExecSync", 0.01, "NOT_FOUND", error="no running task found: task p0-main0 not found",
                   **of("p0", timeout=1, command="c"))  # fmt: skip
        story.live(10)
    (finding,) = found(story, "exit_lost")
    assert (finding["severity"], finding["confidence"], pods(finding)) == ("warning", "high", {"p0"})
    assert "is listed as running, yet 4 execs found no process of it" in finding["summary"]
    assert "the runtime was restarted" in finding["summary"]


def test_a_container_that_is_listed_as_exited_has_lost_nothing():
    story = Story()
    story.containers = [container("p0", 2)]
    for _ in range(4):
        facts = of("p0", timeout=1, command="c")
        story.call("ExecSync", 0.01, "NOT_FOUND", error="task p0-main0 not found", **facts)
        story.live(10)
    assert found(story, "exit_lost") == []


# OP-53


def test_sandboxes_of_many_pods_that_are_replaced_again_and_again_are_one_finding_of_the_node():
    story = Story(pods=11)
    for attempt in range(1, 5):
        for number in range(11):
            story.call("RunPodSandbox", 0.1, pod=pod(f"p{number}"), attempt=attempt, sandbox_id=f"p{number}-s{attempt}")
        story.live(60)
    finding = story.only()
    assert finding["kind"] == "sandbox_churn"
    assert finding["summary"].startswith("11 pods (")
    assert "the cause is the node's, not the pods'" in finding["summary"]


def test_a_node_whose_sandboxes_are_replaced_once_is_restarted_and_healthy():
    story = Story(pods=11)
    for number in range(11):
        story.call("RunPodSandbox", 0.1, pod=pod(f"p{number}"), attempt=1, sandbox_id=f"p{number}-s1")
    story.live(60)
    assert story.kinds() == []


# OP-51


def test_a_wave_of_slow_starts_is_told_by_phase_without_words_of_failure():
    story = Story(pods=0)
    names = [f"w{n}" for n in range(6)]
    story.live(3)
    sent = {name: story.send("RunPodSandbox", pod=pod(name), attempt=0, sandbox_id=f"{name}-s0") for name in names}
    story.live(17)
    story.sandboxes = [sandbox(name) for name in names]
    for name in names:
        story.answer(sent[name])
        story.now += NS // 1000
        story.call("PodSandboxStatus", pod=pod(name), sandbox_id=f"{name}-s0")
        sent[name] = story.send("PullImage", pod=pod(name), image=f"image-{name}", annotated=True)
    story.live(36)
    for name in names:
        story.answer(sent[name])
        story.now += NS // 1000
        container_of = Container(f"{name}-main0", "main", 0)
        facts = {"pod": pod(name), "container": container_of, "container_id": container_of.id}
        story.call("CreateContainer", 0.1, sandbox_id=f"{name}-s0", image=f"image-{name}", **facts)
        story.call("StartContainer", 0.1, **facts)
    story.live(110)
    (finding,) = found(story, "start_wave")
    assert (finding["severity"], finding["state"], len(pods(finding))) == ("info", "ended", 6)
    assert finding["summary"].startswith("6 pods started within 5")
    assert "pull 6" in finding["summary"]
    assert "sandbox 3" in finding["summary"]
    assert "fail" not in finding["summary"]
