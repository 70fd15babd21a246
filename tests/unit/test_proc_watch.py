"""Looks are few, short, and never wrong about who is looked at."""

import os
import time
from pathlib import Path

import pytest

from tracer.proc import INTERVAL_NS, MAX_INTERVAL_NS, MAX_LOOK_THREADS, MAX_PIDS, MAX_THREADS, Watch
from tracer.procfile import Stat, read_file

STAT = (
    "{pid} ({comm}) {state} 1 1 1 0 -1 4194560 9 0 0 0 {ticks} 5 0 0 20 0 {threads} 0 {started} 2990080 415 "
    "18446744073709551615 1 1 0 0 0 0 0 0 6 0 1 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


class Proc:
    """A /proc of files, with as many processes as a test wants."""

    def __init__(self, path):
        self.path = path
        self.blocked = {}
        self.asked = 0
        self.add(1)

    def stacks(self):
        self.asked += 1
        return self.blocked

    def add(self, pid, threads=1, *, tids=None, **fields):
        values = {"comm": "containerd", "state": "S", "ticks": 20, "started": 1000 + pid, **fields}
        directory = self.path / str(pid)
        tids = {pid: values["state"]} if tids is None else tids
        for tid, state in tids.items():
            (directory / f"task/{tid}").mkdir(parents=True, exist_ok=True)
            text = STAT.format(**{**values, "pid": tid, "threads": threads, "state": state})
            (directory / f"task/{tid}/stat").write_text(text)
        (directory / "stat").write_text(STAT.format(**values, pid=pid, threads=threads))
        (directory / "cgroup").write_text("0::/\n")

    def watch(self):
        watch = Watch(self.stacks, self.path, self.path / "no cgroups")
        assert not watch.usable, "it shows no namespace"
        watch.usable = True
        return watch


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


@pytest.fixture
def stat(tmp_path):
    """What is read of a text in place of /proc/PID/stat."""

    def read(text):
        (tmp_path / "stat").write_bytes(text if isinstance(text, bytes) else text.encode())
        directory = os.open(tmp_path, os.O_RDONLY)
        try:
            return Stat.read("stat", directory)
        finally:
            os.close(directory)

    return read


def text(**changes):
    fields = {"pid": 7, "comm": "runc", "state": "D", "ticks": 20, "threads": 8, "started": 99}
    return STAT.format(**{**fields, **changes})


@pytest.mark.parametrize("comm", ["runc", "a) S 1 (b", "))", "(", "", "two words", "\u00e9"])
def test_a_process_may_have_any_name(stat, comm):
    assert stat(text(comm=comm)) == Stat(comm, "disk_sleep", 25, 8, 99)


def test_a_name_that_is_no_text_is_shown_escaped(stat):
    assert stat(text().encode().replace(b"runc", b"\xff\xfe")).comm == "\\xff\\xfe"


@pytest.mark.parametrize("wrong", ["", "7", "7 (runc", "7 (runc)", "7 (runc) S 1 1", text(state="?"), text(state="")])
def test_a_process_that_is_going_leaves_nothing_to_read(stat, wrong):
    assert stat(wrong) is None


def test_a_file_is_read_up_to_a_bound_and_a_missing_one_is_empty(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * 100)
    assert read_file(tmp_path / "long", 10) == b"x" * 10
    assert read_file(tmp_path / "none", 10) == b""
    assert read_file(tmp_path, 10) == b""


def test_in_another_process_id_namespace_nobody_is_looked_at(proc):
    proc.add(7)
    watch = Watch(dict, proc.path)
    assert not watch.usable
    assert watch.look([7], 0) == {}


def test_processes_that_are_gone_are_left_out_and_asked_twice_are_looked_at_once(proc):
    proc.add(7)
    assert list(proc.watch().look([8, 7, 7, 9], 0)) == [7]


def test_no_more_than_the_first_processes_are_looked_at(proc):
    for pid in range(100, 100 + MAX_PIDS + 3):
        proc.add(pid)
    assert list(proc.watch().look(range(100, 200), 0)) == list(range(100, 100 + MAX_PIDS))


@pytest.mark.parametrize(
    ("states", "state", "blocked"),
    [
        ("SSS", "sleeping", 0),
        ("SRS", "running", 0),
        ("SSD", "disk_sleep", 1),
        ("DDS", "disk_sleep", 2),
        ("SRD", "running", 1),
        ("ZSS", "sleeping", 0),
        ("ZRS", "running", 0),
        ("ZDS", "disk_sleep", 1),
        ("TTT", "stopped", 0),
        ("SIt", "sleeping", 0),
        ("tSS", "traced", 0),
    ],
)
def test_the_state_of_a_process_is_that_of_its_threads_together(proc, states, state, blocked):
    proc.add(7, len(states), state=states[0], tids={7 + number: each for number, each in enumerate(states)})
    seen = proc.watch().look([7], 0)[7]
    assert (seen.state, seen.blocked_threads, seen.threads) == (state, blocked, len(states))


def test_threads_are_looked_at_up_to_a_bound_of_each_process_and_of_a_look(proc):
    for pid in (10_000, 20_000, 30_000):
        proc.add(pid, 400, tids={pid + number: "D" for number in range(400)})
    seen = proc.watch().look([10_000, 20_000, 30_000], 0)
    assert [each.blocked_threads for each in seen.values()] == [MAX_THREADS, MAX_THREADS, 0]
    assert 2 * MAX_THREADS == MAX_LOOK_THREADS
    assert {each.threads for each in seen.values()} == {400}


def test_where_a_blocked_thread_waits_in_the_kernel_is_told_innermost_first(proc):
    proc.add(7, 3, tids={7: "S", 8: "D", 9: "D"})
    proc.blocked = {9: ("rpc_wait_bit_killable", "nfs4_do_close", "do_exit"), 10: ("io_schedule",)}
    seen = proc.watch().look([7], 0)[7]
    assert seen.stack == ("rpc_wait_bit_killable", "nfs4_do_close", "do_exit")
    assert seen.wchan == "rpc_wait_bit_killable"


def test_a_thread_that_is_blocked_no_more_waits_nowhere(proc):
    proc.add(7, state="D")
    seen = proc.watch().look([7], 0)[7]
    assert (seen.blocked_threads, seen.stack, seen.wchan) == (1, (), None)


def test_the_kernel_is_asked_for_stacks_once_a_look_and_only_when_a_thread_is_blocked(proc):
    watch = proc.watch()
    proc.add(7)
    watch.look([1, 7], 0)
    assert proc.asked == 0
    for pid in (7, 8, 9):
        proc.add(pid, state="D")
    watch.look([1, 7, 8, 9], INTERVAL_NS)
    assert proc.asked == 1
    watch.look([7], 2 * INTERVAL_NS)
    assert proc.asked == 2


def test_the_second_look_tells_how_much_cpu_was_used_since(proc):
    watch = proc.watch()
    proc.add(7, ticks=100)
    watch.look([7], 0)
    proc.add(7, ticks=100 + os.sysconf("SC_CLK_TCK") // 2)
    assert watch.look([7], 1_000_000_000)[7].cpu_share == 0.5


def test_another_process_of_the_same_number_is_not_compared_with(proc):
    watch = proc.watch()
    proc.add(7, ticks=100)
    watch.look([7], 0)
    proc.add(7, ticks=150, started=5000)
    seen = watch.look([7], INTERVAL_NS)[7]
    assert (seen.cpu_share, seen.since) == (None, INTERVAL_NS)


def test_a_look_long_ago_is_not_compared_with(proc):
    watch = proc.watch()
    proc.add(7)
    watch.look([7], 0)
    assert watch.look([7], MAX_INTERVAL_NS)[7].cpu_share is None
    assert watch.look([7], 2 * MAX_INTERVAL_NS - 1)[7].cpu_share == 0.0


def test_a_process_not_asked_for_in_between_is_not_compared_with(proc):
    watch = proc.watch()
    proc.add(7)
    watch.look([7], 0)
    watch.look([], INTERVAL_NS)
    assert watch.look([7], 2 * INTERVAL_NS)[7].since == 2 * INTERVAL_NS


def test_sooner_than_the_interval_the_last_look_is_told_again_to_who_asks_for_it(proc):
    watch = proc.watch()
    proc.add(7)
    proc.add(8)
    first = watch.look([7, 8], 0)
    proc.add(7, state="T")
    assert watch.look([7, 9], INTERVAL_NS - 1) == {7: first[7]}
    assert watch.look([7], INTERVAL_NS)[7].state == "stopped"


def descriptors():
    return sorted(each.name for each in Path("/proc/self/fd").iterdir())


def test_no_descriptor_stays_open(proc):
    watch = proc.watch()
    proc.add(7, 3, tids={7: "S", 8: "D", 9: "S"})
    before = descriptors()
    for turn in range(5):
        watch.look([7, 8, 1], turn * INTERVAL_NS)
    assert descriptors() == before


def test_this_process_is_seen_as_it_is():
    watch = Watch(dict)
    watch.usable = True  # its own number is right in any namespace
    seen = watch.look([os.getpid()], time.monotonic_ns())[os.getpid()]
    assert (seen.pid, seen.state, seen.threads) == (
        os.getpid(),
        "running",
        len(list(Path("/proc/self/task").iterdir())),
    )
