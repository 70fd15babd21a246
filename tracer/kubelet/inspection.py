"""Inspection: the serial status calls for one pod (`kuberuntime_manager.go:GetPodStatus`)."""

from dataclasses import dataclass, field

from tracer.facts import CriCall, Pod, Scope
from tracer.kubelet.pleg import PodRecord


@dataclass(slots=True)
class Inspection:
    """One pod's status calls within a relist; `end` None while it lasts."""

    pod: Pod
    start: int
    end: int | None = None
    calls: list[CriCall] = field(default_factory=list)
    failed: bool = False


class PodInspector:
    """What is still to be asked about one pod: every sandbox, then every container.

    Kubelets up to 1.35 list the pod's sandboxes before and its containers between the two. OpenShift's kubelet asks
    for the newest sandbox twice.
    """

    __slots__ = ("_asked", "containers", "inspection", "record", "sandboxes")

    def __init__(self, record: PodRecord) -> None:
        self.record = record
        self.sandboxes = {item.id for item in record.sandboxes}
        self.containers = {item.id for item in record.containers}
        self._asked: set[str] = set()
        self.inspection: Inspection | None = None

    def wants(self, call: CriCall) -> bool:
        method = call.asks
        if method == "ContainerStatus":
            return call.container_id in self.containers and call.container_id not in self._asked
        if method == "PodSandboxStatus":
            return call.sandbox_id in self.sandboxes and not self._asked & self.containers
        if method in ("ListPodSandbox", "ListContainers"):
            return call.scope is Scope.POD and call.pod_uid == self.record.pod.uid and method not in self._asked
        return False

    def sent(self, call: CriCall, time: int) -> None:
        if self.inspection is None:
            self.inspection = Inspection(self.record.pod, time)
        self.inspection.calls.append(call)
        self._asked.add(call.container_id or call.sandbox_id or call.asks or "")

    def done(self, call: CriCall, time: int) -> None:
        assert self.inspection is not None
        self.inspection.end = time
        gone = call.rpc.status == "NOT_FOUND"
        if call.rpc.status not in ("OK", None) and not gone:
            self.inspection.failed = True
        if call.rpc.ended_by != "server":
            self.inspection.failed = True

    @property
    def failed(self) -> bool:
        """A status call failed: the pod's changes are seen again by the next relist."""
        return self.inspection is not None and self.inspection.failed

    @property
    def complete(self) -> bool:
        """Everything was asked, or an error ended it."""
        if self.inspection is None:
            return False
        if self.inspection.failed:
            return True
        return self.sandboxes <= self._asked and self.containers <= self._asked
