"""What the path of a socket tells about the protocol spoken there."""

from functools import lru_cache


@lru_cache(maxsize=4096)
def is_ttrpc(path: str) -> bool:
    """Whether ttrpc is spoken on a socket bound at `path`: containerd's event socket and the shims' sockets.

    The shims' directory is a constant of containerd (`pkg/shim/util_unix.go`); containerd 1.3 bound them in the
    abstract namespace.
    """
    return path.endswith(".ttrpc") or "/containerd/s/" in path or path.startswith("@/containerd-shim/")


_PLUGINS = ("/plugins/", "/plugins_registry/", "/device-plugins/", "/pod-resources/", "/pods-api/")


@lru_cache(maxsize=4096)
def is_plugin(path: str) -> bool:
    """Whether a socket bound at `path` is a plugin's or the kubelet's own: no CRI is spoken there.

    They lie below the kubelet's root directory, which is /var/lib/kubelet unless `--root-dir` says otherwise.
    """
    return "kubelet" in path and any(part in path for part in _PLUGINS)
