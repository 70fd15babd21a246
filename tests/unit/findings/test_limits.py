"""Sizes, statistics, logs: what grows until it does not fit."""

import pytest

from tests.unit.findings.story import OTHER, Story, container, pod
from tracer.facts import Container, Scope

MIB = 1 << 20


def listing(story, size, items, status="OK", **more):
    return story.call("ListContainers", 0.05, status, scope=Scope.ALL, bytes=size, items=items, **more)


def found(story, kind):
    return [each for each in story.findings("info", "warning", "critical") if each["kind"] == kind]


# OP-20


@pytest.mark.parametrize(("share", "severity"), [(0.45, None), (0.55, "info"), (0.85, "warning")])
def test_a_list_answer_is_told_at_half_and_at_four_fifths_of_the_limit(share, severity):
    story = Story()
    listing(story, int(share * 16 * MIB), 9000)
    story.wait(1)
    assert [each["severity"] for each in found(story, "list_size")] == ([severity] if severity else [])


def test_a_list_beyond_the_limit_names_the_last_success_and_that_it_cannot_end_by_itself():
    story = Story()
    for minute in range(60):
        listing(story, 15 * MIB + minute * 13_000, 18_300 + minute * 3)
        story.wait(60)
    (finding,) = found(story, "list_size")
    assert "growing by 180 containers an hour: full in" in finding["summary"]
    error = "grpc: trying to send message larger than max (16812345 vs. 16777216)"
    for _ in range(5):
        listing(story, 0, 0, "RESOURCE_EXHAUSTED", error=error)
        story.wait(1)
    (finding,) = found(story, "list_size")
    assert (finding["severity"], finding["state"]) == ("critical", "active")
    assert "ListContainers failed 5 times" in finding["summary"]
    assert "last success: 15.73 MiB" in finding["summary"]
    assert "18477 containers" in finding["summary"]
    assert "does not end by itself" in finding["summary"]
    assert "overload" not in finding["summary"]
    assert "memory" not in finding["summary"]
    listing(story, MIB, 100)
    story.wait(1)
    assert found(story, "list_size")[0]["state"] == "ended"


def test_another_clients_lists_say_nothing_of_the_kubelets():
    story = Story()
    listing(story, 15 * MIB, 9000, peer=OTHER)
    story.wait(1)
    assert found(story, "list_size") == []


def test_many_exited_containers_are_counted():
    story = Story()
    story.containers = [container(f"p{n % 50}", 2, attempt=n) for n in range(1500)]
    story.containers += [container(f"p{n}", 1, attempt=9999) for n in range(50)]
    story.live(2)
    (finding,) = found(story, "dead_containers")
    assert finding["summary"].startswith("1500 of 1550 containers are exited (50 pods)")
    assert finding["severity"] == "info"


# OP-94


def test_statistics_that_take_much_of_the_runtimes_time_are_told_with_rate_and_cost_of_each_item():
    story = Story()
    for _ in range(7):
        for _ in range(3):
            story.call("ListPodSandboxStats", 1.32, items=110)
        story.live(10)
    (finding,) = found(story, "stats_cost")
    assert "12 ms for each item of 110" in finding["summary"]
    assert "% of the working time" in finding["summary"]
    assert finding["severity"] == "info"
    story.live(130)
    assert found(story, "stats_cost")[0]["state"] == "ended"


def test_quick_statistics_are_nothing():
    story = Story()
    for _ in range(13):
        story.call("ListPodSandboxStats", 0.02, items=110)
        story.live(10)
    assert found(story, "stats_cost") == []


# OP-99


def reopen(story, name, error, status="UNKNOWN"):
    ident = f"{name}-main0"
    facts = {"container_id": ident, "container": Container(ident, "main", 0), "pod": pod(name)}
    story.call("ReopenContainerLog", 0.001, status, error=error, **facts)


def test_a_runtime_that_does_not_reopen_logs_is_told_once_as_information():
    story = Story()
    for _ in range(6):
        for name in ("p0", "p1"):
            reopen(story, name, "docker does not support reopening container log files")
        story.live(10)
    (finding,) = story.findings("info", "warning")
    assert (finding["kind"], finding["severity"]) == ("log_rotation_failing", "info")
    assert "ReopenContainerLog failed 12 times for 2 containers" in finding["summary"]
    assert "this runtime does not support it" in finding["summary"]


def test_a_log_that_cannot_be_reopened_is_a_warning():
    story = Story()
    for _ in range(4):
        reopen(story, "p0", "open /var/log/pods/x: permission denied")
        story.live(10)
    assert story.only()["kind"] == "log_rotation_failing"
