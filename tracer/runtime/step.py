"""A step: one thing the runtime had done for a call."""

from dataclasses import dataclass, field
from typing import Literal

from tracer.facts import Container, CriCall, Pod

StepKind = Literal["shim", "runc", "cni", "exec"]


@dataclass(slots=True, eq=False)
class Step:
    """A call to a shim or a program that ran. Times are monotonic ns, None where not seen (or not yet).

    `name`: the ttrpc method ("Create"), runc's verb ("create"), the CNI plugin's type ("bridge"), else the program
    ("conmon", "containerd-shim-runc-v2 start"). `pid`: of the process; of a call to a shim the shim's. `call`: the CRI
    call that caused it, None while that is not certain. `parent`: id of the step it lies in. `exit_code` is None when a
    `signal` ended it. `command`: CNI_COMMAND. `received`: when the shim had read the request.
    """

    id: str
    kind: StepKind
    name: str
    start: int
    end: int | None = None
    pid: int | None = None
    call: CriCall | None = None
    parent: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    status: str | None = None
    error: str | None = None
    command: str | None = None
    container_id: str | None = None
    sandbox_id: str | None = None
    exec_id: str | None = None
    pod: Pod | None = None
    container: Container | None = None
    received: int | None = None
    subject: str | None = None  # the id it states, a container's or a sandbox's
    shown: bool = True  # false while it is one of the runtime's many small questions
    children: list["Step"] = field(default_factory=list, repr=False)
