"""What the path of a socket tells about the protocol spoken there."""

from functools import lru_cache


@lru_cache(maxsize=4096)
def is_ttrpc(path: str) -> bool:
    """Whether ttrpc is spoken on a socket bound at `path`: containerd's event socket and the shims' sockets.

    The shims' directory is a constant of containerd (`pkg/shim/util_unix.go`); containerd 1.3 bound them in the
    abstract namespace.
    """
    return path.endswith(".ttrpc") or "/containerd/s/" in path or path.startswith("@/containerd-shim/")
