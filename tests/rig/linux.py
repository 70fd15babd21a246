"""System calls that Python does not wrap."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def name_process(name: str) -> None:
    """Set the calling thread's comm (15 bytes at most); called by the main thread it names the process."""
    _check(_libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0), "prctl")


def end_with_parent() -> None:
    """Be killed when the thread that started this process ends, however it ends: SIGKILL reaches a stopped one too."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def mount_overlay(target: str, options: str) -> None:
    """mount(2) rather than mount(8), which leaves its own files in /run. Raises OSError where overlays do not mount."""
    _check(_libc.mount(b"overlay", target.encode(), b"overlay", 0, options.encode()), target)


def mount_tmpfs(target: str, size: int) -> None:
    """A file system in memory of so many bytes."""
    _check(_libc.mount(b"tmpfs", target.encode(), b"tmpfs", 0, f"size={size}".encode()), target)


def unmount(target: str) -> None:
    """Detach a mount point, busy or not: a root file system may stay in use for an instant after its last process."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), target)


def _check(result: int, subject: str) -> None:
    if result == -1:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), subject)
