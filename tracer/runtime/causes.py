"""Which CRI calls can be behind a step (containerd's `internal/cri/server`, CRI-O's `server`)."""

from dataclasses import dataclass

from tracer.facts import CriCall
from tracer.runtime.step import Step

_START = frozenset({"RunPodSandbox", "StartContainer"})
_STOP = frozenset({"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"})
_CREATE = frozenset({"CreateContainer"})
_UPDATE = frozenset({"UpdateContainerResources", "UpdatePodSandboxResources"})
_RUN = frozenset({"RunPodSandbox"})
_CHECKPOINT = frozenset({"CheckpointContainer"})
_NONE: frozenset[str] = frozenset()

SANDBOX_METHODS = frozenset({"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"})
"""What they do to a sandbox they do to its containers."""

CAUSES = _START | _STOP | _CREATE | _UPDATE | _CHECKPOINT | {"ExecSync", "PullImage"}
"""Methods that have steps."""

_SHIM = {
    "Create": _START,
    "Start": _START,
    "Connect": _START,
    "State": _START | _STOP | _CREATE | _UPDATE | _CHECKPOINT | {"ExecSync"},
    "Kill": _START | _STOP,  # a start that failed is taken back
    "Delete": _START | _STOP,
    "Shutdown": _START | _STOP,
    "Update": _UPDATE,
    "Pause": _CHECKPOINT,
    "Resume": _CHECKPOINT,
    "Checkpoint": _CHECKPOINT,
    "CreateSandbox": _RUN,
    "StartSandbox": _RUN,
    "StopSandbox": _RUN | {"StopPodSandbox", "RemovePodSandbox"},
    "ShutdownSandbox": _RUN | {"StopPodSandbox", "RemovePodSandbox"},
}

_RUNC = {
    "create": _START | _CREATE,  # CRI-O creates in CreateContainer
    "start": _START,
    "state": _START | _STOP | _CREATE,
    "kill": _START | _STOP | _CREATE,
    "delete": _START | _STOP | _CREATE,
    "update": _UPDATE,
    "pause": _CHECKPOINT,
    "resume": _CHECKPOINT,
    "checkpoint": _CHECKPOINT,
}

_CNI = {
    "ADD": _RUN,
    "DEL": SANDBOX_METHODS,
    None: SANDBOX_METHODS,  # a capture without the environment
}

BIRTHS = {
    "RunPodSandbox": frozenset({
        "Create", "Start", "Connect", "State", "CreateSandbox", "StartSandbox", "create", "start", "state",
    }),
    "CreateContainer": frozenset({"create", "state", "conmon"}),
}  # fmt: skip
"""Steps that may state the id which the call's answer will tell."""


def may_cause(step: Step) -> frozenset[str]:
    """Methods of the calls that can be behind `step`, which runs no command in a container."""
    if step.kind == "shim":
        return _SHIM.get(step.name, _NONE)
    if step.kind == "runc":
        return _RUNC.get(step.name, _NONE)
    if step.kind == "cni":
        return _CNI.get(step.command, _NONE)
    if step.name == "conmon":
        return _CREATE | _RUN
    if step.name.endswith(" start"):
        return _START
    if step.name.endswith(" delete"):
        return _START | _STOP
    if step.name == "pinns":
        return _RUN
    return frozenset({"PullImage"}) if step.name == "unpigz" else _NONE


def may_give_birth(method: str | None, step: Step) -> bool:
    """Whether `step` may be about what the call creates, whose id only its answer tells."""
    births = BIRTHS.get(method or "")
    if births is None:
        return False
    if step.name.endswith(" start"):
        return method == "RunPodSandbox"
    # A shim's Create is never CreateContainer's; conmon's may be RunPodSandbox's (its infra container).
    return step.name in births or (step.name == "conmon" and method == "RunPodSandbox")


@dataclass(slots=True, eq=False)
class Cause:
    """A call that can have steps. `born`: the id of what it creates, `guessed` while its answer has not told it."""

    call: CriCall
    born: str | None = None
    guessed: bool = False
    session: str | None = None  # the exec session that is its own

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids whose steps may be its own."""
        call = self.call
        if call.method in SANDBOX_METHODS:
            own = self.born if call.method == "RunPodSandbox" else call.sandbox_id
            return (own,) if own else ()
        if call.method == "CreateContainer":
            return tuple(each for each in (call.sandbox_id, self.born) if each)
        if call.method == "UpdatePodSandboxResources":
            return (call.sandbox_id,) if call.sandbox_id else ()
        return (call.container_id,) if call.container_id else ()

    def covers(self, time: int) -> bool:
        """Whether the runtime worked on the call at `time`, as far as known."""
        rpc = self.call.rpc
        begin = rpc.received
        if begin is None:
            if rpc.ended_by is None and rpc.peer.server_pid:
                return False  # it lies in the socket still
            begin = rpc.sent if rpc.sent is not None else rpc.start
        end = rpc.answered if rpc.answered is not None else rpc.end
        return begin <= time and (end is None or time <= end)
