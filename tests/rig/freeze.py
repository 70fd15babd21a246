"""A process that stands still: the runtime, a shim, or the driver (as kubelet)."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

STOP_SECONDS = 5.0
"""Until every thread of it stands; a signal takes microseconds, but a thread in an uninterruptible wait comes later."""


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process is stopped (SIGSTOP) within the block and goes on after it.

    `frozen(node.pid)` stops the runtime, `frozen(shims.pid(node, "cart"))` one pod's shim, `frozen(orders.pid)` the
    driver. Raises TimeoutError when it does not come to stand.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        due = time.monotonic() + STOP_SECONDS
        while not _stands(pid):
            if time.monotonic() > due:
                raise TimeoutError(f"process {pid} does not stop")
            time.sleep(0.001)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(pid, signal.SIGCONT)


def _stands(pid: int) -> bool:
    """Whether all its threads are in state T (proc(5), stat field 3)."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
