"""What real processes do is seen as it is: each brought into its state on purpose."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.live.cgroup import Cgroup, cgroup
from tracer.kernel.blocked import BlockedTasks
from tracer.observed import Observation
from tracer.proc import INTERVAL_NS, Watch

NAME = f"criscope-test-{os.getpid()}"
SLEEP = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
SPIN = "print('ready', flush=True)\nwhile True: pass"
# The parent waits uninterruptibly until the child has executed its program, which first opens a pipe nobody writes to.
SPAWN = """
import os, sys, threading, time
def spawn():
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
print("ready", flush=True)
"""
# What an agent does that has dropped all it may: asked for a process, it says what it sees of it.
OBSERVE = """
import json, sys, time
from dataclasses import asdict
from tracer.kernel.blocked import BlockedTasks
from tracer.kernel.privileges import drop_privileges
from tracer.proc import Watch
blocked = BlockedTasks()
if sys.argv[1] == "drop":
    drop_privileges()
print(json.dumps(asdict(Watch(blocked.stacks).look([int(sys.argv[2])], time.monotonic_ns())[int(sys.argv[2])])))
"""


@contextmanager
def python(program: str, *arguments: object, into: Cgroup | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process running `program`, which has said that it is ready."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if into is not None:
            into.procs.write_text(str(process.pid))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def blocked_python(
    directory: Path, after: str = "", into: Cgroup | None = None
) -> Iterator[tuple[int, Callable[[], None]]]:
    """Nothing can wake one of its threads; and what lets that go on. It must, at the end: its child is blocked too."""
    os.mkfifo(directory / "pipe")

    def release() -> None:
        os.close(os.open(directory / "pipe", os.O_RDWR | os.O_NONBLOCK))

    with python(SPAWN + after, directory / "pipe", into=into) as process:
        try:
            yield process.pid, release
        finally:
            release()


@cache
def blocked() -> BlockedTasks:
    return BlockedTasks()


def look(pid: int) -> Observation | None:
    return Watch(blocked().stacks).look([pid], time.monotonic_ns()).get(pid)


def becomes(pid: int, what: Callable[[Observation], bool]) -> Observation:
    """The first look at which it is so; a state is entered a moment after it was asked for."""
    end = time.monotonic() + 5
    while (found := look(pid)) is None or not what(found):
        assert time.monotonic() < end, found
        time.sleep(0.01)
    return found


def test_a_process_that_waits_for_time_sleeps():
    with python(SLEEP) as process:
        found = becomes(process.pid, lambda each: each.state == "sleeping")
        assert (found.pid, found.comm, found.threads, found.blocked_threads) == (process.pid, "python", 1, 0)
        assert (found.wchan, found.stack) == (None, ())


def test_a_process_that_computes_is_running_and_its_cpu_is_counted():
    with python(SPIN) as process:
        watch = Watch(dict)
        first = watch.look([process.pid], time.monotonic_ns())[process.pid]
        assert (first.state, first.cpu_share, first.throttled_share) == ("running", None, None)
        time.sleep(1)
        second = watch.look([process.pid], time.monotonic_ns())[process.pid]
        assert (second.state, second.since) == ("running", first.time)
        assert second.cpu_share is not None
        assert 0.1 < second.cpu_share < 1.1
        assert second.throttled_share == 0.0


def test_a_process_that_was_stopped_is_stopped_until_it_continues():
    with python(SLEEP) as process:
        process.send_signal(signal.SIGSTOP)
        becomes(process.pid, lambda each: each.state == "stopped")
        process.send_signal(signal.SIGCONT)
        becomes(process.pid, lambda each: each.state == "sleeping")


def test_a_stopped_process_of_many_threads_is_stopped():
    threads = (
        "import threading\nfor _ in range(9): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    with python(SLEEP.replace("print", f"{threads}\nprint")) as process:
        process.send_signal(signal.SIGSTOP)
        assert becomes(process.pid, lambda each: each.state == "stopped").threads == 10


def test_a_process_that_has_ended_and_was_not_waited_for_is_a_zombie():
    process = subprocess.Popen(["/bin/true"])
    found = becomes(process.pid, lambda each: each.state == "zombie")
    assert (found.threads, found.blocked_threads) == (1, 0)
    process.wait()
    assert look(process.pid) is None


def test_a_process_that_nothing_can_wake_is_in_disk_sleep(tmp_path):
    with blocked_python(tmp_path, "spawn()\ntime.sleep(600)") as (pid, release):
        found = becomes(pid, lambda each: each.state == "disk_sleep")
        assert (found.threads, found.blocked_threads) == (1, 1)
        assert any("clone" in each or "fork" in each for each in found.stack), found.stack
        release()
        becomes(pid, lambda each: each.state == "sleeping" and each.blocked_threads == 0)


def test_one_blocked_thread_is_found_behind_a_first_thread_that_sleeps(tmp_path):
    start = "threading.Thread(target=spawn, daemon=True).start()\ntime.sleep(600)"
    with blocked_python(tmp_path, start) as (pid, release):
        found = becomes(pid, lambda each: each.state == "disk_sleep")
        assert (found.threads, found.blocked_threads) == (2, 1)
        assert any("clone" in each or "fork" in each for each in found.stack), "the blocked thread's, not the first's"
        release()
        becomes(pid, lambda each: each.state == "sleeping" and each.blocked_threads == 0)


def test_a_process_goes_on_when_only_its_first_thread_has_ended():
    program = """
        import ctypes, os, threading, time
        def go_on():
            time.sleep(0.1)
            print("ready", flush=True)
            time.sleep(600)
        threading.Thread(target=go_on).start()
        ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit(2): this thread only
    """
    with python(program) as process:
        found = becomes(process.pid, lambda each: each.state != "running")
        assert Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "Z"
        assert found.state == "sleeping"


def test_a_process_held_back_by_a_cpu_limit_is_throttled():
    with cgroup("cpu", NAME) as limited, python(SPIN, into=limited) as process:
        limited.set("cpu.max", "20000 100000")
        watch = Watch(dict)
        watch.look([process.pid], time.monotonic_ns())
        time.sleep(2)
        found = watch.look([process.pid], time.monotonic_ns())[process.pid]
    assert found.cpu_limit == 0.2
    assert found.throttled_share is not None
    assert found.throttled_share > 0.7
    assert found.cpu_share is not None
    assert 0.1 < found.cpu_share < 0.35


def test_a_limit_of_the_cgroup_around_throttles_too():
    with cgroup("cpu", NAME, "inner") as inner, python(SPIN, into=inner) as process:
        inner.up().set("cpu.max", "20000 100000")
        watch = Watch(dict)
        watch.look([process.pid], time.monotonic_ns())
        time.sleep(2)
        found = watch.look([process.pid], time.monotonic_ns())[process.pid]
    assert found.cpu_limit == 0.2
    assert found.throttled_share is not None
    assert found.throttled_share > 0.7


def test_a_frozen_process_is_frozen_however_the_kernel_calls_it():
    with cgroup("freezer", NAME) as frozen, python(SLEEP, into=frozen) as process:
        frozen.set("cgroup.freeze", "1")
        becomes(process.pid, lambda each: each.state == "frozen")
        frozen.set("cgroup.freeze", "0")
        becomes(process.pid, lambda each: each.state == "sleeping")


def observed_by(*words: object, through: tuple[str, ...] = ()) -> dict[str, object]:
    command = [*through, sys.executable, "-c", OBSERVE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return json.loads(done.stdout)


def test_after_privileges_were_dropped_the_same_is_seen(tmp_path):
    """The kernel stack of a blocked thread too, which /proc shows only with CAP_SYS_ADMIN."""
    with cgroup("memory", NAME) as group, blocked_python(tmp_path, "spawn()", into=group) as (pid, _):
        becomes(pid, lambda each: each.state == "disk_sleep")
        before, after = observed_by("keep", pid), observed_by("drop", pid)
    assert (after["cgroup"], after["state"]) == (group.path, "disk_sleep")
    assert after["stack"] != []
    assert after == {**before, "time": after["time"], "since": after["since"]}


def test_from_a_cgroup_namespace_the_paths_are_still_the_machines():
    """As in a pod: its own cgroup is the root there, and the others' begin with /.."""
    with cgroup("memory", NAME, "pod", "container") as own, cgroup("memory", f"{NAME}-other") as other:
        enter = ("sh", "-c", f'echo $$ > {own.procs}; exec unshare -C "$@"', "sh")
        with python(SLEEP, into=other) as process:
            assert "/../" in subprocess.check_output([*enter, "cat", f"/proc/{process.pid}/cgroup"], text=True)
            assert observed_by("keep", process.pid, through=enter)["cgroup"] == other.path


def test_looks_come_no_closer_than_their_interval():
    with python(SLEEP) as process:
        becomes(process.pid, lambda each: each.state == "sleeping")
        watch, now = Watch(dict), time.monotonic_ns()
        first = watch.look([process.pid], now)
        process.send_signal(signal.SIGSTOP)
        becomes(process.pid, lambda each: each.state == "stopped")
        assert watch.look([process.pid], now + INTERVAL_NS - 1) == first
        assert watch.look([process.pid], now + INTERVAL_NS)[process.pid].state == "stopped"
