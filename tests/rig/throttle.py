"""A runtime that gets little CPU time, by a quota on a control group (versions 1 and 2)."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.rig.node import Node

PERIOD_MICROSECONDS = 100_000
"""The kernel's default."""

GROUP = "runtime"
"""The group's name within the node's; what is left in it is removed with the node."""

MOVE_SECONDS = 5.0
"""For processes to leave the group; one that has just ended leaves by itself."""

_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def throttled(node: Node, share: float) -> Iterator[None]:
    """containerd and what it starts get so much of one core (0.02: 2 ms in each 100 ms) within the block.

    Raises OSError where no CPU quota can be set (a container without write access to its control groups).
    """
    top, version = _hierarchy()
    group = top / node.footprint.cgroup.lstrip("/") / GROUP
    former = top / _path(node.pid, version).lstrip("/")
    group.mkdir(parents=True)
    try:
        quota = max(1000, round(share * PERIOD_MICROSECONDS))  # the kernel's least: 1 ms
        if version == 1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            for above in (group.parent.parent, group.parent):
                (above / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        (group / "cgroup.procs").write_text(str(node.pid))
        yield
    finally:
        _dissolve(group, former)


def _dissolve(group: Path, into: Path) -> None:
    due = time.monotonic() + MOVE_SECONDS
    while group.exists():
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (into / "cgroup.procs").write_text(pid)
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > due:
                raise
            time.sleep(0.01)


def _hierarchy() -> tuple[Path, int]:
    """Where CPU quotas are set, and the version of control groups there."""
    if (_ROOT / "cgroup.controllers").exists():
        return _ROOT, 2
    for name in ("cpu", "cpu,cpuacct"):
        if (_ROOT / name / "cpu.cfs_quota_us").exists():
            return _ROOT / name, 1
    raise FileNotFoundError(f"no control groups for CPU time below {_ROOT}")


def _path(pid: int, version: int) -> str:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" if version == 2 else "cpu" in controllers.split(","):
            return path
    raise LookupError(f"process {pid} is in no control group for CPU time")
