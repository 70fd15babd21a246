"""Relists that are slow without a hang, or that do not come at all: whose matter that is."""

import pytest

from tests.unit.findings.story import Story, container, pod, pods, sandbox
from tracer.facts import EXITED, Container, Scope

PROBLEMS = ("info", "warning", "critical")


def story_of(count, *, fresh=False, exited=0):
    story = Story(fresh=fresh, pods=count)
    story.containers = [
        each._replace(state=EXITED) if number < exited else each for number, each in enumerate(story.containers)
    ]
    return story


def of_kind(story, kind):
    return [each for each in story.findings(*PROBLEMS) if each["kind"] == kind]


# OP-06


def test_the_first_relist_of_a_kubelet_that_inspects_a_thousand_pods_is_their_number_and_no_hang():
    story = story_of(1204, fresh=True, exited=1100)
    names = [f"p{number}" for number in range(1204)]
    story.relist(inspect=" ".join(names[:200]), inspecting=0.0775)
    (during,) = of_kind(story, "relist_slow")
    assert during["state"] == "active"
    for name in names[200:]:
        story.inspect(name, 0.0775)
    (finding,) = of_kind(story, "relist_slow")
    assert finding["severity"] == "warning"
    assert "First relist after the start of the kubelet (process 100)" in finding["summary"]
    assert "1,204 pods inspected one after the other in 3 min 8 s (median 77 ms a call)" in finding["summary"]
    assert "1,100 of 1,204 containers have exited" in finding["summary"]
    assert "no call failed" in finding["summary"]
    assert "not a hang" in finding["summary"]
    (forecast,) = of_kind(story, "pleg_unhealthy")
    assert "has asked for 1,20" in forecast["summary"]
    assert "(see relist_slow)" in forecast["summary"]
    story.wait(1)
    story.live(5)
    assert {each["state"] for each in story.findings()} == {"ended"}
    assert set(story.kinds()) == {"relist_slow", "pleg_unhealthy"}


# OP-14


def test_relists_that_a_burst_of_pods_stretches_are_load_with_their_number_and_recover_alone():
    story = Story(pods=2)
    story.live(5)
    story.wait(1)
    number = 0
    for _ in range(3):
        names = [f"b{number + each}" for each in range(60)]
        number += 60
        for name in names:
            call = story.send("RunPodSandbox", pod=pod(name), sandbox_id=f"{name}-s0")
            story.answer(call)
        story.sandboxes += [sandbox(name) for name in names]
        story.containers += [container(name) for name in names]
        story.relist(inspect=" ".join(names), inspecting=0.3)
        story.wait(1)
    (finding,) = of_kind(story, "relist_slow")
    assert "stretched by a burst of 180 pods that started or stopped: 3 took more than 3.0 s" in finding["summary"]
    assert "60 pods inspected one after the other in 36." in finding["summary"]
    assert "load, which passes by itself" in finding["summary"]
    story.live(3)
    assert of_kind(story, "relist_slow")[0]["state"] == "ended"
    assert story.kinds() == ["relist_slow"]


def test_a_small_burst_on_a_healthy_node_is_no_finding():
    story = Story(pods=2)
    story.live(5)
    story.wait(1)
    names = [f"b{each}" for each in range(60)]
    story.sandboxes += [sandbox(name) for name in names]
    story.containers += [container(name) for name in names]
    story.relist(inspect=" ".join(names), inspecting=0.02)
    story.wait(1)
    story.live(3)
    assert story.kinds(*PROBLEMS) == []


def test_one_pod_whose_many_containers_take_most_of_the_relist_is_named():
    story = Story(pods=5)
    story.live(5)
    story.wait(1)
    story.containers += [container("p3", EXITED, of=f"c{number}") for number in range(100)]
    story.relist(inspect="p3", inspecting=0.05)
    (finding,) = of_kind(story, "relist_slow")
    assert "1 pod inspected one after the other" in finding["summary"]
    assert "1 of 5 pods takes 100 % of the relist's time" in finding["summary"]
    assert "default/p3" in finding["summary"]
    assert finding["severity"] == "info"


def test_a_relist_that_one_call_makes_long_is_that_calls_matter():
    story = Story(pods=5)
    story.live(5)
    story.wait(1)
    story.containers += [container(f"p{number}", EXITED, of="old") for number in range(5)]
    story.relist(inspect="p0 p1")
    story.call("PodSandboxStatus", 8, sandbox_id="p2-s0", pod=pod("p2"))
    story.inspect("p3")
    assert of_kind(story, "relist_slow") == []


# a kubelet that goes on, but not with relists


def test_a_kubelet_whose_relists_stay_out_while_other_calls_go_on_is_held_up_inside():
    story = Story()
    story.live(5)
    for _ in range(15):
        story.wait(2)
        story.call("Status")
    (finding,) = story.findings()
    assert (finding["kind"], finding["state"], finding["calls"]) == ("pleg_stuck", "active", [])
    assert "goes on with other calls (Status)" in finding["summary"]
    assert "not by the runtime" in finding["summary"]
    story.live(5)
    assert of_kind(story, "pleg_stuck")[0]["state"] == "ended"


def test_a_kubelet_whose_list_is_open_is_not_held_up_inside():
    story = Story()
    story.live(5)
    story.wait(1)
    story.send("ListPodSandbox", scope=Scope.ALL)
    for _ in range(4):
        story.wait(5)
        story.call("Status")
    assert of_kind(story, "pleg_stuck") == []


@pytest.mark.parametrize("doubt", ["lost", "unnamed"])
def test_relists_that_may_have_come_unseen_are_not_missed(doubt):
    story = Story()
    story.live(5)
    for _ in range(6):
        story.wait(5)
        story.call("Status")
        if doubt == "lost":
            story.pipeline._lost_at = story.now
        else:
            call = story.send("Status")
            call.method, call.method_source = None, "unknown"
            story.answer(call)
    assert of_kind(story, "pleg_stuck") == []


# OP-109


def bare(story, *names):
    """The pods' sandboxes stay, their containers are gone."""
    story.containers = [each for each in story.containers if each.pod.name not in names]


def test_pods_with_a_ready_sandbox_and_no_attempt_to_create_a_container_are_the_kubelets_matter():
    story = Story(fresh=True, pods=4)
    story.relist(inspect="p0 p1 p2 p3")
    for name in ("p0", "p1"):
        ident = Container(f"{name}-main0", "main", 0)
        story.call("StopContainer", grace=30, container_id=ident.id, container=ident, pod=pod(name))
    bare(story, "p0", "p1")
    story.wait(1)
    story.live(290)
    assert story.kinds(*PROBLEMS) == []
    story.live(70)
    finding = story.only()
    assert (finding["kind"], pods(finding), finding["state"]) == ("pod_not_started", {"p0", "p1"}, "active")
    assert "2 pods have ready sandboxes but no container (default/p0, default/p1)" in finding["summary"]
    assert "tried to create none for 6 min" in finding["summary"]
    assert "the kubelet itself" in finding["summary"]


def test_it_ends_when_the_containers_are_there():
    story = Story()
    listed = story.containers
    bare(story, "p0")
    story.live(320)
    story.containers = listed
    story.live(3)
    (finding,) = of_kind(story, "pod_not_started")
    assert finding["state"] == "ended"


@pytest.mark.parametrize("trial", ["PullImage", "ImageStatus", "CreateContainer"])
def test_a_pod_for_which_the_kubelet_tries_is_not_left_so(trial):
    story = Story()
    bare(story, "p0")
    for _ in range(4):
        story.live(100)
        story.call(trial, 0.5, "UNKNOWN", pod=pod("p0"))
    assert of_kind(story, "pod_not_started") == []


def test_a_pod_whose_image_is_still_being_pulled_is_not_left_so():
    story = Story()
    bare(story, "p0")
    story.send("PullImage", pod=pod("p0"))
    story.live(400)
    assert of_kind(story, "pod_not_started") == []


def test_a_pod_whose_sandbox_is_not_ready_needs_no_container():
    story = Story()
    bare(story, "p0")
    story.sandboxes = [each._replace(ready=each.pod.name != "p0") for each in story.sandboxes]
    story.live(400)
    assert of_kind(story, "pod_not_started") == []
