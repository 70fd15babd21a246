"""Sync passes: one SyncPod or SyncTerminatingPod of a pod worker, as far as it made calls."""

from dataclasses import dataclass, field
from typing import Literal

from tracer.facts import CriCall, Pod, Scope
from tracer.kubelet.inspection import PodInspector
from tracer.kubelet.pleg import pod_records
from tracer.kubelet.runs import ActivityKind, Run

PassKind = Literal["create", "start_container", "restart", "kill_container", "recreate_sandbox", "resize", "terminate"]
Trigger = Literal["config", "pleg", "probe", "timer", "unknown"]

PASS_PATIENCE_NS = 35_000_000_000
"""Within a pass a device plugin's PreStartContainer may take 30 s between two calls (`deviceplugin` constants)."""

CHANGING = frozenset({
    "RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "UpdateContainerResources",
    "UpdatePodSandboxResources",
})  # fmt: skip
"""Calls only a pod worker makes for a pod (sandbox GC's StopPodSandbox aside, which its own run claims)."""

_STAGE = {
    "RunPodSandbox": "sandbox",
    "PodSandboxStatus": "sandbox_status",
    "ImageStatus": "image",
    "PullImage": "pull",
    "CreateContainer": "create",
    "StartContainer": "start",
    "StopContainer": "stop_container",
    "StopPodSandbox": "stop_sandbox",
    "ExecSync": "hook",
    "UpdateContainerResources": "resize",
    "UpdatePodSandboxResources": "resize",
    "ListContainerStats": "resize",
    "ContainerStatus": "remove",
    "RemoveContainer": "remove",
}

_LISTED = frozenset({"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"})
_RESIZING = frozenset({"UpdateContainerResources", "UpdatePodSandboxResources", "ListContainerStats"})
"""The last: of one sandbox, before a memory limit is lowered (`PodCPUAndMemoryStats`)."""

_FOLLOWS = {
    "RunPodSandbox": ("PodSandboxStatus", "ImageStatus", "PullImage"),
    "CreateContainer": ("StartContainer",),
    "PullImage": ("ImageStatus",),
    "StopPodSandbox": ("StopPodSandbox", "ListPodSandbox"),
    "ListPodSandbox": ("ListContainers", "PodSandboxStatus"),
}
"""What the kubelet goes on with in the same pass, however many relists come between. Anything else after a relist is
another pass: the call in between was not seen, or not named."""


@dataclass(slots=True)
class Stage:
    """Calls of one kind in a row; `end` None while one is open."""

    name: str
    start: int
    end: int | None = None
    calls: list[CriCall] = field(default_factory=list)


@dataclass(slots=True)
class SyncPass:
    """One pass of a pod worker. `end` None until it is known to be over; `outcome` "failed": its last change was.

    "unknown": a call that had to follow was not seen, or got no name; `complete` is false then.
    """

    id: str
    pod: Pod
    start: int
    kind: PassKind = "start_container"
    trigger: Trigger = "unknown"
    end: int | None = None
    stages: list[Stage] = field(default_factory=list)
    calls: list[CriCall] = field(default_factory=list)
    outcome: Literal["ok", "failed", "open", "unknown"] = "open"
    complete: bool = True


class SyncRun(Run):
    """A sync pass while it runs."""

    prefix = "s"
    kind: ActivityKind = "sync"
    patience = PASS_PATIENCE_NS

    def __init__(self, call: CriCall, pod: Pod) -> None:
        super().__init__(call)
        self.pod = pod
        self.sync = SyncPass(self.id, pod, call.rpc.start)
        self.trace = call.rpc.trace
        self.last_done: int | None = None
        self.quiet = False  # the PLEG told nothing about the pod just before
        self._unseen = False  # it was given up although a call had to follow
        self._image: str | None = None  # image whose presence was ensured; its user is asked next
        self._bare = 0  # questions about it without the pod's annotations that may still come
        self._check: PodInspector | None = None  # SyncTerminatingPod's final check
        self._listed: list[CriCall] = []

    # what can come next

    @property
    def unfinished(self) -> bool:
        """Whether the last answer obliges the kubelet to go on in this pass."""
        if not self.calls:
            return False
        last = self.calls[-1]
        if _failed(last):
            return False
        if last.asks == "ListPodSandbox":
            return True
        if last.asks == "StopPodSandbox":
            # A pod that nobody knows, killed after a look at what its containers were, is not checked in the end.
            return self.sync.kind == "terminate" and self.calls[0].asks != "ContainerStatus"
        return last.asks in ("RunPodSandbox", "CreateContainer", "PullImage")

    def continues(self, call: CriCall) -> bool:
        """Whether `call` belongs to this pass although a relist came between: it ends what the pass began."""
        if call.asks == "CreateContainer":
            return self._image is not None
        if not self.unfinished or call.asks not in _FOLLOWS.get(self.calls[-1].asks or "", ()):
            return False
        return call.asks != "StartContainer" or call.container_id == self.calls[-1].container_id

    def wants(self, call: CriCall) -> bool:
        method, last = call.asks, self.calls[-1]
        if self.trace and call.rpc.trace:
            if call.rpc.trace != self.trace:
                return False
            if method in ("ContainerStatus", "RemoveContainer") or (method in _LISTED and call.scope is Scope.POD):
                # Only a trace id tells the removal of old containers, or the lists that find the pod's address for a
                # hook over HTTP (`handlers.go:runHTTPHandler`), from those of other goroutines.
                return True
        if method == "PodSandboxStatus":
            if self._check is not None:
                return self._check.wants(call)
            if self._listed and last.asks in ("ListPodSandbox", "PodSandboxStatus"):
                return call.sandbox_id in {item.id for item in self._listed[0].sandboxes or ()}  # kubelet 1.35
            return last.asks == "RunPodSandbox" and call.sandbox_id == last.sandbox_id
        if method == "ContainerStatus":
            return self._check is not None and self._check.wants(call)
        if method == "ListPodSandbox":
            stopped = last.asks == "StopPodSandbox"
            return stopped and call.scope is Scope.POD and call.pod_uid == self.pod.uid
        if method == "ListContainers":
            checking = last.asks in ("ListPodSandbox", "PodSandboxStatus") and self._listed
            return bool(checking) and call.scope is Scope.POD and call.pod_uid == self.pod.uid
        if method == "ImageStatus":
            # The image's user (getImageUser) or size: no annotations tell the pod.
            return self._bare > 0 and self._image == call.image and last.asks in ("ImageStatus", "PullImage")
        if method == "RemoveContainer":
            # All of a pod's containers are restarted: no logs are looked for (`RestartAllContainers`).
            return last.asks == "RemoveContainer" or (
                last.asks == "StopContainer" and last.container_id == call.container_id
            )
        if method == "ExecSync":
            return self.starts(call)
        return False

    def starts(self, call: CriCall) -> bool:
        """Whether `call` is the hook of the container that was started last (`lifecycle.PostStart`)."""
        last = self.calls[-1]
        return last.asks == "StartContainer" and last.container_id == call.container_id and not call.timeout

    # what came

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        sync = self.sync
        sync.calls.append(call)
        sync.outcome, sync.end, self.over = "open", None, False
        if self._unseen:
            self._unseen, sync.complete = False, True  # here it is
        method = call.asks or ""
        self._kind_after(call)
        if method == "ImageStatus" and call.annotated:
            self._image, self._bare = call.image, 1  # its user (`getImageUser`)
        elif method == "ImageStatus":
            self._bare -= 1
        elif method == "PullImage":
            self._image, self._bare = call.image or self._image, 2  # its size too (`GetImageSize`)
        elif method == "CreateContainer":
            self._image = None
        if self._check is not None and method in ("PodSandboxStatus", "ContainerStatus"):
            self._check.sent(call, call.rpc.start)
        elif self._listed and method == "ListContainers":
            self._listed.append(call)
        elif method == "ListPodSandbox":
            self._listed = [call]
        name = _STAGE.get(method, "other")
        if self._listed and method in _LISTED:
            name = "check" if sync.kind == "terminate" else "hook"
        if not sync.stages or sync.stages[-1].name != name:
            sync.stages.append(Stage(name, call.rpc.start))
        sync.stages[-1].calls.append(call)
        sync.stages[-1].end = None

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        self.last_done = time
        if not call.rpc.complete:
            self.sync.complete = False
        for stage in self.sync.stages:
            if call in stage.calls and all(other.rpc.end is not None for other in stage.calls):
                stage.end = time
        if self._check is not None and call.asks in ("PodSandboxStatus", "ContainerStatus"):
            self._check.done(call, time)
        self._start_check()

    def _start_check(self) -> None:
        """SyncTerminatingPod lists the pod's sandboxes and containers, then asks for each one's status."""
        if self._check is not None or not self._listed or self._listed[0].sandboxes is None:
            return
        containers = self._listed[1].containers if len(self._listed) > 1 else ()
        if containers is None:
            return
        if len(self._listed) == 1:
            return
        record = pod_records(self._listed[0].sandboxes, containers).get(self.pod.uid)
        if record is None:
            return
        self._check = PodInspector(record)
        begun = self.calls.index(self._listed[0])
        for call in self.calls[begun:]:
            # Kubelets up to 1.35 ask for the sandboxes' status before they list containers.
            if call.asks == "PodSandboxStatus":
                self._check.sent(call, call.rpc.start)
                self._check.done(call, call.rpc.end or call.rpc.start)

    @property
    def complete(self) -> bool:
        """A termination whose final check asked for everything."""
        return self.sync.kind == "terminate" and self._check is not None and self._check.complete

    def _kind_after(self, call: CriCall) -> None:
        sync, method = self.sync, call.asks
        first = not any(call.asks in CHANGING or call.asks == "ImageStatus" for call in self.calls[:-1])
        if method == "RunPodSandbox":
            sync.kind = "recreate_sandbox" if call.attempt else "create"
        elif method == "StopPodSandbox":
            sync.kind = "terminate"
        elif method in ("StopContainer", "ExecSync") and first:
            sync.kind = "kill_container"  # an ExecSync that comes first is a hook before the stop
        elif method == "CreateContainer" and sync.kind in ("start_container", "kill_container"):
            again = call.container is not None and call.container.attempt > 0
            if again and sync.kind != "kill_container" and self.quiet and sync.trigger == "unknown":
                sync.trigger = "timer"  # what died had died before: its back-off is over
            sync.kind = "restart" if again or sync.kind == "kill_container" else "start_container"
        elif method in _RESIZING and first:
            sync.kind = "resize"
        self.kind = "terminate" if sync.kind == "terminate" else "sync"
        if sync.kind == "terminate" and sync.trigger in ("probe", "timer"):
            sync.trigger = "unknown"  # the pod is going: that a probe or an earlier pass failed is no reason

    def kind_of(self, call: CriCall) -> ActivityKind:
        return "lifecycle_hook" if call.asks == "ExecSync" else self.kind

    def close(self) -> None:
        """No more can come: the pass ended with its last answer."""
        if self.open or self.last_done is None:
            return
        sync = self.sync
        sync.end = self.last_done
        self.over = True
        last = sync.calls[-1]
        if last.asks == "StopPodSandbox" and last.api == "v1alpha2":
            missing = False  # kubelets up to 1.21 kill without a check
        else:
            missing = self.unfinished or all(call.asks == "ExecSync" for call in sync.calls)
        if missing:
            self._unseen = self._unseen or sync.complete
            sync.outcome, sync.complete = "unknown", False
            return
        changes = [call for call in sync.calls if call.asks in CHANGING or call.asks == "PullImage"]
        failed = bool(changes) and _failed(changes[-1])
        lost = bool(changes) and (changes[-1].rpc.ended_by != "server")
        sync.outcome = "failed" if failed or lost else "ok"

    def expire(self, now: int) -> None:
        if self.ready is not None and now - self.ready > self.patience:
            self.close()


def _failed(call: CriCall) -> bool:
    """Whether an answered call failed, with a status that is known or not: no message comes with an error."""
    status = call.rpc.status
    return status != "OK" and not (status is None and call.rpc.responses > 0)
