"""Where in the kernel threads wait uninterruptibly: /proc/PID/stack, without the privilege that asks for."""

import os
from types import TracebackType
from typing import Self

from tracer.errors import KernelError
from tracer.kernel.program_object import ProbeReport, ProgramObject, refusal

PROGRAM = "blocked_tasks"

MAX_BYTES = 256 << 10
"""Of one reading: some 200 threads of 32 functions with names of 40 letters; the rest is not looked at."""

_READ_BYTES = 32 << 10  # the kernel hands out no more at once


class BlockedTasks:
    """Loads the iterator, which costs nothing until it is read. Load before privileges are dropped.

    `probe` says whether this kernel took it; without it nothing is found. For one thread.
    """

    def __init__(self) -> None:
        """Raises TracerError when libbpf or the object is missing."""
        self._object = ProgramObject.shipped("blocked")
        try:
            self._object.load()
            self._object.attach(PROGRAM)
        except KernelError as err:
            self.probe = ProbeReport(PROGRAM, attached=False, reason=refusal(err.log) or str(err))
        else:
            self.probe = ProbeReport(PROGRAM, attached=True)

    def stacks(self) -> dict[int, tuple[str, ...]]:
        """By number of thread: the kernel's functions it is in, innermost first."""
        if not self.probe.attached:
            return {}
        text = b""
        try:
            file = self._object.iterate(PROGRAM)
        except KernelError:
            return {}
        try:
            while len(text) < MAX_BYTES and (more := os.read(file, _READ_BYTES)):
                text += more
        except OSError:
            return {}
        finally:
            os.close(file)
        whole = text.rpartition(b"\n")[0]  # a line that the bound cuts would name another function
        return parse_stacks(whole.decode(errors="replace"))

    def close(self) -> None:
        self._object.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def parse_stacks(text: str) -> dict[int, tuple[str, ...]]:
    r"""`"7\n __lock_page\n nfs_wait [nfs]\n"` -> `{7: ("__lock_page", "nfs_wait")}`."""
    found: dict[int, list[str]] = {}
    frames: list[str] = []
    for line in text.splitlines():
        if line.isdigit():
            frames = found[int(line)] = []
        elif line.startswith(" ") and (name := line[1:].partition(" ")[0]):
            frames.append(name)
    return {tid: tuple(each) for tid, each in found.items()}
