"""What the processes behind a finding do: the most telling look at each, in words."""

from tracer.findings.finding import Evidence
from tracer.observed import Observation

THROTTLED = 0.5
"""Of the limit's periods in which the process had to stand still."""

PRESSED = 0.5
"""Of the last ten seconds in which somebody of its cgroup waited for a CPU, or for memory."""

_STATES = {
    "stopped": "is stopped (by SIGSTOP, or a terminal)",
    "traced": "is stopped by a debugger",
    "frozen": "is frozen: its cgroup's freezer is on",
    "zombie": "has ended and waits for its parent (zombie)",
    "dead": "has ended",
    "disk_sleep": "waits uninterruptibly in the kernel (D)",
}


def telling(observation: Observation) -> str | None:
    """What explains that the process does nothing; None when nothing of it does."""
    if observation.state in _STATES:
        where = f", in {observation.wchan}" if observation.state == "disk_sleep" and observation.wchan else ""
        return f"{_STATES[observation.state]}{where}"
    if observation.throttled_share is not None and observation.throttled_share >= THROTTLED:
        limit = f" of {observation.cpu_limit:g} CPUs" if observation.cpu_limit is not None else ""
        return f"is throttled in {observation.throttled_share:.0%} of its periods (CPU limit{limit})"
    for name, pressure in (("a CPU", observation.cpu_pressure), ("memory", observation.memory_pressure)):
        if pressure is not None and pressure >= PRESSED:
            return f"waits for {name} {pressure:.0%} of the time (pressure of its cgroup)"
    if observation.blocked_threads:
        where = f" in {observation.wchan}" if observation.wchan else ""
        return f"has {observation.blocked_threads} of {observation.threads} threads waiting in the kernel{where}"
    return None


def evidence(observation: Observation, who: str) -> Evidence:
    """One look as evidence."""
    found = telling(observation) or f"is {observation.state.replace('_', ' ')}, {observation.threads} threads"
    return Evidence(observation.time, f"{who} (process {observation.pid}) {found}.")
