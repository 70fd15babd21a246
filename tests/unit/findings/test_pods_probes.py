"""Probes, hooks and exec sessions."""

import pytest

from tests.unit.findings.story import Story, pod, pods
from tracer.facts import Container


def of(name, **more):
    ident = f"{name}-main0"
    return {"pod": pod(name), "container_id": ident, "container": Container(ident, "main", 0), **more}


def probe(name, timeout, command="c"):
    return of(name, timeout=timeout, command=command, deadline_ns=(timeout + 120) * 10**9)


def found(story, kind, *severities):
    return [each for each in story.findings(*severities) if each["kind"] == kind]


def run(story, seconds, status="OK", **facts):
    """One run of a probe while the kubelet goes on."""
    call = story.send("ExecSync", **facts)
    story.live(seconds)
    story.answer(call, status)
    return call


# OP-30


def test_a_probe_that_ends_only_by_the_kubelets_deadline_is_known_by_the_sum_of_timeout_and_deadline():
    story = Story()
    story.live(3)
    runs = []
    for _ in range(3):
        call = story.send("ExecSync", **probe("p0", 8))
        runs.append(call.id)
        story.live(20)
        (hanging,) = found(story, "probe_timeout")
        assert hanging["state"] == "active"
        story.live(108)
        story.end(call, "deadline")
        story.live(10)
    (finding,) = found(story, "probe_timeout")
    assert "with a timeout of 8 s was not ended by the runtime in time" in finding["summary"]
    assert "3 of 3 runs took 2 min 8 s" in finding["summary"]
    assert "leaves a child in the background that keeps its output open" in finding["summary"]
    assert "average" not in finding["summary"]
    assert (finding["confidence"], finding["calls"]) == ("medium", runs)
    assert story.kinds() == ["probe_timeout"]


def test_a_probe_that_hangs_is_told_while_it_hangs():
    story = Story()
    call = story.send("ExecSync", **probe("p0", 8))
    story.live(12)
    assert story.kinds("info", "warning") == []
    story.live(3)
    finding = story.only()
    assert (finding["kind"], finding["calls"]) == ("probe_timeout", [call.id])
    assert "the runtime does not keep its timeout of 8 s" in finding["summary"]
    story.answer(call)
    story.live(2)
    assert story.only()["state"] == "ended"


# OP-33


@pytest.mark.parametrize("status", ["DEADLINE_EXCEEDED", None])
def test_a_probe_that_always_times_out_is_one_finding_with_its_count(status):
    story = Story(pods=3)
    for _ in range(12):
        run(story, 5.01, status, error="timeout 5s exceeded", **probe("p0", 5))
        run(story, 0.05, exit_code=0, **probe("p1", 5))
        story.live(5)
    finding = story.only()
    assert finding["kind"] == "probe_timeout"
    assert "of container main in pod default/p0 with a timeout of 5 s timed out in all 12 runs" in finding["summary"]
    assert "left in the container" in finding["unknown"][0]
    assert pods(finding) == {"p0"}


def test_the_stop_for_a_probe_is_part_of_the_probes_trouble():
    story = Story()
    for _ in range(3):
        run(story, 1.03, "DEADLINE_EXCEEDED", **probe("p0", 1))
        story.live(2)
    run(story, 1.03, "DEADLINE_EXCEEDED", **probe("p0", 1))
    stop = story.send("StopContainer", **of("p0", grace=30))
    story.live(30.04)
    story.answer(stop)
    story.live(2)
    finding = story.only()
    assert finding["kind"] == "probe_timeout"
    assert "timed out in all 4 runs" in finding["summary"]
    assert finding["summary"].endswith("the container was stopped for it.")
    assert stop.id in finding["calls"]


def test_a_probe_that_times_out_once_is_information_and_is_over_after_three_good_runs():
    story = Story()
    run(story, 1.03, "DEADLINE_EXCEEDED", **probe("p0", 1))
    story.live(9)
    (finding,) = story.findings("info")
    assert finding["summary"].endswith("timed out once.")
    for _ in range(3):
        story.call("ExecSync", 0.03, exit_code=0, **probe("p0", 1))
        story.live(9)
    (finding,) = story.findings("info")
    assert finding["state"] == "ended"


def test_a_probe_that_fails_in_time_does_not_time_out():
    story = Story()
    for _ in range(5):
        story.call("ExecSync", 0.03, exit_code=1, **probe("p0", 1))
        story.live(5)
    assert story.kinds("info", "warning", "critical") == []


def test_a_hook_that_runs_long_is_told_with_its_pod():
    story = Story()
    story.live(3)
    story.call("StartContainer", **of("p0"))
    hook = story.send("ExecSync", **of("p0", timeout=0, command="c"))
    story.live(70)
    finding = story.only()
    assert (finding["kind"], finding["calls"]) == ("hook_slow", [hook.id])
    assert "A lifecycle hook of container main in pod default/p0 has been running for 69" in finding["summary"]
    assert "it has no deadline" in finding["summary"]
    story.answer(hook)
    story.live(2)
    assert story.only()["state"] == "ended"


def test_a_node_whose_calls_are_mostly_exec_probes_is_told_so_as_information():
    story = Story(pods=2)
    for _ in range(130):
        for number in range(8):
            story.call("ExecSync", 0.02, exit_code=0, **probe(f"p{number}", 1))
        story.live(1)
    (finding,) = story.findings("info", "warning", "critical")
    assert (finding["kind"], finding["severity"]) == ("probe_load", "info")
    assert "a second in 8 containers" in finding["summary"]


# OP-35


def test_many_exec_requests_are_counted_and_no_leak_is_claimed():
    story = Story()
    for number in range(90):
        story.call("Exec", 0.002, container_id=f"p{number % 3}-main0")
        story.live(6)
    (finding,) = story.findings("info", "warning", "critical")
    assert (finding["kind"], finding["severity"]) == ("exec_requests", "info")
    assert finding["summary"].startswith("90 exec requests within 9 min")
    assert "to 3 containers, all OK; the sessions themselves do not run over" in finding["summary"]
    assert "leak" not in finding["summary"]


def test_a_few_exec_requests_are_nothing():
    story = Story()
    for _ in range(20):
        story.call("Exec", 0.002, container_id="p0-main0")
        story.live(6)
    assert story.kinds("info", "warning", "critical") == []
