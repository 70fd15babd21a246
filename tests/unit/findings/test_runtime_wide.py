"""What holds up the whole runtime, or all of one sort of calls, and is no matter of one pod."""

import pytest

from tests.unit.findings.story import NS, Story, pod, pods
from tracer.facts import Container, Scope

PROBLEMS = ("info", "warning", "critical")


class Load:
    """Calls that overlap: each is answered in its own time."""

    def __init__(self, story):
        self.story = story
        self.due = []

    def begin(self, method, seconds=None, status="OK", *, by="server", **facts):
        """A call that takes so long; for ever without a time."""
        call = self.story.send(method, **facts)
        if seconds is not None:
            self.due.append((self.story.now + int(seconds * NS), call, status, by))
        return call

    def wait(self, seconds):
        until = self.story.now + int(seconds * NS)
        while self.due:
            item = min(self.due, key=lambda each: each[0])
            if item[0] > until:
                break
            self.due.remove(item)
            time, call, status, by = item
            self.story.wait((time - self.story.now) / NS)
            if by == "server":
                self.story.answer(call, status)
            else:
                self.story.end(call, by)
        self.story.wait((until - self.story.now) / NS)

    def relist(self, seconds):
        """Two lists, one after the other."""
        facts = {"sandboxes": tuple(self.story.sandboxes)}, {"containers": tuple(self.story.containers)}
        for method, listed in zip(("ListPodSandbox", "ListContainers"), facts, strict=True):
            self.begin(method, seconds, scope=Scope.ALL, **listed)
            self.wait(seconds + 0.0005)


def container_of(name):
    ident = f"{name}-main0"
    return {"container_id": ident, "container": Container(ident, "main", 0), "pod": pod(name)}


def of_kind(story, kind):
    return [each for each in story.findings(*PROBLEMS) if each["kind"] == kind]


def lived(pods=2, seconds=60):
    """A node that was well for a while, with some changes of pods."""
    story = Story(pods=pods)
    load = Load(story)
    for number in range(seconds):
        load.relist(0.005)
        if number % 5 == 0:
            load.begin("Status", 0.005)
            load.begin("ContainerStatus", 0.005, **container_of(f"p{number % pods}"))
            load.begin("RunPodSandbox", 0.2, pod=pod(f"old{number}"), sandbox_id=f"old{number}-s0")
            load.begin("RemoveContainer", 0.1, **container_of(f"old{number}"))
        load.wait(1)
    return story, load


# OP-05


def test_a_runtime_that_slows_down_as_a_whole_is_named_so_with_changes_first_and_no_single_pod():
    story, load = lived(pods=10)
    begin, last = story.now, 0
    number = 0
    while story.now - begin < 150 * NS:
        factor = 1 + 400 * min(1, (story.now - begin) / (120 * NS))
        if story.now - last > 5 * NS:
            last = story.now
            name = f"n{number}"
            number += 1
            load.begin("Status", 0.005 * factor)
            load.begin("ContainerStatus", 0.005 * factor, **container_of(f"p{number % 10}"))
            load.begin("RunPodSandbox", min(200, 0.8 * factor), pod=pod(name), sandbox_id=f"{name}-s0")
            load.begin("CreateContainer", min(110, 0.4 * factor), **container_of(f"p{number % 10}"))
            load.begin("RemoveContainer", min(110, 0.1 * factor), **container_of(f"old{number % 60 // 5 * 5}"))
        load.relist(0.005 * factor)
        load.wait(1)
    (finding,) = of_kind(story, "runtime_slow")
    assert (finding["severity"], finding["state"]) == ("warning", "active")
    assert finding["pods"] == []
    assert "as a whole is slow" in finding["summary"]
    assert "it is not one container" in finding["summary"]
    assert "calls that change something were slow first" in finding["summary"]
    assert "ListPodSandbox 1." in finding["summary"] or "ListPodSandbox 2." in finding["summary"]
    assert "usually 5 ms" in finding["summary"]
    assert any("pressure" in step for step in finding["next_steps"])
    assert [each["kind"] for each in story.findings() if each["pods"]] == [], "no pod is blamed"
    load.due.clear()
    load.wait(1)


def test_it_is_over_when_calls_take_their_usual_time_again():
    story, load = lived()
    for _ in range(15):
        load.relist(1.5)
        load.begin("Status", 1.5)
        load.begin("ContainerStatus", 1.5, **container_of("p0"))
        load.wait(1)
    assert of_kind(story, "runtime_slow")[0]["state"] == "active"
    for _ in range(5):
        load.relist(0.005)
        load.begin("Status", 0.005)
        load.begin("ContainerStatus", 0.005, **container_of("p0"))
        load.wait(1)
    (finding,) = story.findings()
    assert (finding["kind"], finding["state"]) == ("runtime_slow", "ended")
    assert "was slow for" in finding["summary"]


def test_slow_lists_alone_are_no_slow_runtime():
    story, load = lived()
    for _ in range(15):
        load.relist(1.5)
        load.begin("Status", 0.005)
        load.begin("ContainerStatus", 0.005, **container_of("p0"))
        load.wait(1)
    (finding,) = story.findings(*PROBLEMS)
    assert (finding["kind"], finding["severity"]) == ("relist_slow", "info")
    assert "its two lists took 3.0 s of 3.0 s" in finding["summary"]


def test_a_runtime_that_is_slow_while_twenty_pods_start_at_once_is_under_their_load():
    story, load = lived()
    started(load, 30, done=30, each=0.6)
    for _ in range(6):
        load.relist(1.5)
        load.begin("Status", 1.5)
        load.begin("ContainerStatus", 1.5, **container_of("p0"))
        load.wait(1)
    assert story.kinds() == []
    (finding,) = of_kind(story, "runtime_slow")
    assert "pods were being started at once when it began, so this is likely their load" in finding["summary"]


# OP-45


def started(load, count, *, done, each=0.5):
    """`count` pods start at once; `done` of them get their sandbox, one after the other; the rest hang."""
    calls = []
    for number in range(count):
        seconds = 2 + number * each if number < done else None
        facts = {"pod": pod(f"b{number}"), "sandbox_id": f"b{number}-s0", "deadline_ns": 240 * NS}
        if seconds is None:
            calls.append(load.begin("RunPodSandbox", 240, by="deadline", **facts))
        else:
            calls.append(load.begin("RunPodSandbox", seconds, **facts))
    return calls


def test_starts_that_hang_beyond_a_burst_are_one_finding_with_the_concurrency_and_no_cause_for_each_pod():
    story, load = lived()
    calls = started(load, 118, done=104)
    for _ in range(20):
        load.relist(0.005)
        load.wait(1)
    (during,) = story.findings(*PROBLEMS)
    assert (during["kind"], during["severity"]) == ("starts_saturated", "info")
    for _ in range(100):
        load.relist(0.005)
        load.wait(1)
    finding = story.only()
    assert (finding["kind"], finding["severity"]) == ("starts_saturated", "warning")
    assert "118 pods were started at once (118 at the peak" in finding["summary"]
    assert "104 got on, 14 hang beyond the burst" in finding["summary"]
    assert "not a matter of these pods" in finding["summary"]
    assert set(finding["calls"]) == {call.id for call in calls[104:]}
    assert all("118 pods were starting when it began" in each["text"] for each in finding["evidence"])
    for _ in range(150):
        load.relist(0.005)
        load.wait(1)
    assert story.only()["kind"] == "starts_saturated", "that the kubelet gave them up changes nothing"


def test_a_burst_that_all_pods_come_through_is_load():
    story, load = lived()
    started(load, 60, done=60)
    for _ in range(60):
        load.relist(0.005)
        load.wait(1)
    (finding,) = story.findings(*PROBLEMS)
    assert (finding["severity"], finding["state"]) == ("info", "ended")
    assert "60 got on; this was load" in finding["summary"]


def test_two_starts_that_hang_without_a_burst_are_not_a_saturated_path():
    story, load = lived()
    started(load, 5, done=3)
    for _ in range(100):
        load.relist(0.005)
        load.wait(1)
    assert of_kind(story, "starts_saturated") == []


# OP-49


def stall(load, seconds, number):
    """Twenty removals, then changes that begin apart and end together."""
    for each in range(20):
        load.begin("RemoveContainer", 0.05, **container_of(f"r{number}-{each}"))
        load.wait(0.1)
    end = load.story.now + int(seconds * NS)
    for index, method in enumerate(("CreateContainer", "RunPodSandbox", "RemoveContainer", "CreateContainer")):
        name = f"w{number}-{index}"
        left = (end - load.story.now) / NS + index * 0.05
        facts = {"pod": pod(name)} if method == "RunPodSandbox" else container_of(name)
        load.begin(method, left, **facts)
        load.relist(0.005)
        load.wait(2)
    while load.story.now < end + NS:
        load.relist(0.005)
        load.wait(1)


def test_changes_that_stall_and_are_released_together_are_one_finding_with_all_their_windows():
    story, load = lived()
    for number, seconds in enumerate((34, 58, 40, 45, 50)):
        stall(load, seconds, number)
        for _ in range(60):
            load.relist(0.005)
            load.wait(1)
    finding = story.only()
    assert (finding["kind"], finding["state"]) == ("writes_stalled", "ended")
    assert "5 such stalls of 34." in finding["summary"]
    assert " to 58." in finding["summary"]
    assert "each after 20 removals or more" in finding["summary"]
    assert "released together" in finding["summary"]
    assert finding["confidence"] == "medium"
    assert len(finding["evidence"]) == 5


def test_a_stall_of_changes_is_told_while_it_lasts():
    story, load = lived()
    for index, method in enumerate(("CreateContainer", "RunPodSandbox", "RemoveContainer")):
        facts = {"pod": pod(f"w{index}")} if method == "RunPodSandbox" else container_of(f"w{index}")
        load.begin(method, 60, **facts)
        load.wait(0.5)
    for _ in range(15):
        load.relist(0.005)
        load.wait(1)
    finding = story.only()
    assert (finding["kind"], finding["state"], pods(finding)) == ("writes_stalled", "active", {"w0", "w1", "w2"})
    assert "3 calls" in finding["summary"]
    assert "while reads are answered" in finding["summary"]


@pytest.mark.parametrize("why", ["another went through", "one sort", "one pod"])
def test_changes_that_are_slow_each_for_itself_are_no_stall_of_all(why):
    story, load = lived()
    methods = ("RunPodSandbox",) * 3 if why == "one sort" else ("CreateContainer", "RunPodSandbox", "RemoveContainer")
    for index, method in enumerate(methods):
        name = "w" if why == "one pod" else f"w{index}"
        facts = {"pod": pod(name)} if method == "RunPodSandbox" else container_of(name)
        load.begin(method, 60, **facts)
        load.wait(0.5)
    for _ in range(15):
        if why == "another went through":
            load.begin("RemoveContainer", 0.1, **container_of("x"))
        load.relist(0.005)
        load.wait(1)
    assert of_kind(story, "writes_stalled") == []
