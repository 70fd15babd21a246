"""Threads that wait uninterruptibly, and no others, are found with their place in the kernel, by anybody."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from platform import machine

import pytest

from tracer.kernel.blocked import PROGRAM, BlockedTasks
from tracer.kernel.program_object import ProbeReport, ProgramObject

BPF = Path(__file__).parents[2] / "bpf"
# It waits uninterruptibly for its child, which opens a pipe nobody writes to before it executes its program.
SPAWN = """
import os, sys
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
"""
READ = """
import sys
from tracer.kernel.blocked import BlockedTasks
from tracer.kernel.privileges import drop_privileges
with BlockedTasks() as blocked:
    drop_privileges()
    print(*blocked.stacks().get(int(sys.argv[1]), ()))
"""


@pytest.fixture
def blocked_pid(tmp_path: Path) -> Iterator[int]:
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen([sys.executable, "-c", SPAWN, tmp_path / "pipe"])
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "D":
        assert process.poll() is None
        time.sleep(0.01)
    yield process.pid
    with (tmp_path / "pipe").open("w"):
        process.wait()


def test_a_blocked_thread_is_told_with_the_stack_that_proc_shows(blocked_pid):
    shown = [line.split()[1].partition("+")[0] for line in Path(f"/proc/{blocked_pid}/stack").read_text().splitlines()]
    with BlockedTasks() as blocked:
        assert blocked.probe == ProbeReport(PROGRAM, attached=True)
        assert list(blocked.stacks()[blocked_pid]) == shown


def test_without_any_privilege_the_stack_is_still_told(blocked_pid):
    done = subprocess.run(
        [sys.executable, "-c", READ, str(blocked_pid)], capture_output=True, text=True, check=True, cwd=BPF.parent
    )
    assert "entry_SYSCALL" in done.stdout or "el0" in done.stdout, "the outermost function, of either architecture"


def test_threads_that_can_be_woken_are_not_told():
    process = subprocess.Popen(["sleep", "600"])
    with BlockedTasks() as blocked:
        time.sleep(0.1)
        assert process.pid not in blocked.stacks()
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        assert process.pid not in blocked.stacks()
    process.kill()
    process.wait()
    idle = {
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if stat.read_text().rpartition(")")[2].split()[0] == "I"
    }
    with BlockedTasks() as blocked:
        assert idle
        assert not idle & set(blocked.stacks())


def test_a_kernel_that_refuses_is_reported_and_finds_nobody(tmp_path, monkeypatch):
    """The real program, but for an iterator no kernel has."""
    shutil.copytree(BPF, tmp_path / "bpf")
    program = tmp_path / "bpf" / "blocked.bpf.c"
    program.write_text(program.read_text().replace('"iter/task"', '"iter/no_such_thing"'))
    subprocess.run(["make", "-s", "-C", tmp_path / "bpf", f"OBJECTS={tmp_path}", "PROGRAMS=blocked"], check=True)
    image = (tmp_path / f"blocked.{machine()}.bpf.o").read_bytes()
    monkeypatch.setattr(ProgramObject, "shipped", lambda name: ProgramObject(name, image))
    with BlockedTasks() as blocked:
        assert not blocked.probe.attached
        assert "no_such_thing" in blocked.probe.reason
        assert blocked.stacks() == {}
