"""A cgroup of the test's own, in whichever version this machine has."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
UNIFIED = (ROOT / "cgroup.controllers").exists()
_FILES = {  # as version 2 names it: version 1's name, and how its value is spelt
    "memory.max": ("memory.limit_in_bytes", str),
    "cpu.max": ("cpu.cfs_quota_us", lambda value: value.split()[0]),  # the period is 100 ms in both
    "cgroup.freeze": ("freezer.state", lambda value: "FROZEN" if value == "1" else "THAWED"),
}


class Cgroup:
    """`path` is below the hierarchy's root, as /proc/PID/cgroup has it."""

    def __init__(self, controller: str, path: str) -> None:
        self.path = path
        self._controller = controller
        self.directory = (ROOT if UNIFIED else ROOT / controller) / path.lstrip("/")

    def up(self) -> "Cgroup":
        """The one around it."""
        return Cgroup(self._controller, self.path.rpartition("/")[0])

    def set(self, name: str, value: str) -> None:
        old, spelt = _FILES[name]
        (self.directory / (name if UNIFIED else old)).write_text(value if UNIFIED else spelt(value))

    @property
    def procs(self) -> Path:
        """Who writes its process id there is in."""
        return self.directory / "cgroup.procs"


@contextmanager
def cgroup(controller: str, *names: str) -> Iterator[Cgroup]:
    """Levels below the root, the last of which is given; all of them are gone afterwards."""
    levels = [Cgroup(controller, "/" + "/".join(names[: count + 1])) for count in range(len(names))]
    made: list[Path] = []
    try:
        for level in levels:
            level.directory.mkdir()
            made.append(level.directory)
        if UNIFIED:
            for each in [ROOT, *made[:-1]]:
                (each / "cgroup.subtree_control").write_text(f"+{controller}" if controller != "freezer" else "")
        yield levels[-1]
    finally:
        for each in reversed(made):
            _remove(each)


def _remove(directory: Path) -> None:
    """A process that was just killed may still be leaving."""
    for _ in range(100):
        try:
            directory.rmdir()
        except OSError:
            time.sleep(0.02)
        else:
            return
    directory.rmdir()
