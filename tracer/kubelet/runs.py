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
    "cpu_manager", "exec_api", "volume", "device", "plugin_registration", "other_client", "unknown",
]  # fmt: skip

NEXT_NS = 50_000_000
"""A run that sent nothing for this long after an answer is over: measured gaps are 0.3 to 5 ms, so this leaves room
for a busy kubelet."""

AT_ONCE_NS = 10_000_000
"""The same for calls that other runs send as well: what comes later is rather theirs."""

NO_FILTER_BYTES = 5
"""Length of a list request without a filter: gRPC's prefix alone. One with an empty filter has two bytes more."""


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

    def at_once(self, call: CriCall) -> bool:
        """Whether `call` came right after the last answer."""
        return self.ready is not None and call.rpc.start - self.ready <= AT_ONCE_NS

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


class ImagesRun(Run):
    """Image list alone (node status), or detection and image GC (`image_gc_manager.go`).

    The latter: ListImages, S, C, status of every container (1.35), removals of too old images, ImageFsInfo, removals.
    """

    prefix = "i"
    kind: ActivityKind = "image_gc"

    def wants(self, call: CriCall) -> bool:
        method, last = call.asks, self.calls[-1].asks
        if method == "ListPodSandbox":
            return call.scope is Scope.ALL and last == "ListImages" and self.at_once(call)
        if method == "ListContainers":
            return call.scope is Scope.ALL and not unfiltered(call) and last == "ListPodSandbox"
        if method == "ContainerStatus":
            return last in ("ListContainers", "ContainerStatus")
        if method == "ImageFsInfo":
            asked = any(call.asks == "ImageFsInfo" for call in self.calls)
            fits = last in ("ListContainers", "ContainerStatus", "RemoveImage") and not asked
            return fits and self.at_once(call)
        return method == "RemoveImage" and last in ("ImageFsInfo", "RemoveImage", "ListContainers", "ContainerStatus")


class StartupRun(Run):
    """Sandboxes, then containers, both without any filter: the container manager's start (`pkg/kubelet/cm/helpers.go`).

    Nothing else lists containers without a filter.
    """

    prefix = "b"

    def wants(self, call: CriCall) -> bool:
        return len(self.calls) == 1 and call.asks == "ListContainers" and unfiltered(call)

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        if len(self.calls) == 2:
            self.kind = "startup"
            self.late = False


def unfiltered(call: CriCall) -> bool:
    """Whether a list request has no filter at all, not even an empty one."""
    return call.rpc.request_bytes <= NO_FILTER_BYTES


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
