"""Giving up every capability once the programs are attached."""

import ctypes
import errno
import os
from pathlib import Path

from tracer.errors import TracerError

# include/uapi/linux/prctl.h
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522  # include/uapi/linux/capability.h: 64 bits, as two words


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def drop_privileges() -> None:
    """Drops all capabilities for good (bounding, ambient, inheritable, permitted, effective) and sets no_new_privs.

    What is open stays usable: ring, maps and attached programs need no capability any more (Linux 5.19).
    Capabilities belong to a thread, and no thread can take another's: call it before any other thread starts.
    Raises TracerError when there are several threads, or when the kernel refuses.
    """
    if sum(1 for _ in Path("/proc/self/task").iterdir()) > 1:
        raise TracerError("capabilities can only be dropped while there is one thread: drop them before others start")
    libc = ctypes.CDLL(None, use_errno=True)

    def prctl(option: int, argument: int) -> int:
        """0 or an errno."""
        words = (ctypes.c_ulong(each) for each in (argument, 0, 0, 0))
        return ctypes.get_errno() if libc.prctl(option, *words) else 0

    def require(done: int, what: str) -> None:
        if done:
            raise TracerError(f"cannot {what}: {os.strerror(done)}")

    require(prctl(PR_SET_NO_NEW_PRIVS, 1), "set no_new_privs")
    require(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL), "clear the ambient capabilities")
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
    for capability in range(last + 1):
        refused = prctl(PR_CAPBSET_DROP, capability)
        if refused == errno.EPERM:
            break  # without CAP_SETPCAP the bounding set stays; under no_new_privs it bounds nothing any more
        require(refused, f"drop capability {capability} from the bounding set")
    header = _Header(CAPABILITY_VERSION_3, 0)
    failed = libc.capset(ctypes.byref(header), ctypes.byref((_Sets * 2)()))
    require(ctypes.get_errno() if failed else 0, "drop the capabilities")
