"""Looks at processes while something is slow: what those do that it waits for. Reads /proc and cgroup file systems.

Only files whose text the kernel makes without waiting for the process are read; `cmdline`, `environ`, `mem` and `maps`
wait until nobody changes its memory, and are not. Kernels before 6.7 make `cgroup` under a lock that a stuck change of
cgroups holds, so look in a thread that nothing waits for.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tracer.cgroupfs import CGROUP_BYTES, Cgroups
from tracer.observed import Observation, Snapshot, State, observation
from tracer.procfile import Stat, read_file

MAX_PIDS = 32
"""Processes in one look: runtime, kubelet, and the shims, runc and plugins of the oldest open calls."""

MAX_THREADS = 256
"""Threads of one process looked at; containerd with 110 pods has less than a hundred."""

MAX_LOOK_THREADS = 512
"""Threads in one look, of all processes: 10 ms."""

INTERVAL_NS = 500_000_000
"""Looks come no closer: CPU time is told in steps of 10 ms, and a period of CPU limits has 100 ms."""

MAX_INTERVAL_NS = 10_000_000_000
"""An earlier look is no longer compared with: what happened meanwhile is not what happens now."""

INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Its inode (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""

Stacks = Callable[[], Mapping[int, tuple[str, ...]]]
"""By number of thread, of all blocked ones: the kernel's functions it is in, innermost first."""

_STANDING: tuple[State, ...] = ("stopped", "traced", "dead")  # of all threads when of the first


@dataclass(frozen=True, slots=True)
class _Threads:
    state: State
    blocked: tuple[int, ...]
    looked: int


class Watch:
    """Looks again and again, and compares each look with the one before. For one thread.

    `usable` is False outside the initial process id namespace (a pod needs hostPID): the kernel side's numbers would
    be other processes there. `stacks` is asked once a look at most, when a thread is blocked
    (`tracer.kernel.blocked`); /proc shows them to nobody who has dropped his privileges.
    """

    def __init__(self, stacks: Stacks, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._stacks = stacks
        self._stacks_now: Mapping[int, tuple[str, ...]] | None = None
        self._proc = proc
        self._cgroups = Cgroups(proc, cgroups)
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._seen: dict[int, tuple[Snapshot, Observation]] = {}
        self._time: int | None = None
        try:
            self.usable = (proc / "self/ns/pid").stat().st_ino == INITIAL_PID_NAMESPACE
        except OSError:
            self.usable = False

    def look(self, pids: Iterable[int], now: int) -> dict[int, Observation]:
        """What each of the first `MAX_PIDS` does at `now` (monotonic ns); not those that are gone, nobody if unusable.

        Sooner than `INTERVAL_NS` after the last look, the answer is that one's.
        """
        wanted = list(islice(dict.fromkeys(pids), MAX_PIDS))
        passed = MAX_INTERVAL_NS if self._time is None else now - self._time
        if self.usable and passed >= INTERVAL_NS:
            before = self._seen if passed < MAX_INTERVAL_NS else {}
            self._time = now
            self._cgroups.forget()
            self._stacks_now = None
            self._seen = {}
            threads = MAX_LOOK_THREADS
            for pid in wanted:
                found = self._snapshot(pid, now, min(threads, MAX_THREADS))
                if found is not None:
                    snapshot, looked = found
                    threads -= looked
                    self._seen[pid] = snapshot, observation(snapshot, *before.get(pid, (None, None)))
        return {pid: self._seen[pid][1] for pid in wanted if pid in self._seen}

    def _snapshot(self, pid: int, now: int, threads: int) -> tuple[Snapshot, int] | None:
        """And how many threads were looked at."""
        try:
            # An open directory is this process's for ever, never that of another with the same number.
            directory = os.open(self._proc / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            stat = Stat.read("stat", directory)
            if stat is None:
                return None
            found = _threads(directory, pid, stat, threads)
            snapshot = Snapshot(
                time=now,
                pid=pid,
                comm=stat.comm,
                started=stat.started,
                state=found.state,
                threads=stat.threads,
                blocked_threads=len(found.blocked),
                stack=self._stack(found.blocked),
                cpu_ns=stat.ticks * self._tick_ns,
                group=self._cgroups.around(read_file("cgroup", CGROUP_BYTES, directory)),
            )
        finally:
            os.close(directory)
        return snapshot, found.looked

    def _stack(self, blocked: tuple[int, ...]) -> tuple[str, ...]:
        """Of the first that is still blocked."""
        if not blocked:
            return ()
        if self._stacks_now is None:
            self._stacks_now = self._stacks()
        return next((self._stacks_now[tid] for tid in blocked if tid in self._stacks_now), ())


def _threads(directory: int, pid: int, stat: Stat, limit: int) -> _Threads:
    if stat.threads <= 1 or stat.state in _STANDING:
        return _Threads(stat.state, (pid,) if stat.state == "disk_sleep" else (), 0)
    states: dict[int, State] = {}
    looked = 0
    for tid in _tids(directory, limit):
        looked += 1
        thread = Stat.read(f"task/{tid}/stat", directory)
        if thread is not None and thread.state != "zombie":  # the first may end before the others
            states[tid] = thread.state
    blocked = tuple(tid for tid, state in states.items() if state == "disk_sleep")
    first: State = states.get(pid, next(iter(states.values()), stat.state))
    state: State = "running" if "running" in states.values() else "disk_sleep" if blocked else first
    return _Threads(state, blocked, looked)


def _tids(directory: int, limit: int) -> list[int]:
    try:
        task = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return []
    try:
        with os.scandir(task) as entries:
            return [int(each.name) for each in islice(entries, limit)]
    except OSError:
        return []
    finally:
        os.close(task)
