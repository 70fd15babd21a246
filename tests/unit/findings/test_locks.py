"""Which call may hold what another waits for."""

import pytest

from tests.unit.findings.story import OTHER, Story, pod
from tracer.facts import Container
from tracer.findings import locks
from tracer.findings.locks import Abandoned


def of(name, container="main"):
    ident = f"{name}-{container}0"
    return {"container_id": ident, "container": Container(ident, container, 0), "pod": pod(name)}


def sandbox_of(name):
    return {"sandbox_id": f"{name}-s0", "pod": pod(name)}


def calls(*asked):
    """These calls in this order, a second apart."""
    story = Story()
    made = []
    for method, facts in asked:
        made.append(story.send(method, **facts))
        story.wait(1)
    return made


CREATION = {"container": Container("", "main", 0), **sandbox_of("p0")}


@pytest.mark.parametrize(
    ("holder", "facts", "waiting", "asked", "near"),
    [
        ("StopContainer", of("p0"), "ContainerStatus", of("p0"), 0),
        ("CreateContainer", CREATION, "ContainerStatus", of("p0"), 0),
        ("StopPodSandbox", sandbox_of("p0"), "PodSandboxStatus", sandbox_of("p0"), 1),
        ("RunPodSandbox", {"pod": pod("p0")}, "PodSandboxStatus", sandbox_of("p0"), 2),
        ("StartContainer", of("p0"), "PodSandboxStatus", sandbox_of("p0"), 2),
        ("StartContainer", of("p0") | sandbox_of("p0"), "PodSandboxStatus", sandbox_of("p0"), 1),
        ("StopContainer", of("p0"), "ContainerStatus", of("p0", "side"), None),
        ("CreateContainer", CREATION, "ContainerStatus", of("p0", "side"), None),
        ("StopContainer", of("p0"), "ContainerStatus", of("p1"), None),
        ("RunPodSandbox", {"pod": pod("p1")}, "PodSandboxStatus", sandbox_of("p0"), None),
    ],
)
def test_a_call_is_near_to_what_is_about_its_container_its_sandbox_or_its_pod(holder, facts, waiting, asked, near):
    first, second = calls((holder, facts), (waiting, asked))
    assert locks.relation(first, second) == near
    assert locks.holder(second, [first, second]) is (first if near is not None else None)


def test_what_began_later_holds_nothing_up_however_slow_it_is():
    status, stop = calls(("ContainerStatus", of("p0")), ("StopContainer", of("p0")))
    assert locks.holder(status, [stop]) is None


def test_of_two_that_began_before_the_nearer_one_is_named_and_then_the_first():
    creation, update, stop, status = calls(
        ("RunPodSandbox", {"pod": pod("p0")}), ("UpdateContainerResources", of("p0")), ("StopContainer", of("p0")),
        ("ContainerStatus", of("p0")),
    )  # fmt: skip
    assert locks.holder(status, [stop, creation, update]) is update


def test_a_read_holds_nothing_and_an_exec_only_its_own_container():
    read, probe, status, sandbox = calls(
        ("ContainerStatus", of("p0")), ("ExecSync", of("p0")), ("ContainerStatus", of("p0")),
        ("PodSandboxStatus", sandbox_of("p0")),
    )  # fmt: skip
    assert locks.holder(status, [read, probe]) is probe
    assert locks.holder(sandbox, [read, probe]) is None


def test_what_was_answered_before_holds_nothing():
    story = Story()
    story.call("UpdateContainerResources", **of("p0"))
    update = story.call("UpdateContainerResources", **of("p0"))
    assert locks.holder(story.send("ContainerStatus", **of("p0")), [update]) is None


@pytest.mark.parametrize("by", ["deadline", "client_cancel"])
def test_a_change_that_its_client_gave_up_may_still_go_on(by):
    story = Story()
    abandoned = Abandoned()
    run = story.call("RunPodSandbox", 240, by=by, pod=pod("p0"))
    abandoned.ended([run], story.now)
    assert list(abandoned) == [run]
    status = story.send("PodSandboxStatus", **sandbox_of("p0"))
    assert locks.holder(status, abandoned) is run


@pytest.mark.parametrize("method", ["RunPodSandbox", "PodSandboxStatus", "StopPodSandbox"])
def test_it_does_not_any_more_once_the_same_thing_answers(method):
    story = Story()
    abandoned = Abandoned()
    run = story.call("RunPodSandbox", 240, by="deadline", pod=pod("p0"))
    other = story.call("RunPodSandbox", 240, by="deadline", pod=pod("p1"))
    abandoned.ended([run, other], story.now)
    abandoned.ended([story.call(method, **sandbox_of("p0"))], story.now)
    assert list(abandoned) == [other]


def test_what_ended_with_its_connection_or_an_answer_is_not_abandoned():
    story = Story()
    abandoned = Abandoned()
    lost = story.call("RunPodSandbox", 10, by="connection", pod=pod("p0"))
    failed = story.call("RunPodSandbox", 10, "UNKNOWN", pod=pod("p1"))
    abandoned.ended([lost, failed], story.now)
    assert list(abandoned) == []


def test_what_was_given_up_an_hour_ago_is_forgotten_and_their_number_is_bounded():
    story = Story()
    abandoned = Abandoned()
    given_up = [story.call("RunPodSandbox", 0.001, by="deadline", pod=pod(f"p{n}")) for n in range(300)]
    abandoned.ended(given_up, story.now)
    assert list(abandoned) == given_up[-locks.MAX_ABANDONED :]
    abandoned.ended([], given_up[-1].rpc.end + locks.ABANDONED_NS + 1)
    assert list(abandoned) == []


def test_another_clients_change_may_hold_the_lock_too():
    story = Story()
    update = story.send("UpdateContainerResources", OTHER, **of("p0"))
    story.wait(1)
    assert locks.holder(story.send("ContainerStatus", **of("p0")), [update]) is update
