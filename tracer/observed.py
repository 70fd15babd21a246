"""What a process does at a moment: seen in /proc and in the cgroup file systems by `tracer.proc`, live only.

No capture holds it, so nothing may depend on it: it says more about what the sockets have shown to be slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["running", "sleeping", "disk_sleep", "stopped", "traced", "zombie", "dead", "frozen"]


@dataclass(frozen=True, slots=True)
class Observation:
    """Times are monotonic ns. What cannot be read, or needs an earlier look to compare with, is None.

    `state` is the whole process's: running when any thread runs (or could), else disk_sleep when any waits
    uninterruptibly, else its first thread's. frozen: its cgroup is (or is being made so), whatever the kernel calls it.
    """

    time: int
    pid: int
    comm: str
    started: int
    """Clock ticks after the machine's start; with `pid` it names the process for ever."""
    state: State
    since: int
    """The first look since when every look found this state; it may be older."""
    threads: int
    blocked_threads: int
    """Those that wait uninterruptibly (D), of the first 256 threads."""
    stack: tuple[str, ...]
    """The kernel's functions that a blocked thread is in, innermost first; empty: none is, or it cannot be told."""
    cgroup: str | None
    """Path of its memory cgroup: `tracer.cgroups` says whose."""
    cpu_share: float | None
    """CPUs used since the look before: 1.5 is one and a half."""
    cpu_limit: float | None
    """CPUs it may use, with all others of its cgroup; None also when there is no limit."""
    throttled_share: float | None
    """Share (0 to 1) of the limit's periods since the look before in which its cgroup, or one around it, had to stand
    still, in the worst of those."""
    cpu_pressure: float | None
    """Share (0 to 1) of the last 10 s in which some process of its cgroup waited for a CPU."""
    memory_pressure: float | None
    """The same for memory."""

    @property
    def wchan(self) -> str | None:
        """The kernel's function that a blocked thread waits in."""
        return self.stack[0] if self.stack else None


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """What one look reads of the cgroups around a process. Counters by cgroup: (periods, those of them throttled)."""

    path: str | None = None
    frozen: bool = False
    throttling: Mapping[str, tuple[int, int]] | None = None
    cpu_limit: float | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look reads of a process; counters as they stand. `cpu_ns`: used since it started."""

    time: int
    pid: int
    comm: str
    started: int
    state: State
    threads: int
    blocked_threads: int
    stack: tuple[str, ...]
    cpu_ns: int
    group: GroupSnapshot


def observation(snapshot: Snapshot, before: Snapshot | None = None, seen: Observation | None = None) -> Observation:
    """`before`, and what was `seen` in it: the look before, if there was one."""
    group = snapshot.group
    state: State = "frozen" if group.frozen else snapshot.state
    if before is not None and before.started != snapshot.started:
        before = seen = None  # another process had its number
    cpu_share = throttled_share = None
    if before is not None and snapshot.time > before.time:
        cpu_share = max(0, snapshot.cpu_ns - before.cpu_ns) / (snapshot.time - before.time)
        throttled_share = _throttled(group.throttling, before.group.throttling)
    return Observation(
        time=snapshot.time,
        pid=snapshot.pid,
        comm=snapshot.comm,
        started=snapshot.started,
        state=state,
        since=seen.since if seen is not None and seen.state == state else snapshot.time,
        threads=snapshot.threads,
        blocked_threads=snapshot.blocked_threads,
        stack=snapshot.stack,
        cgroup=group.path,
        cpu_share=cpu_share,
        cpu_limit=group.cpu_limit,
        throttled_share=throttled_share,
        cpu_pressure=group.cpu_pressure,
        memory_pressure=group.memory_pressure,
    )


def _throttled(now: Mapping[str, tuple[int, int]] | None, before: Mapping[str, tuple[int, int]] | None) -> float | None:
    if now is None or before is None:
        return None
    worst = 0.0
    for path, (periods, throttled) in now.items():
        if path in before:
            passed = periods - before[path][0]
            stood = throttled - before[path][1]
            if passed > 0 and stood > 0:
                worst = max(worst, min(1.0, stood / passed))
    return worst
