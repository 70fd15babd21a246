"""The cgroups around a process, as their file systems show them: version 1, version 2, or both side by side."""

import re
from itertools import takewhile
from pathlib import Path

from tracer.observed import GroupSnapshot
from tracer.procfile import read_file

MAX_LEVELS = 8
"""Cgroups looked at from the process's own upwards, as any may limit it; Kubernetes' are 5 deep."""

MAX_KEPT = 64
"""Different cgroups read in one look, which has 32 processes; what lies in others is not known then."""

CGROUP_BYTES = 16 << 10
"""Of /proc/PID/cgroup: a dozen hierarchies with paths of 300 bytes are 4 KiB."""

_FILE_BYTES = 4 << 10  # cpu.stat, the longest, has 400 bytes
_SOME = re.compile(rb"^some avg10=(\d+\.\d+) ", re.MULTILINE)
_UNKNOWN = GroupSnapshot()
_UNIFIED = ""  # stands for version 2 where version 1 has the name of a controller


class Cgroups:
    """Process's cgroups, read once until `forget`, as processes share them. `proc`, `root`: where the mounts are."""

    def __init__(self, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._root = root
        self._unified = root if (root / "cgroup.controllers").exists() else root / "unified"
        # A reader in a cgroup namespace of its own (a pod's) sees the others' paths begin with as many /.. as its own
        # cgroup is deep. Process 1 is at the top, or one below (init.scope), so that its path tells how many.
        self._depths = {key: _climbs(path) for key, path in _paths(read_file(proc / "1/cgroup", CGROUP_BYTES)).items()}
        self._kept: dict[bytes, GroupSnapshot] = {}

    def forget(self) -> None:
        """The next to come are read anew."""
        self._kept.clear()

    def around(self, lines: bytes) -> GroupSnapshot:
        """`lines`: a process's /proc/PID/cgroup."""
        found = self._kept.get(lines)
        if found is None:
            if len(self._kept) >= MAX_KEPT:
                return _UNKNOWN
            found = self._kept[lines] = self._read(lines)
        return found

    def _read(self, lines: bytes) -> GroupSnapshot:
        paths = {key: self._from_the_top(key, path) for key, path in _paths(lines).items()}
        throttling, limit = self._throttling(paths)
        return GroupSnapshot(
            path=paths.get("memory", paths.get(_UNIFIED)),
            frozen=self._frozen(paths),
            throttling=throttling,
            cpu_limit=limit,
            cpu_pressure=self._pressure(paths, "cpu.pressure"),
            memory_pressure=self._pressure(paths, "memory.pressure"),
        )

    def _from_the_top(self, key: str, path: str) -> str | None:
        climbs = _climbs(path)
        if climbs != self._depths.get(key, 0):
            return None  # the levels in between have no name here
        return "/" + "/".join(path.split("/")[1 + climbs :])

    def _throttling(self, paths: dict[str, str | None]) -> tuple[dict[str, tuple[int, int]] | None, float | None]:
        """The counters of every cgroup around, and the least limit. None: not to be read."""
        old = "cpu" in paths
        path = paths.get("cpu" if old else _UNIFIED)
        if path is None:
            return None, None
        top = self._root / "cpu" if old else self._unified
        found: dict[str, tuple[int, int]] = {}
        limits = []
        readable = False
        for level in _levels(path):
            directory = top / level.lstrip("/")
            stat = read_file(directory / "cpu.stat", _FILE_BYTES)
            readable = readable or bool(stat)
            counters = dict(line.split(maxsplit=1) for line in stat.splitlines() if b" " in line)
            if b"nr_periods" not in counters:  # the root, or no controller here
                continue
            periods, throttled = (_number(counters.get(name)) for name in (b"nr_periods", b"nr_throttled"))
            found[level] = (periods, throttled)
            if periods:  # no limit, no periods
                limit = _old_limit(directory) if old else _limit(directory)
                if limit is not None:
                    limits.append(limit)
        return (found, min(limits, default=None)) if readable else (None, None)

    def _pressure(self, paths: dict[str, str | None], name: str) -> float | None:
        path = paths.get(_UNIFIED)
        if path is None or path == "/":  # the root's is the machine's
            return None
        some = _SOME.search(read_file(self._unified / path.lstrip("/") / name, _FILE_BYTES))
        return min(1.0, float(some[1]) / 100) if some else None

    def _frozen(self, paths: dict[str, str | None]) -> bool:
        """Version 1 says FREEZING while some process cannot be, and shows those that are as uninterruptible."""
        old, new = paths.get("freezer"), paths.get(_UNIFIED)
        if old is not None:
            state = read_file(self._root / "freezer" / old.lstrip("/") / "freezer.state", _FILE_BYTES)
            if state.startswith((b"FROZEN", b"FREEZING")):
                return True
        if new is None:
            return False
        return b"frozen 1" in read_file(self._unified / new.lstrip("/") / "cgroup.events", _FILE_BYTES)


def _paths(lines: bytes) -> dict[str, str]:
    """cgroups(7): `4:cpu,cpuacct:/path` in version 1, `0::/path` in version 2."""
    found = {}
    for line in lines.decode(errors="surrogateescape").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and path.startswith("/"):
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _climbs(path: str) -> int:
    """`/../../a` -> 2."""
    return sum(1 for _ in takewhile("..".__eq__, path.split("/")[1:]))


def _levels(path: str) -> list[str]:
    """`/a/b` -> `/a/b`, `/a`: the root has no limit."""
    names = path.strip("/").split("/")
    return ["/" + "/".join(names[:count]) for count in range(len(names), 0, -1)][:MAX_LEVELS]


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _limit(directory: Path) -> float | None:
    quota, _, period = read_file(directory / "cpu.max", _FILE_BYTES).strip().partition(b" ")
    return _cpus(quota, period)  # "max 100000" when there is none


def _old_limit(directory: Path) -> float | None:
    quota, period = (read_file(directory / f"cpu.cfs_{name}_us", _FILE_BYTES).strip() for name in ("quota", "period"))
    return _cpus(quota, period)  # -1 when there is none


def _cpus(quota: bytes, period: bytes) -> float | None:
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
