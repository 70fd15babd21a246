"""Files of /proc and of the cgroup file systems: their text is made while they are read, so one read has it whole."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tracer.observed import State

_STAT_BYTES = 1024  # 52 numbers of at most 20 digits, most of them 0
_STATES: dict[bytes, State] = {
    b"R": "running", b"S": "sleeping", b"D": "disk_sleep", b"T": "stopped", b"t": "traced", b"Z": "zombie",
    b"X": "dead", b"I": "sleeping", b"P": "sleeping",
}  # fmt: skip
"""proc(5); I and P are sleeps of the kernel's own threads."""


def read_file(path: str | Path, limit: int, directory: int | None = None) -> bytes:
    """The first `limit` bytes; none when it is not there, may not be read, or its process is gone.

    `path` is relative to the descriptor `directory`, when given.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return b""
    try:
        return os.read(file, limit)
    except OSError:
        return b""
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class Stat:
    """proc(5), /proc/PID/stat. A process's `ticks` of CPU time are of all its threads, its `state` is of the first."""

    comm: str
    state: State
    ticks: int
    threads: int
    started: int  # ticks after the machine's start

    @classmethod
    def read(cls, path: str, directory: int) -> Self | None:
        """None when the process or thread is gone. Its name may hold any byte, also a closing parenthesis."""
        head, _, rest = read_file(path, _STAT_BYTES, directory).rpartition(b")")
        fields = rest.split()
        if len(fields) < 20 or fields[0] not in _STATES:
            return None
        return cls(
            head.partition(b"(")[2].decode(errors="backslashreplace"),
            _STATES[fields[0]],
            int(fields[11]) + int(fields[12]),
            int(fields[17]),
            int(fields[19]),
        )
