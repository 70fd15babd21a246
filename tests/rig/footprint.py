"""Everything a private node puts on the machine, and its removal: after a normal stop as well as after a kill.

The footprint is written to disk before the first thing is made, so a run that was killed can be cleaned up by the next.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.rig import linux

BASES = Path("/var/tmp")  # a real file system: /run is small and often mounted noexec, and the images' files live here
BASE_PREFIX = "criscope-node-"
RECORD = "footprint.json"

# Paths that containerd and the CNI library have compiled in and share between all instances on a machine.
SHIM_SOCKETS = Path("/run/containerd/s")
CNI_CACHES = (Path("/var/lib/cni/results"), Path("/var/lib/cni/cache"))
SHARED = (*CNI_CACHES, CNI_CACHES[0].parent, SHIM_SOCKETS, SHIM_SOCKETS.parent)

KILL_PATIENCE_SECONDS = 10.0
"""A killed process is gone in milliseconds; one that is not sits in an uninterruptible wait, and that must be said."""

_PROGRAMS = frozenset({"containerd", "containerd-shim-runc-v2", "runc"})


@dataclass(slots=True)
class Footprint:
    """Names of what one node may have made. `owner` is (pid, start time) of the process that must remove it."""

    owner: tuple[int, int]
    base: Path
    """images, snapshots, configuration, container logs"""
    runtime: Path
    """sockets, task state, network namespaces"""
    bridge: str
    cgroup: str
    """path below the root of every cgroup hierarchy"""
    shared: list[Path]
    """the directories of `SHARED` that did not exist before"""

    @property
    def plugins(self) -> Path:
        """Where its CNI plugins are run from."""
        return self.base / "cni-bin"

    def save(self) -> None:
        text = json.dumps(asdict(self), default=str)
        (self.base / RECORD).write_text(text)

    def processes(self) -> list[int]:
        """Pids of this node's containerd, shims, runc, CNI plugins, and everything in its pods."""
        found = set(_pids_in(self.cgroups()))
        for pid, argv in processes():
            program = os.path.basename(argv[0])  # noqa: PTH119  (argv[0] need not be a path)
            if any(word.startswith(f"{self.plugins}/") for word in argv[:2]):  # a program, or a script and its shell
                found.add(pid)
            if program in _PROGRAMS and any(str(self.runtime) in word or str(self.base) in word for word in argv):
                found.add(pid)
        return sorted(found)

    def mounts(self) -> list[str]:
        """Mount points at or below its directories, innermost first."""
        inside = []
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            point = line.split()[4].encode().decode("unicode_escape")
            if any(Path(point).is_relative_to(top) for top in (self.base, self.runtime)):
                inside.append(point)
        return sorted(inside, key=len, reverse=True)

    def remains(self) -> list[str]:
        """One line for each thing that is still there; empty when the machine is as it was."""
        lines = [f"process {pid}: {_command(pid)}" for pid in self.processes()]
        lines += [f"mount {point}" for point in self.mounts()]
        lines += [f"interface {self.bridge}"] if Path("/sys/class/net", self.bridge).exists() else []
        lines += [f"cgroup {path}" for path in self.cgroups()]
        lines += [f"directory {path}" for path in (self.base, self.runtime) if path.exists()]
        lines += [f"CNI result {path}" for path in self._cni_results()]
        lines += [f"shim socket {path}" for path in self._shim_sockets()]
        return lines + [f"directory {path}" for path in self.shared if _is_empty(path)]

    def remove(self) -> None:
        """Remove all of it, in any state, any number of times. Raises OSError naming what would not go."""
        self._kill()
        sockets = self._shim_sockets()  # their names stand in the directories that go away below
        for point in self.mounts():
            with contextlib.suppress(OSError):  # what stays is named below
                linux.unmount(point)
        if Path("/sys/class/net", self.bridge).exists():
            subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)
        for path in self.cgroups():
            _remove_cgroup(path)
        for path in (*sockets, *self._cni_results()):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.runtime, ignore_errors=True)
        for path in self.shared:
            if _is_empty(path):
                path.rmdir()
        if left := [line for line in self.remains() if line != f"directory {self.base}"]:
            raise OSError(f"could not remove what the node at {self.base} left: {'; '.join(left)}")
        # Last, and the record last of all in it: a removal that is itself interrupted can still be taken up again.
        for entry in self.base.iterdir() if self.base.exists() else ():
            if entry.name != RECORD:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.rmtree(self.base, ignore_errors=True)

    def _kill(self) -> None:
        deadline = time.monotonic() + KILL_PATIENCE_SECONDS
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return  # `remove` names them
            time.sleep(0.01)

    def cgroups(self) -> list[Path]:
        """Its directory in each hierarchy: below every controller (v1, hybrid) and below the root (v2)."""
        root = Path("/sys/fs/cgroup")
        hierarchies = (root, *(entry for entry in root.iterdir() if entry.is_dir()))
        return [path for top in hierarchies if (path := top / self.cgroup.lstrip("/")).is_dir()]

    def _cni_results(self) -> list[Path]:
        """The CNI library keeps each attachment's result, which names the network namespace: libcni's `cacheAdd`."""
        files = [path for cache in CNI_CACHES if cache.is_dir() for path in cache.iterdir()]
        return [path for path in files if f"{self.runtime}/" in _text(path)]

    def _shim_sockets(self) -> list[Path]:
        """Each task's bundle names the socket of its shim: containerd's pkg/shim `WriteAddress`.

        A shim that was killed as it started has bound its socket and not yet written its name, which is computed then
        (`SocketAddress`).
        """
        bundles = list(self.runtime.glob("state/io.containerd.runtime.v2.task/k8s.io/*"))
        sockets = {Path(_text(bundle / "address").removeprefix("unix://")) for bundle in bundles}
        for bundle in bundles:
            of = f"{self.runtime}/containerd.sock/k8s.io/{bundle.name}"
            sockets.add(Path("/run/containerd/s", hashlib.sha256(of.encode()).hexdigest()))
        return sorted(path for path in sockets if path.is_socket())


def abandoned() -> Iterator[Footprint]:
    """Footprints whose owner is gone: it was killed before it could remove them."""
    for record in BASES.glob(f"{BASE_PREFIX}*/{RECORD}"):
        footprint = load(record)
        if footprint is not None and owner(footprint.owner[0]) != footprint.owner:
            yield footprint


def load(record: Path) -> Footprint | None:
    """A saved footprint; None when its owner is writing or removing it at this moment."""
    try:
        fields = json.loads(record.read_text())
    except (OSError, ValueError):
        return None
    fields |= {name: Path(fields[name]) for name in ("base", "runtime")}
    fields["shared"] = [Path(path) for path in fields["shared"]]
    fields["owner"] = tuple(fields["owner"])
    return Footprint(**fields)


def owner(pid: int) -> tuple[int, int] | None:
    """`pid` with its start time in clock ticks since boot (proc(5), stat field 22), so that a reused pid differs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return pid, int(stat.rpartition(")")[2].split()[19])


def parent(pid: int) -> int | None:
    """Its parent's pid (proc(5), stat field 4); None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def processes() -> Iterator[tuple[int, list[str]]]:
    """Pid and arguments of every process on the machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (argv := _argv(int(entry.name))):
            yield int(entry.name), argv


def _argv(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _command(pid: int) -> str:
    return " ".join(_argv(pid))[:80]


def _pids_in(cgroups: Iterable[Path]) -> Iterator[int]:
    for top in cgroups:
        for cgroup in _cgroups_below(top):
            with contextlib.suppress(OSError):  # the pod went away meanwhile
                yield from (int(pid) for pid in (cgroup / "cgroup.procs").read_text().split())


def _remove_cgroup(top: Path) -> None:
    for path in sorted(_cgroups_below(top), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir()


def _cgroups_below(top: Path) -> Iterator[Path]:
    """`top` and all below it; one that goes away meanwhile is passed over (`os.walk` ignores such errors)."""
    return (Path(path) for path, _, _ in os.walk(top))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # another runtime removed it meanwhile


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
