"""Two looks at a process are compared; what one look cannot tell stays unknown."""

from dataclasses import replace

import pytest

from tracer.observed import GroupSnapshot, Snapshot, observation

SECOND = 1_000_000_000
FIRST = Snapshot(
    time=100 * SECOND,
    pid=7,
    comm="containerd",
    started=4711,
    state="sleeping",
    threads=12,
    blocked_threads=0,
    stack=(),
    cpu_ns=60 * SECOND,
    group=GroupSnapshot("/system.slice/containerd.service", throttling={"/system.slice": (100, 50)}, cpu_limit=0.5),
)


def later(seconds=2, **changes):
    return replace(FIRST, time=FIRST.time + seconds * SECOND, **changes)


def throttling(now, before):
    first = replace(FIRST, group=GroupSnapshot(throttling=before))
    return observation(later(group=GroupSnapshot(throttling=now)), first, observation(first)).throttled_share


def test_the_first_look_knows_no_shares():
    seen = observation(FIRST)
    assert (seen.cpu_share, seen.throttled_share, seen.since) == (None, None, FIRST.time)
    assert (seen.cgroup, seen.cpu_limit) == ("/system.slice/containerd.service", 0.5)


def test_cpu_time_is_counted_in_cpus():
    assert observation(later(cpu_ns=63 * SECOND), FIRST, observation(FIRST)).cpu_share == 1.5


@pytest.mark.parametrize(
    ("now", "before", "share"),
    [
        ({"/a": (110, 55)}, {"/a": (100, 50)}, 0.5),
        ({"/a": (110, 60)}, {"/a": (100, 50)}, 1.0),
        ({"/a": (110, 70)}, {"/a": (100, 50)}, 1.0),
        ({"/a": (110, 50)}, {"/a": (100, 50)}, 0.0),
        ({"/a": (100, 50)}, {"/a": (100, 50)}, 0.0),
        ({"/a": (5, 5)}, {"/a": (100, 50)}, 0.0),
        ({"/a/b": (120, 51), "/a": (110, 56)}, {"/a/b": (100, 50), "/a": (100, 50)}, 0.6),
        ({"/b": (900, 900)}, {"/a": (100, 50)}, 0.0),
        ({}, {}, 0.0),
        (None, {"/a": (100, 50)}, None),
        ({"/a": (100, 50)}, None, None),
    ],
    ids=[
        "half", "all", "more than all", "none", "no period has passed", "a new cgroup of the same name",
        "the worst of those around", "moved to another cgroup", "no limit", "not readable", "not readable before",
    ],
)  # fmt: skip
def test_the_throttled_share_is_that_of_the_periods_since_the_look_before(now, before, share):
    assert throttling(now, before) == share


def test_a_state_lasts_since_the_first_look_that_found_it():
    first = observation(replace(FIRST, state="stopped"))
    second = observation(later(2, state="stopped"), FIRST, first)
    third = observation(later(4, state="running"), later(2), second)
    assert [each.since - FIRST.time for each in (first, second, third)] == [0, 0, 4 * SECOND]


def test_a_process_in_a_frozen_cgroup_is_frozen_whatever_the_kernel_calls_it():
    for state in ("sleeping", "disk_sleep", "stopped"):
        assert observation(replace(FIRST, state=state, group=GroupSnapshot(frozen=True))).state == "frozen"


def test_another_process_with_the_same_number_is_not_compared_with():
    other = later(started=4712, cpu_ns=61 * SECOND)
    seen = observation(other, FIRST, observation(FIRST))
    assert (seen.cpu_share, seen.throttled_share, seen.since) == (None, None, other.time)
