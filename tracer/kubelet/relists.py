"""Relists: the PLEG's passes over all pods (`generic.go:Relist`) or over one (`relistPod`, kubelet 1.36)."""

from dataclasses import dataclass, field
from typing import Literal

from tracer.facts import CriCall, Scope
from tracer.kubelet.inspection import Inspection, PodInspector
from tracer.kubelet.pleg import EventType, PlegEvent, PodRecord, derive, pod_records
from tracer.kubelet.runs import NEXT_NS, ActivityKind, Run

RELIST_PERIOD_NS = 990_000_000
"""The next relist starts 1 s after the end of the last (`genericPlegRelistPeriod`), so never sooner; 1 % for stamps."""

UNHEALTHY_AFTER_NS = 180_000_000_000
"""The kubelet calls its PLEG unhealthy when the last relist whose lists succeeded began longer ago than this
(`genericPlegRelistThreshold`, `generic.go:Healthy`)."""

EVENTED_UNHEALTHY_AFTER_NS = 600_000_000_000
"""The same while the runtime streams its events and relists come each five minutes (`eventedPlegRelistThreshold`)."""

INSPECTION_PATIENCE_NS = 500_000_000
"""The kubelet works between inspections (cgroup reads, cache); a pod that it does not ask for within this time is not
going to be asked for."""


@dataclass(slots=True)
class Relist:
    """One relist. Times in ns; `end` None while it lasts. `interval`: start to start of consecutive generic ones."""

    id: str
    kind: Literal["generic", "pod", "evented"]
    start: int
    end: int | None = None
    interval: int | None = None
    list_sandboxes: CriCall | None = None
    list_containers: CriCall | None = None
    inspections: list[Inspection] = field(default_factory=list)
    outcome: Literal["ok", "failed", "open"] = "open"
    calls: list[CriCall] = field(default_factory=list)
    events: list[PlegEvent] = field(default_factory=list)
    complete: bool = True

    @property
    def waiting_for(self) -> CriCall | None:
        """The call an open relist waits for; everything in it is serial, so there is at most one."""
        return next((call for call in reversed(self.calls) if call.rpc.end is None), None)


class Records:
    """The PLEG's memory over relists.

    `known` is false until the first relist of a kubelet that is older than the tracer was seen: what changed before
    it is not known, so it gives no events.
    """

    def __init__(self, *, known: bool) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.known = known
        self.again: set[str] = set()  # uids whose inspection failed: inspected again


class RelistRun(Run):
    """A relist while it runs. `tentative`: its first list may be another run's; only what follows tells."""

    patience = INSPECTION_PATIENCE_NS

    def __init__(self, call: CriCall, records: Records, *, tentative: Run | None = None) -> None:
        self.prefix = "r"
        super().__init__(call)
        pod = call.scope is Scope.POD
        self.kind: ActivityKind = "pod_relist" if pod else "relist"
        self.records = records
        self.tentative = tentative
        self.relist = Relist(self.id, "pod" if pod else "generic", call.rpc.start)
        self.uid = call.pod_uid
        self._waiting: dict[str, PodInspector] = {}  # pods still to be inspected
        self._current: PodInspector | None = None
        self._changes: dict[str, list[tuple[EventType, str]]] = {}
        self._new: dict[str, PodRecord] = {}
        self._lists = 0
        self.listed_at: int | None = None
        self.late = False
        self.rivalled = False  # another list is known to be the relist's: a tentative one is not
        self.noted = False  # as a boundary between passes
        self.given = 0  # events handed out

    def wants(self, call: CriCall) -> bool:
        relist = self.relist
        if self._lists == 1:
            if call.asks != "ListContainers":
                return False
            return call.scope is Scope.POD and call.pod_uid == self.uid if self.uid else call.scope is Scope.ALL
        if relist.list_containers is None:
            return False
        if self._current is not None and self._current.wants(call):
            return True
        if self._current is not None and not self._current.complete:
            return False
        return any(inspector.wants(call) for inspector in self._waiting.values())

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        relist, time = self.relist, call.rpc.start
        relist.calls.append(call)
        if relist.list_sandboxes is None:
            relist.list_sandboxes = call
        elif relist.list_containers is None:
            relist.list_containers = call
            self.tentative = None
        else:
            if self._current is None or not self._current.wants(call):
                self._current = next(item for item in self._waiting.values() if item.wants(call))
            self._current.sent(call, time)
            if len(self._current.inspection.calls if self._current.inspection else ()) == 1:
                assert self._current.inspection is not None
                relist.inspections.append(self._current.inspection)

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        if not call.rpc.complete:
            self.relist.complete = False
        if self._lists < 2:
            self._lists += 1
            if call.rpc.status not in ("OK", None) or call.rpc.ended_by != "server":
                self._finish("failed", time)
            elif self._lists == 2:
                self._listed(time)
            return
        assert self._current is not None
        self._current.done(call, time)
        if self.over:
            self.relist.end = time  # it had asked all but the newest sandbox once more
        uid = self._current.record.pod.uid
        if uid in self._waiting and self._current.complete:
            # OpenShift's kubelet may still ask for the sandbox a second time.
            del self._waiting[uid]
            self._give(uid, time, failed=self._current.failed)
            if not self._waiting:
                self._finish("ok", time)

    def _listed(self, time: int) -> None:
        """Both lists are in: what changed, and which pods are inspected for it."""
        self.listed_at = time
        first, second = self.relist.list_sandboxes, self.relist.list_containers
        assert first is not None
        assert second is not None
        sandboxes, containers = first.sandboxes, second.containers
        if sandboxes is None or containers is None:
            # An answer that was not seen whole: nothing follows from it.
            self.relist.complete = False
            self._finish("ok", time)
            return
        new = pod_records(sandboxes, containers)
        records = self.records
        if not records.known and self.uid is None:
            records.pods, records.known = new, True
            self._finish("ok", time)
            return
        if not records.known:
            self._finish("ok", time)
            return
        uids = [self.uid] if self.uid else list(dict.fromkeys([*records.pods, *new]))
        for uid in uids:
            changes = derive(records.pods.get(uid), new.get(uid))
            record = new.get(uid)
            if not changes and uid not in records.again:
                if record is not None:
                    records.pods[uid] = record
                continue
            self._changes[uid] = changes or [("PodSync", uid)]
            if record is None:
                self._give(uid, time, failed=False)
            else:
                self._new[uid] = record
                self._waiting[uid] = PodInspector(record)
        if not self._waiting:
            self._finish("ok", time)

    def _give(self, uid: str, time: int, *, failed: bool) -> None:
        """The pod's changes become events, unless its inspection failed: then the next relist sees them again."""
        changes = self._changes.pop(uid, [])
        if failed:
            self.records.again.add(uid)
            return
        self.records.again.discard(uid)
        record = self._new.pop(uid, None)
        pod = record.pod if record else self.records.pods[uid].pod
        if record is not None:
            self.records.pods[uid] = record
        else:
            self.records.pods.pop(uid, None)
        for kind, container_id in changes:
            name = f"{self.id}.{len(self.relist.events)}"
            self.relist.events.append(PlegEvent(name, time, kind, pod, container_id, self.id))

    def _finish(self, outcome: Literal["ok", "failed"], time: int) -> None:
        self.relist.outcome = outcome
        self.relist.end = time
        self.over = True

    def again(self, call: CriCall) -> bool:
        """Whether it asks again for a pod's newest sandbox, with which OpenShift's kubelet ends a relist."""
        end = self.relist.end
        if not self.over or end is None or self._current is None or not self._current.wants(call):
            return False
        return self.calls[-1].sandbox_id == call.sandbox_id and call.rpc.start - end <= NEXT_NS

    def expire(self, now: int) -> None:
        if self.ready is None or self.over or now - self.ready <= self.patience:
            return
        self.supersede(self.ready)

    def supersede(self, time: int) -> None:
        """It is over though not all that was expected came (the kubelet went on, or calls of it were not seen)."""
        if self.over:
            return
        if self._lists < 2:
            self.relist.complete = False
        for uid in list(self._waiting):
            del self._waiting[uid]
            self._give(uid, time, failed=False)
        self._finish("ok" if self._lists == 2 else "failed", time)
