"""What the node's own events tell: memory that is used up, a clock that is set, a tracer that loses bytes."""

from tests.unit.findings.story import NS, Story, pod, pods
from tracer import node
from tracer.facts import Container
from tracer.records import OomKill


def found(story, kind):
    return [each for each in story.findings("info", "warning", "critical") if each["kind"] == kind]


def killed(story, of, container, pid=900):
    record = OomKill(story.now, pid, "java", None, None, 512 << 20, 0, 0)
    story.node_event(node.oom_kill(record, of, container))


def test_a_container_that_is_killed_for_want_of_memory_again_and_again_is_one_finding():
    story = Story()
    for number in range(3):
        killed(story, pod("p0"), Container(f"p0-main{number}", "main", number), 900 + number)
        story.live(40)
    finding = story.only()
    assert (finding["kind"], pods(finding)) == ("oom_kill", {"p0"})
    assert "(process 902) of container main in pod default/p0" in finding["summary"]
    assert "512 MiB" in finding["summary"]
    assert finding["summary"].endswith("was killed for want of memory, the 3. of its pod within 80.0 s.")
    story.live(600)
    assert story.only()["state"] == "ended"


def test_a_killed_process_of_no_known_pod_is_information():
    story = Story()
    killed(story, None, None)
    story.live(2)
    (finding,) = found(story, "oom_kill")
    assert (finding["severity"], finding["pods"]) == ("info", [])


def test_a_step_of_the_clock_is_told_and_durations_stay():
    story = Story()
    story.live(3)
    call = story.send("RunPodSandbox", pod=pod("p0"), attempt=0)
    story.wait(1)
    story.pipeline.clock(-40 * NS)
    story.wait(1)
    story.answer(call)
    story.live(2)
    (finding,) = found(story, "clock_step")
    assert finding["severity"] == "info"
    assert finding["summary"].startswith("The wall clock was set back by 40.000 s")
    assert story.rows["call", call.id].fields["duration_seconds"] == 2


def lose(story, seconds, times):
    for _ in range(times):
        story.pipeline._lost_at = story.now
        story.wait(seconds)


def test_a_tracer_that_loses_bytes_again_and_again_says_so():
    story = Story()
    lose(story, 1, 4)
    assert found(story, "tracing_incomplete") == []
    lose(story, 1, 6)
    (finding,) = found(story, "tracing_incomplete")
    assert finding["severity"] == "info"
    assert "findings may be wrong or missing" in finding["summary"]
    lose(story, 0.5, 80)
    assert found(story, "tracing_incomplete")[0]["severity"] == "warning"
    story.wait(70)
    assert found(story, "tracing_incomplete")[0]["state"] == "ended"
