"""PLEG's memory: what the last lists showed of each pod, and the events that follow from the next ones.

Rules: `pkg/kubelet/pleg/generic.go` (`convertState`, `generateEvents`, `computeEvents`); sandboxes count as containers.
"""

from dataclasses import dataclass, field
from typing import Literal

from tracer.facts import (
    EVENT_DELETED,
    EVENT_STARTED,
    EVENT_STOPPED,
    EXITED,
    RUNNING,
    ListedContainer,
    ListedSandbox,
    Pod,
)

EventType = Literal["ContainerStarted", "ContainerDied", "ContainerRemoved", "ContainerChanged", "PodSync"]
State = Literal["running", "exited", "unknown", "absent"]

_EVENTS: dict[tuple[State, State], tuple[EventType, ...]] = {
    ("absent", "running"): ("ContainerStarted",),
    ("absent", "exited"): ("ContainerDied",),
    ("absent", "unknown"): ("ContainerChanged",),
    ("running", "exited"): ("ContainerDied",),
    ("running", "unknown"): ("ContainerChanged",),
    ("running", "absent"): ("ContainerDied", "ContainerRemoved"),
    ("exited", "running"): ("ContainerStarted",),
    ("exited", "unknown"): ("ContainerChanged",),
    ("exited", "absent"): ("ContainerRemoved",),
    ("unknown", "running"): ("ContainerStarted",),
    ("unknown", "exited"): ("ContainerDied",),
    ("unknown", "absent"): ("ContainerDied", "ContainerRemoved"),
}


@dataclass(slots=True)
class PlegEvent:
    """What a relist told the SyncLoop; `time`: when the pod's inspection was over (the list's end without one)."""

    id: str
    time: int
    type: EventType
    pod: Pod
    container_id: str
    relist: str  # or the call of the stream that brought it (evented PLEG)


STREAMED: dict[int, tuple[EventType, ...]] = {
    EVENT_STARTED: ("ContainerStarted",),
    EVENT_STOPPED: ("ContainerDied",),
    EVENT_DELETED: ("ContainerDied", "ContainerRemoved"),
}
"""What the evented PLEG makes of a runtime's event (`evented.go:processCREvent`); created ones only fill its cache."""


@dataclass(slots=True)
class PodRecord:
    """One pod as a pair of lists showed it: its sandboxes and containers, newest first, and all states by id."""

    pod: Pod
    sandboxes: list[ListedSandbox] = field(default_factory=list)
    containers: list[ListedContainer] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)


def pod_records(sandboxes: tuple[ListedSandbox, ...], containers: tuple[ListedContainer, ...]) -> dict[str, PodRecord]:
    """The lists' pods by uid (`kuberuntime_manager.go:getPods`)."""
    records: dict[str, PodRecord] = {}
    for sandbox in sandboxes:
        record = records.get(sandbox.pod.uid)
        if record is None:
            record = records[sandbox.pod.uid] = PodRecord(sandbox.pod)
        record.sandboxes.append(sandbox)
        record.states[sandbox.id] = "running" if sandbox.ready else "exited"
    for container in containers:
        if container.pod is None:
            continue
        record = records.get(container.pod.uid)
        if record is None:
            record = records[container.pod.uid] = PodRecord(container.pod)
        record.containers.append(container)
        state = container.state
        record.states[container.id] = "running" if state == RUNNING else "exited" if state == EXITED else "unknown"
    for record in records.values():
        record.sandboxes.sort(key=lambda item: -item.created_at)
        record.containers.sort(key=lambda item: -item.created_at)
    return records


def derive(old: PodRecord | None, new: PodRecord | None) -> list[tuple[EventType, str]]:
    """(type, container or sandbox id) of every change from `old` to `new`; None where the pod is absent."""
    before = old.states if old else {}
    after = new.states if new else {}
    if before == after:
        return []
    changes: list[tuple[EventType, str]] = []
    for key in (*before, *(k for k in after if k not in before)):
        pair = (before.get(key, "absent"), after.get(key, "absent"))
        changes += [(kind, key) for kind in _EVENTS.get(pair, ())]
    return changes
