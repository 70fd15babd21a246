"""Runs: the kubelet's goroutines as the wire shows them.

Whatever the kubelet does is one goroutine that sends a request, reads the answer, and sends the next within about a
millisecond. So a call belongs to the run that waits for just such a call and became ready most recently; a call that
no run waits for opens one.
"""

from collections.abc import Iterable
from typing import Literal

from tracer.facts import CriCall, Scope

ActivityKind = Literal[
    "relist", "pod_relist", "sync", "terminate", "housekeeping", "container_gc", "sandbox_gc", "image_gc",
    "image_pull", "probe", "lifecycle_hook", "stats", "log_rotation", "runtime_status", "node_version", "startup",
    "exec_api", "other_client", "unknown",
]  # fmt: skip

NEXT_NS = 50_000_000
"""A run that sent nothing for this long after an answer is over: measured gaps are 0.3 to 5 ms, so this leaves room
for a busy kubelet."""


class Run:
    """One goroutine's serial calls. `ready`: since when it can send its next; None while one is open."""

    kind: ActivityKind = "unknown"

    def __init__(self, call: CriCall) -> None:
        self.id = f"{self.prefix}{call.id}"
        self.calls: list[CriCall] = []
        self.open: set[str] = set()
        self.ready: int | None = None
        self.over = False
        self.late = self.kind == "unknown"  # what it is shows only at its end

    prefix = "u"
    patience = NEXT_NS

    def wants(self, call: CriCall) -> bool:  # noqa: ARG002
        """Whether `call` can be this run's next."""
        return False

    def sent(self, call: CriCall) -> None:
        self.calls.append(call)
        self.open.add(call.id)
        self.ready = None

    def done(self, call: CriCall, time: int) -> None:
        self.open.discard(call.id)
        if not self.open:
            self.ready = time

    @property
    def bound(self) -> bool:
        """Whether the next call is certain: containers are listed right after sandboxes."""
        return self.calls[-1].asks == "ListPodSandbox"

    @property
    def traced(self) -> bool:
        """Whether its calls share a trace id."""
        calls = self.calls
        return len(calls) > 1 and calls[0].rpc.trace is not None and calls[0].rpc.trace == calls[1].rpc.trace

    def expire(self, now: int) -> None:
        """Close the run when it has been silent for too long."""
        if self.ready is not None and now - self.ready > self.patience:
            self.over = True

    def kind_of(self, call: CriCall) -> ActivityKind:  # noqa: ARG002
        return self.kind


class HousekeepingRun(Run):
    """READY sandboxes, then RUNNING containers (`kubelet_pods.go:HandlePodCleanups`).

    The same pair precedes an exec, attach, port-forward, `/run` or checkpoint request (`findContainer`).
    """

    prefix = "h"
    kind: ActivityKind = "housekeeping"

    def wants(self, call: CriCall) -> bool:
        if len(self.calls) % 2:
            return call.asks == "ListContainers" and call.scope is Scope.READY
        if call.scope is Scope.READY:
            # Kubelet 1.20 lists once more in the same pass, past its cache.
            return call.asks == "ListPodSandbox" and len(self.calls) == 2
        return len(self.calls) == 2 and self.kind == "housekeeping" and call.asks in _REQUESTED and not call.timeout

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        if call.asks in _REQUESTED:
            self.kind = "exec_api"

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        self.over = self.kind == "exec_api" or len(self.calls) == 4


_REQUESTED = frozenset({"Exec", "Attach", "ExecSync", "PortForward", "CheckpointContainer"})


class ContainersRun(Run):
    """Runs that begin with an unfiltered container list: stats, container GC, log rotation; what follows tells which.

    stats: C, S, List*Stats (`cri_stats_provider.go`); GC: C, removals, C, S, sandbox removals
    (`kuberuntime_gc.go:GarbageCollect`); log rotation: C, then the status of running containers
    (`container_log_manager.go:rotateLogs`).
    """

    prefix = "l"

    def __init__(self, call: CriCall) -> None:
        super().__init__(call)
        self.lists = 0
        self.removed = False

    def wants(self, call: CriCall) -> bool:
        method = call.asks
        if method in ("ListContainers", "ListPodSandbox"):
            if call.scope is not Scope.ALL or self.kind not in ("unknown", "container_gc"):
                return False
            if method == "ListContainers":
                return self.lists == 1 and self.calls[-1].asks != "ListPodSandbox"
            return self.lists == 2 or not self.removed  # GC lists containers again after removals
        if method in ("ListContainerStats", "ListPodSandboxStats"):
            return self.calls[-1].asks == "ListPodSandbox" and self.lists == 1
        if method == "ContainerStatus" and self.kind == "container_gc" and self.lists == 2:
            return self.calls[-1].asks != "ListContainers"  # of dangling log links, at its very end
        if method in ("ContainerStatus", "RemoveContainer"):
            return self.lists == 1 and self.calls[-1].asks != "ListPodSandbox"
        if method == "ReopenContainerLog":
            return self.calls[-1].asks == "ContainerStatus"
        if method == "RemovePodSandbox":
            return self.calls[-1].sandbox_id == call.sandbox_id
        return method == "StopPodSandbox" and self.kind == "container_gc" and self.calls[-1].asks in _GC_BEFORE_STOP

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        method = call.asks
        if method == "ListContainers":
            self.lists += 1
            if self.lists == 2:
                self.kind = "container_gc"
        elif method in ("ListContainerStats", "ListPodSandboxStats"):
            self.kind = "stats"
        elif method == "RemoveContainer":
            self.removed = True
            self.kind = "container_gc"
        elif method == "ReopenContainerLog":
            self.kind = "log_rotation"

    def expire(self, now: int) -> None:
        super().expire(now)
        if self.over and self.kind == "unknown":
            last = self.calls[-1].asks
            # A stats pass whose last step never came (an error) is the only other one that ends in S.
            self.kind = "stats" if last == "ListPodSandbox" else "log_rotation"

    def kind_of(self, call: CriCall) -> ActivityKind:
        return "sandbox_gc" if call.asks in ("StopPodSandbox", "RemovePodSandbox") else self.kind


_GC_BEFORE_STOP = frozenset({"ListPodSandbox", "RemovePodSandbox"})


class ImagesRun(Run):
    """Image list alone (node status), or detection and image GC (`image_gc_manager.go`).

    The latter: ListImages, S, C, status of every container, then ImageFsInfo and removals.
    """

    prefix = "i"
    kind: ActivityKind = "image_gc"

    def wants(self, call: CriCall) -> bool:
        method, last = call.asks, self.calls[-1].asks
        if method == "ListPodSandbox":
            return call.scope is Scope.ALL and last == "ListImages"
        if method == "ListContainers":
            return call.scope is Scope.ALL and last == "ListPodSandbox"
        if method == "ContainerStatus":
            return last in ("ListContainers", "ContainerStatus")
        if method == "ImageFsInfo":
            return last in ("ListContainers", "ContainerStatus")
        return method == "RemoveImage" and last in ("ImageFsInfo", "RemoveImage", "ListContainers", "ContainerStatus")


class StartupRun(Run):
    """Sandboxes, then containers, once at start, outside the relists' rhythm (`pkg/kubelet/cm/helpers.go`)."""

    prefix = "b"

    def wants(self, call: CriCall) -> bool:
        return len(self.calls) == 1 and call.asks == "ListContainers" and call.scope is Scope.ALL

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        if len(self.calls) == 2:
            self.kind = "startup"


class ProbeRun(Run):
    """One exec probe: a single ExecSync with a timeout (`prober.go:runProbe`)."""

    prefix = "p"
    kind: ActivityKind = "probe"

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        self.over = True


class RemovalRun(Run):
    """Removal of one dead container: its status once or twice, then RemoveContainer (`pod_container_deletor.go`)."""

    prefix = "d"

    def wants(self, call: CriCall) -> bool:
        if call.container_id != self.calls[0].container_id or self.calls[-1].asks == "RemoveContainer":
            return False
        return call.asks in ("ContainerStatus", "RemoveContainer")

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        if call.asks == "RemoveContainer":
            self.kind = "container_gc"

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        if call.rpc.status == "NOT_FOUND":
            # Removed already: the deletor's queue held it twice, or GC follows a log's dangling link.
            self.kind, self.over = "container_gc", True


def nearest(runs: Iterable[Run], call: CriCall, time: int) -> Run | None:
    """The run that waits for `call` within its patience, and most likely sent it.

    A kubelet that traces sends one trace id with all calls of a garbage collection or pod worker, and a new one with
    each call of other runs: where there are ids, they decide.
    """
    best: Run | None = None
    trace = call.rpc.trace
    for run in runs:
        ready = run.ready
        if run.over or ready is None or time - ready > run.patience or not run.wants(call):
            continue
        if trace is not None:
            if run.calls[-1].rpc.trace == trace:
                return run
            if run.traced:
                continue
        if best is None or best.ready is None or _sooner(run, ready, best, best.ready):
            best = run
    return best


def _sooner(run: Run, ready: int, best: Run, best_ready: int) -> bool:
    """Whether `run` is rather the one that sends next than `best`.

    A run that must go on with a list sends it at once; of two such the one that waits longer. Others may have work in
    between, or be over: of them the one that became ready last.
    """
    if run.bound != best.bound:
        return run.bound
    return ready < best_ready if run.bound else ready > best_ready
