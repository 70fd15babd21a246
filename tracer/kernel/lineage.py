"""The runtime's processes that were there before the tracer: shims, conmon, and the main processes of containers.

They are found by name. Runtimes need not be: the kernel side takes for one whoever serves a runtime's socket.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SHIMS = ("containerd-shim", "conmon")  # beginnings of the name of a process that looks after containers
HELPERS = ("runc", "crun")  # children of those which are not a container's own program


class Process(NamedTuple):
    """As in /proc/PID/stat."""

    pid: int
    ppid: int
    comm: str


class Member(NamedTuple):
    """`contained`: it runs a container's own program, so that its children are none of the runtime's."""

    pid: int
    contained: bool


def processes(proc: Path = Path("/proc")) -> Iterator[Process]:
    """All processes now; those that end meanwhile are left out."""
    for directory in proc.iterdir():
        if directory.name.isdigit():
            try:
                stat = (directory / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            # proc(5): the name stands in parentheses and may hold any character, even a closing one.
            head, _, rest = stat.rpartition(")")
            yield Process(int(directory.name), int(rest.split()[1]), head.partition("(")[2])


def members(running: Iterator[Process]) -> list[Member]:
    """The shims among `running` and their children."""
    everyone = list(running)
    shims = {each.pid for each in everyone if each.comm.startswith(SHIMS)}
    return [
        Member(each.pid, each.pid not in shims and not each.comm.startswith(HELPERS))
        for each in everyone
        if each.pid in shims or each.ppid in shims
    ]
