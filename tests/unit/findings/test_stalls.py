"""Who stands still: the runtime, the kubelet, or nobody."""

import pytest

from tests.unit.findings.story import Story
from tests.unit.replayed import DATA, replayed
from tracer.rows import rfc3339


def test_a_quiet_node_has_no_finding():
    story = Story(fresh=True)
    story.live(60)
    assert story.kinds("info", "warning", "critical") == []


def test_a_runtime_that_does_not_read_is_named_within_three_seconds_with_what_waits():
    story = Story()
    story.live(5)
    begin = story.now
    waiting = story.send("ListPodSandbox", read=False)
    status = story.send("Status", read=False)
    story.wait(3)
    finding = story.only()
    assert (finding["kind"], finding["state"]) == ("runtime_not_reading", "active")
    assert set(finding["calls"]) == {waiting.id, status.id}
    assert "process 200" in finding["summary"]
    story.wait(2)
    story.read(waiting)
    story.read(status)
    story.answer(waiting)
    story.answer(status)
    story.live(5)
    finding = story.only()
    assert (finding["state"], finding["start"]) == ("ended", rfc3339(begin))
    assert finding["duration_seconds"] == pytest.approx(5)


def test_a_call_that_the_runtime_had_read_before_it_stopped_is_no_fault_of_its_own():
    story = Story()
    story.live(3)
    probe = story.send("ExecSync", timeout=30)
    story.wait(0.5)
    listing = story.send("ListPodSandbox", read=False)
    story.wait(5)
    story.answer(listing)
    story.answer(probe)
    story.live(3)
    finding = story.only()
    assert finding["kind"] == "runtime_not_reading"
    assert set(finding["calls"]) == {listing.id, probe.id}


def test_an_answer_that_lies_unread_is_the_kubelets_fault_and_its_missing_relists_are_the_same_stall():
    story = Story()
    story.live(5)
    probe = story.send("ExecSync", timeout=30)
    story.wait(0.5)
    story.answer(probe, taken=False)
    story.wait(4)
    assert story.only()["state"] == "active"
    story.taken(probe)
    story.live(5)
    finding = story.only()
    assert finding["kind"] == "kubelet_stalled"
    assert finding["calls"] == [probe.id]
    assert "neither the runtime" in finding["summary"]
    assert finding["duration_seconds"] == pytest.approx(4, abs=0.6)


def test_a_kubelet_that_asks_for_nothing_is_silent_only_when_nothing_is_open():
    story = Story()
    story.live(5)
    story.wait(6)
    finding = story.only()
    assert (finding["kind"], finding["state"]) == ("kubelet_stalled", "active")
    assert "nothing is open" in finding["summary"]
    story.live(3)
    assert story.only()["duration_seconds"] == pytest.approx(6, abs=0.6)

    waiting = Story()
    waiting.live(5)
    listing = waiting.send("ListPodSandbox")
    waiting.wait(10)
    assert "kubelet_stalled" not in waiting.kinds("info", "warning", "critical")
    waiting.answer(listing)


def test_a_kubelet_that_goes_on_with_other_calls_is_not_called_stopped():
    story = Story()
    story.live(5)
    for _ in range(10):
        story.call("Status")
        story.wait(0.9)
    assert "kubelet_stalled" not in story.kinds("info", "warning", "critical")


@pytest.mark.parametrize("name", sorted(path.name.split(".")[0] for path in DATA.glob("*.jsonl.gz")))
def test_captures_of_nodes_whose_processes_ran_say_nothing_of_a_standstill(name):
    found = {finding["kind"] for finding in replayed(name)["findings"]}
    if name not in ("stalls", "blame"):
        assert found & {"runtime_not_reading", "kubelet_stalled"} == set()
