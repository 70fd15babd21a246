"""Sweeps: runs over all containers that begin with their list. What follows it tells which it is.

stats: C, S, List*Stats (`cri_stats_provider.go`); container GC: C, removals, C, S, sandbox removals
(`kuberuntime_gc.go:GarbageCollect`); log rotation: C, then the status of each running container
(`container_log_manager.go:rotateLogs`).
"""

from tracer.facts import RUNNING, UNKNOWN_STATE, CriCall, Scope
from tracer.kubelet.runs import ActivityKind, ImagesRun, Run, unfiltered

STATS = frozenset({"ListContainerStats", "ListPodSandboxStats"})

_GC_BEFORE_STOP = frozenset({"ListPodSandbox", "RemovePodSandbox"})


class Sweep(Run):
    """One sweep while what it is shows.

    `look`: ImageFsInfo just before, which belongs to it if it is a stats pass. `rival`: another run that may have sent
    its sandbox list.
    """

    prefix = "l"

    def __init__(self, call: CriCall, look: Run | None = None) -> None:
        super().__init__(call)
        self.look = look
        self.lists = 0
        self._states: dict[str, int] | None = None  # of the containers in its list
        self.rival: ImagesRun | None = None

    def wants(self, call: CriCall) -> bool:
        method, last = call.asks, self.calls[-1]
        if method == "ListContainers":
            wanted = call.scope is Scope.ALL and not unfiltered(call) and self.lists == 1
            return wanted and self.kind in ("unknown", "container_gc") and last.asks != "ListPodSandbox"
        if method == "ListPodSandbox":
            if call.scope is not Scope.ALL or last.asks == "ListPodSandbox":
                return False
            # GC lists containers again after removals; for stats the filter is there, though empty, in every version.
            return self.kind == "container_gc" if self.lists == 2 else self.kind == "unknown" and not unfiltered(call)
        if method in STATS:
            return last.asks == "ListPodSandbox" and self.lists == 1
        if method == "ContainerStatus":
            return self._wants_status(call)
        if method == "RemoveContainer":
            return last.asks == "ContainerStatus" and last.container_id == call.container_id and self.lists == 1
        if method == "StopContainer":
            # GC stops what the runtime knows nothing of before it removes it.
            return last.container_id == call.container_id and self._state(call) == UNKNOWN_STATE
        if method == "ReopenContainerLog":
            return last.asks == "ContainerStatus" and last.container_id == call.container_id
        if method == "RemovePodSandbox" and last.sandbox_id == call.sandbox_id:
            return True
        # The stop before a removal may have no name yet.
        one = method in ("StopPodSandbox", "RemovePodSandbox")
        return one and self.kind == "container_gc" and last.asks in _GC_BEFORE_STOP and self._dead(call)

    def _wants_status(self, call: CriCall) -> bool:
        """Log rotation asks for running containers, GC for dead ones that it removes."""
        last = self.calls[-1].asks
        if self.lists == 2:
            return self.kind == "container_gc" and last != "ListContainers"  # of dangling log links, at its very end
        if last == "ListPodSandbox" or self.kind == "stats":
            return False
        if self.calls[0].containers is None:
            return True  # the list was not seen whole
        state = self._state(call)
        if state is None:
            return False
        return self.kind in ("unknown", "log_rotation" if state == RUNNING else "container_gc")

    def _state(self, call: CriCall) -> int | None:
        """State of the call's container when the run listed it."""
        if self._states is None:
            self._states = {item.id: item.state for item in self.calls[0].containers or ()}
        return self._states.get(call.container_id or "")

    def _dead(self, call: CriCall) -> bool:
        """Whether it listed the call's sandbox as not ready: of a ready one a pod worker stops it."""
        listed = next((each.sandboxes for each in self.calls if each.asks == "ListPodSandbox"), None)
        return listed is None or any(item.id == call.sandbox_id and not item.ready for item in listed)

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        method, kind = call.asks, self.kind
        if method == "ListContainers":
            self.lists += 1
            if self.lists == 2:
                self.kind = "container_gc"
        elif method in STATS:
            self.kind = "stats"
        elif method in ("RemoveContainer", "StopContainer"):
            self.kind = "container_gc"
        elif method == "ReopenContainerLog":
            self.kind = "log_rotation"
        elif method == "ContainerStatus" and kind == "unknown":
            state = self._state(call)
            if state is not None:
                self.kind = "log_rotation" if state == RUNNING else "container_gc"
        self.late = self.kind == "unknown"

    def expire(self, now: int) -> None:
        super().expire(now)
        if self.over and self.kind == "unknown":
            last = self.calls[-1].asks
            # A stats pass whose last step never came (an error) is the only other one that ends in S.
            self.kind = "stats" if last == "ListPodSandbox" else "log_rotation"
            self.late = True

    def yields(self) -> CriCall | None:
        """Its sandbox list when that may be its rival's: containers are listed next, as GC does and stats do not."""
        if self.kind != "unknown" or self.rival is None or self.rival.over or len(self.calls) != 2:
            return None
        return self.calls[1] if self.calls[1].asks == "ListPodSandbox" else None

    def without(self, call: CriCall) -> None:
        """`call` was its rival's."""
        self.calls.remove(call)
        self.open.discard(call.id)
        self.rival = None
        self.ready = self.calls[-1].rpc.end

    def kind_of(self, call: CriCall) -> ActivityKind:
        return "sandbox_gc" if call.asks in ("StopPodSandbox", "RemovePodSandbox") else self.kind
