"""Which sockets are traced: bound paths, or beginnings of paths, and how the kernel side looks them up."""

import os
from collections.abc import Sequence

from tracer.errors import TracerError
from tracer.kernel import layouts

RUNTIME_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",  # k3s, RKE2
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
)
"""On which the kubelet speaks CRI."""

SHIMS = "/run/containerd/s/"
"""The shims' own; the directory is a constant of containerd, whatever its configuration."""

PLUGINS = "/var/lib/kubelet/"


def around(runtimes: Sequence[str]) -> list[str]:
    """These sockets of runtimes, and what belongs to them: shims, their events, the kubelet's plugins (CSI, DRA ...).

    A runtime's shims publish events at its own path with `.ttrpc` behind it.
    """
    events = [f"{path}.ttrpc" for path in runtimes if path.endswith("containerd.sock")]
    return [*runtimes, *events, f"{SHIMS}*", f"{PLUGINS}*"]


SUN_PATH_BYTES = 108  # sizeof sockaddr_un.sun_path
PATTERNS = 1024  # WANTED_PATHS in bpf/ends.bpf.h

_KEY = layouts.WANTED_KEY.compiled()
_WANTED = layouts.WANTED.compiled()


def wanted_entries(patterns: Sequence[str], *, follow: bool) -> dict[bytes, bytes]:
    """Key and value of the kernel's table for every spelling of every pattern.

    A pattern is a path as the server bound it (`/run/x.sock`), an abstract name (`@x`), or the beginning of either
    followed by `*`. With `follow`, who serves one is taken for a runtime, unless it is a plugin of the kubelet's.
    Raises TracerError naming a pattern that cannot match.
    """
    entries: dict[bytes, bytes] = {}
    for pattern in patterns:
        runtime = follow and serves_runtime(pattern)
        for spelling in _spellings(pattern):
            entries[_key(spelling)] = _WANTED.pack(runtime, 0)
    if len(entries) > PATTERNS:
        raise TracerError(f"{len(entries)} socket paths are too many (at most {PATTERNS}): use a beginning and *")
    return entries


def serves_runtime(pattern: str) -> bool:
    """Whether who binds such a path is a runtime or a shim, and not a plugin."""
    return not pattern.startswith(PLUGINS)


def _spellings(pattern: str) -> set[str]:
    """A server may have bound the path through a link: the pattern's own spelling, the resolved one, and /var/run."""
    if not pattern.startswith(("/", "@")) or pattern in ("@", "/"):
        raise TracerError(f"socket path {pattern!r}: give an absolute path or @name, with * at the end for a beginning")
    if pattern.startswith("@"):
        return {pattern}
    pattern = pattern.rstrip("/")  # a socket is no directory, whatever completed its name
    directory, slash, name = pattern.rpartition("/")
    spellings = {pattern, os.path.realpath(directory or "/").rstrip("/") + slash + name}
    spellings |= {f"/var{each}" for each in spellings if each.startswith("/run/")}
    return spellings | {each.removeprefix("/var") for each in spellings if each.startswith("/var/run/")}


def _key(spelling: str) -> bytes:
    path = os.fsencode(spelling)
    if path.startswith(b"@"):
        path = b"\0" + path[1:]
    whole = not path.endswith(b"*")
    path = path if whole else path[:-1]
    if len(path) > SUN_PATH_BYTES:
        raise TracerError(f"socket path {spelling!r} has {len(path)} bytes: no socket can have more than 108")
    # The NUL after a whole path is part of its key: /run/a must not match /run/ab.
    return _KEY.pack(8 * (len(path) + whole), path)
