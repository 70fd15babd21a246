"""Removals of dead containers, and of sandboxes, also when some of their calls got a name only later."""

from collections import OrderedDict, deque

from tracer.facts import CriCall
from tracer.kubelet.runs import NEXT_NS, ActivityKind, Run

MAX_REMOVALS = 256
"""Removals remembered that may have calls without a name yet: a node removes some dozens at once."""


class RemovalRun(Run):
    """Removal of one dead container: its status once or twice, then RemoveContainer (`pod_container_deletor.go`).

    The status of one container alone is what a request for its logs asks, with `-f` once a second
    (`kuberuntime_container.go:GetContainerLogs`, `logs.go:isContainerRunning`). `beside`: other runs that ask for
    status were under way, so that it may be theirs.
    """

    prefix = "d"

    def __init__(self, call: CriCall, *, beside: bool = False) -> None:
        super().__init__(call)
        self._beside = beside

    def wants(self, call: CriCall) -> bool:
        if call.container_id != self.calls[0].container_id or self.calls[-1].asks == "RemoveContainer":
            return False
        return call.asks in ("ContainerStatus", "RemoveContainer")

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        if call.asks == "RemoveContainer":
            self.kind: ActivityKind = "container_gc"

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        if call.rpc.status == "NOT_FOUND":
            # Removed already: the deletor's queue held it twice, or GC follows a log's dangling link.
            self.kind, self.over = "container_gc", True
        elif call.asks == "RemoveContainer":
            self.over = True

    def precedes(self, call: CriCall) -> bool:
        """Whether `call`, which got its name later, is what its status calls led to."""
        if call.asks != "RemoveContainer" or call.container_id != self.calls[0].container_id:
            return False
        ends = [each.rpc.end for each in self.calls if each.rpc.end is not None]
        return any(0 <= call.rpc.start - end <= NEXT_NS for end in ends)

    @property
    def asks_only(self) -> bool:
        """It asked for the status of a container that is there, and for nothing else."""
        return not self._beside and all(
            call.asks == "ContainerStatus" and call.rpc.status == "OK" for call in self.calls
        )


class Removals:
    """The latest removals that lack a call, and those that a late name may belong to."""

    def __init__(self) -> None:
        self._looks: deque[RemovalRun] = deque(maxlen=MAX_REMOVALS)  # that seemed to remove nothing
        self._stops: OrderedDict[str, CriCall] = OrderedDict()  # of sandboxes, named later, whose is not known
        self._removed: OrderedDict[str, CriCall] = OrderedDict()  # sandboxes

    def looked(self, run: RemovalRun) -> None:
        """`run` is over without a removal."""
        self._looks.append(run)

    def completed(self, call: CriCall) -> RemovalRun | None:
        """The run that `call`, which got its name later, completes."""
        run = next((run for run in self._looks if run.precedes(call)), None)
        if run is not None:
            self._looks.remove(run)
        return run

    def pair(self, call: CriCall) -> tuple[CriCall, CriCall] | None:
        """Stop and removal of a sandbox, of which `call` is one and the other one is known.

        The kubelet removes what it has just stopped (`kuberuntime_gc.go:removeSandbox`).
        """
        if call.asks not in ("StopPodSandbox", "RemovePodSandbox") or call.sandbox_id is None:
            return None
        mine = self._stops if call.asks == "StopPodSandbox" else self._removed
        mine[call.sandbox_id] = call
        if len(mine) > MAX_REMOVALS:
            mine.popitem(last=False)
        stop, removal = self._stops.get(call.sandbox_id), self._removed.get(call.sandbox_id)
        if stop is None or removal is None or stop.rpc.end is None:
            return None
        return (stop, removal) if 0 <= removal.rpc.start - stop.rpc.end <= NEXT_NS else None
