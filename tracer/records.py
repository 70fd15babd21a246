"""Records: what a source (the kernel's ring buffer, a capture file) delivers, one after the other in time order.

Times are kernel monotonic nanoseconds (`CLOCK_MONOTONIC`) taken when the operation *ended*. Records of different
CPUs may be out of order by some microseconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

Side = Literal["client", "server"]
Direction = Literal["send", "recv"]


@dataclass(slots=True)
class Opened:
    """The first operation on one end of a connection that this source saw; the connection may be older."""

    time: int
    connection: str
    side: Side
    path: str
    pid: int
    comm: str


@dataclass(slots=True)
class Data:
    """Bytes that one end of a connection sent or received.

    `connection` is shared by both ends and never used twice in the life of a source. `offset` counts the bytes of
    this end and direction since the source first saw it, so that a lost record is an exact hole. `length` bytes
    moved; `data` holds the first of them, possibly fewer (the kernel side drops payload under pressure).
    """

    time: int
    connection: str
    side: Side
    direction: Direction
    path: str  # as the server bound it, or as wanted (docs/kernel.md); "@name" for an abstract address
    pid: int
    tid: int
    comm: str  # of the process (thread group leader), not of the thread
    fd: int
    offset: int
    length: int
    data: bytes
    syscall: int | None = None  # number, when neither read nor write


@dataclass(slots=True)
class Closed:
    """One end of a connection saw its end: end of file (`error` 0) or an errno such as ECONNRESET."""

    time: int
    connection: str
    side: Side
    pid: int
    error: int


@dataclass(slots=True)
class Exec:
    """A descendant of the runtime executed a program.

    `env` holds only the CNI_* variables. `forked`: when the process began, ns; None where the source does not tell.
    """

    time: int
    pid: int
    ppid: int
    comm: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    forked: int | None = None


@dataclass(slots=True)
class Exit:
    """A descendant of the runtime ended; `code` is the wait status as of wait(2)."""

    time: int
    pid: int
    ppid: int
    comm: str
    code: int


@dataclass(slots=True)
class OomKill:
    """A process of this node, whoever's, was chosen to die for want of memory. None: this kernel does not tell."""

    time: int
    pid: int
    comm: str  # "" when the kernel does not tell
    uid: int | None
    cgroup: str | None  # the memory cgroup's path, whole (it begins with "/") unless it is deeper than 16 levels
    anon_bytes: int | None  # resident
    file_bytes: int | None
    shmem_bytes: int | None


@dataclass(slots=True)
class Lost:
    """The source dropped `count` records of `program` since the last such record (or since it began)."""

    time: int
    program: str
    count: int


Record = Opened | Data | Closed | Exec | Exit | OomKill | Lost


class Source(Protocol):
    """Where records come from: the kernel or a capture."""

    realtime_offset_ns: int
    """Wall clock minus monotonic clock, ns: adding it to a record's time gives Unix time."""

    def records(self) -> Iterator[Record]:
        """Every record in time order until the source ends."""
        ...
