"""The kubelet's pod lifecycle event generator: relists, events by the state table, and the pod cache it fills.

Follows pkg/kubelet/pleg/generic.go of Kubernetes 1.36 (`Relist`, `relistPod`, `reconcilePodRecord`, `generateEvents`).
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cri_api.v1 import api_pb2

from tests.rig.cri import CallError, Client, Subject
from tests.rig.oracle import Oracle, Scope
from tests.rig.pods import CONTAINER_NAME, POD_UID, identity

RELIST_PERIOD = 1.0
"""Seconds between the end of a relist and the start of the next (genericPlegRelistPeriod)."""

_CONTAINER_STATES = {
    api_pb2.CONTAINER_RUNNING: "running",
    api_pb2.CONTAINER_EXITED: "exited",
    api_pb2.CONTAINER_CREATED: "unknown",
    api_pb2.CONTAINER_UNKNOWN: "unknown",
}
_SANDBOX_STATES = {api_pb2.SANDBOX_READY: "running", api_pb2.SANDBOX_NOTREADY: "exited"}

_GONE = "non-existent"


@dataclass(frozen=True, slots=True)
class Event:
    type: str
    pod_uid: str
    id: str
    """of a container or sandbox"""


@dataclass(slots=True)
class PodRecord:
    """One pod as two lists showed it; newest sandbox and container first."""

    pod: dict[str, str]
    sandboxes: list[Any] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)

    def states(self) -> dict[str, str]:
        states = {sandbox.id: _SANDBOX_STATES[sandbox.state] for sandbox in self.sandboxes}
        return states | {container.id: _CONTAINER_STATES[container.state] for container in self.containers}


@dataclass(slots=True)
class PodStatus:
    """What the inspection of a pod's sandboxes and containers answered; newest first."""

    sandboxes: list[Any] = field(default_factory=list)
    containers: list[Any] = field(default_factory=list)


class Pleg:
    """One thread does all relists, generic and on demand. `deliver` gets the events of each."""

    def __init__(self, client: Client, oracle: Oracle, deliver: Callable[[Event], None]) -> None:
        self._client = client
        self._oracle = oracle
        self._deliver = deliver
        self._records: dict[str, PodRecord] = {}
        self._reinspect: set[str] = set()
        self._requests: queue.Queue[tuple[str, int]] = queue.Queue()
        self._cache: dict[str, PodStatus] = {}
        self._modified: dict[str, int] = {}
        self._relisted = 0
        self._changed = threading.Condition()

    def run(self, stopping: threading.Event) -> None:
        """Relist each second, and pods on demand in between, until told to stop."""
        while not stopping.is_set():
            self._relist()
            due = time.monotonic() + RELIST_PERIOD
            while not stopping.is_set() and (left := due - time.monotonic()) > 0:
                try:
                    uid, asked = self._requests.get(timeout=min(left, 0.1))
                except queue.Empty:
                    continue
                if asked > self._relisted:  # else a whole relist has seen it meanwhile
                    self._relist(uid)

    def request(self, uid: str) -> None:
        """Ask for an on-demand relist of one pod."""
        self._requests.put((uid, time.monotonic_ns()))

    def status_newer_than(self, uid: str, since: int, stopping: threading.Event) -> PodStatus:
        """The pod's status once it is known to be newer than `since` (monotonic ns): the kubelet's GetNewerThan."""
        with self._changed:
            while not stopping.is_set() and max(self._relisted, self._modified.get(uid, 0)) <= since:
                self._changed.wait(0.5)
            return self._cache.get(uid, PodStatus())

    def status(self, uid: str) -> PodStatus:
        with self._changed:
            return self._cache.get(uid, PodStatus())

    def _relist(self, uid: str | None = None) -> None:
        scope = Scope("pod_relist" if uid else "relist", self._oracle.number())
        start, listed, outcome = time.monotonic_ns(), None, "ok"
        current: dict[str, PodRecord] = {}
        events: list[tuple[Event, dict[str, str]]] = []
        try:
            current = list_pods(self._client, scope, uid)
            listed = time.monotonic_ns()
        except CallError:
            outcome = "failed"
        else:
            events = self._reconcile(current, [uid] if uid else [*{**self._records, **current}], scope)
        end = time.monotonic_ns()
        self._oracle.write(
            "relist",
            id=scope.id,
            scope="pod" if uid else "generic",
            start=start,
            listed=listed,
            end=end,
            outcome=outcome,
            sandboxes=sum(len(record.sandboxes) for record in current.values()),
            containers=sum(len(record.containers) for record in current.values()),
            calls=scope.calls,
        )
        if outcome == "failed":
            return
        with self._changed:
            if uid:
                self._modified[uid] = start
            else:
                self._relisted = start
            self._changed.notify_all()
        for event, pod in events:
            self._oracle.write(
                "pleg_event",
                time=end,
                type=event.type,
                pod=pod,
                pod_uid=event.pod_uid,
                id=event.id,
                relist=scope.id,
            )
            if event.type != "ContainerChanged":  # causes the inspection, but is not sent to the sync loop
                self._deliver(event)

    def _reconcile(
        self,
        current: dict[str, PodRecord],
        uids: list[str],
        scope: Scope,
    ) -> list[tuple[Event, dict[str, str]]]:
        """Inspect the pods that changed, one after the other. A pod whose inspection fails keeps its old record."""
        events: list[tuple[Event, dict[str, str]]] = []
        for uid in uids:
            old, new = self._records.get(uid), current.get(uid)
            known = new or old
            if known is None:
                continue
            found = _events(uid, old.states() if old else {}, new.states() if new else {})
            if (found or uid in self._reinspect) and new is not None:
                try:
                    status = inspect(self._client, scope, new)
                except CallError:
                    self._reinspect.add(uid)
                    continue
                found = found or [Event("PodSync", uid, uid)]
                with self._changed:
                    self._cache[uid] = status
            self._reinspect.discard(uid)
            if new is None:
                self._records.pop(uid, None)
                with self._changed:
                    self._cache.pop(uid, None)
            else:
                self._records[uid] = new
            events += [(event, known.pod) for event in found]
        return events


def list_pods(client: Client, scope: Scope, uid: str | None = None) -> dict[str, PodRecord]:
    """Sandboxes, then containers, of all pods or of one: never the two at once (kuberuntime `getPods`)."""
    selector = {POD_UID: uid} if uid else None
    sandboxes = client.call(
        "ListPodSandbox",
        api_pb2.ListPodSandboxRequest(filter=api_pb2.PodSandboxFilter(label_selector=selector)),
        scope,
    ).items
    containers = client.call(
        "ListContainers",
        api_pb2.ListContainersRequest(filter=api_pb2.ContainerFilter(label_selector=selector)),
        scope,
    ).containers
    records: dict[str, PodRecord] = {}
    for entry in sorted((*sandboxes, *containers), key=lambda entry: entry.created_at, reverse=True):
        record = records.setdefault(entry.labels[POD_UID], PodRecord(identity(entry.labels)))
        is_sandbox = isinstance(entry, api_pb2.PodSandbox)
        (record.sandboxes if is_sandbox else record.containers).append(entry)
    return records


def inspect(client: Client, scope: Scope, record: PodRecord) -> PodStatus:
    """Status of each sandbox, then of each container, one call after the other; what is gone meanwhile is left out."""
    status = PodStatus()
    for sandbox in record.sandboxes:
        request = api_pb2.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id)
        subject = Subject(pod=record.pod, sandbox_id=sandbox.id)
        answer = _unless_gone(client, "PodSandboxStatus", request, scope, subject)
        status.sandboxes += [answer.status] if answer else []
    for container in record.containers:
        answer = _unless_gone(
            client,
            "ContainerStatus",
            api_pb2.ContainerStatusRequest(container_id=container.id),
            scope,
            container_subject(container),
        )
        status.containers += [answer.status] if answer else []
    return status


def container_subject(container: Any) -> Subject:
    """From a listed container."""
    return Subject(
        pod=identity(container.labels),
        sandbox_id=container.pod_sandbox_id,
        container_id=container.id,
        container=container.labels[CONTAINER_NAME],
        attempt=container.metadata.attempt,
    )


def _unless_gone(client: Client, method: str, request: Any, scope: Scope, subject: Subject) -> Any:
    try:
        return client.call(method, request, scope, subject)
    except CallError as error:
        if error.status == "NOT_FOUND":
            return None
        raise


def _events(uid: str, old: dict[str, str], new: dict[str, str]) -> list[Event]:
    """generic.go `generateEvents`: each container and sandbox of either list."""
    return [
        Event(kind, uid, entry)
        for entry in {**old, **new}
        for kind in _kinds(old.get(entry, _GONE), new.get(entry, _GONE))
    ]


def _kinds(old: str, new: str) -> list[str]:
    if old == new:
        return []
    if new == _GONE:
        return ["ContainerRemoved"] if old == "exited" else ["ContainerDied", "ContainerRemoved"]
    return [{"running": "ContainerStarted", "exited": "ContainerDied", "unknown": "ContainerChanged"}[new]]
