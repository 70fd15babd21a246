"""Housekeeping, and the requests of the API server that begin alike: exec, attach, run, checkpoint, port-forward."""

from tracer.facts import CriCall, Scope
from tracer.kubelet.runs import ActivityKind, Run

_REQUESTED = frozenset({"Exec", "Attach", "ExecSync", "PortForward", "CheckpointContainer"})


class HousekeepingRun(Run):
    """READY sandboxes, then RUNNING containers (`kubelet_pods.go:HandlePodCleanups`).

    The same pair precedes an exec, attach, port-forward, run or checkpoint request (`findContainer`); between it and
    a port-forward the pod's sandboxes are listed (`kuberuntime_sandbox.go:getSandboxIDByPodUID`).
    """

    prefix = "h"
    kind: ActivityKind = "housekeeping"

    def wants(self, call: CriCall) -> bool:
        method, length = call.asks, len(self.calls)
        if length % 2:
            return method == "ListContainers" and call.scope is Scope.READY and length < 4
        if call.scope is Scope.READY:
            # Kubelet 1.20 lists once more in the same pass, past its cache.
            return method == "ListPodSandbox" and length == 2 and call.api != "v1"
        return length == 2 and method in _REQUESTED and not call.timeout

    def sent(self, call: CriCall) -> None:
        super().sent(call)
        if call.asks in _REQUESTED:
            self.kind = "exec_api"

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        self.over = call.asks in _REQUESTED or len(self.calls) == 4

    def forwards(self, listed: CriCall) -> bool:
        """Whether it may have gone on with `listed`, the sandboxes of one pod, to forward a port."""
        return (
            len(self.calls) == 2 and self.ready is not None and listed.rpc.start >= self.ready and self.at_once(listed)
        )

    def without(self, call: CriCall) -> None:
        """`call` was not its request: it is housekeeping after all."""
        self.calls.remove(call)
        self.open.discard(call.id)
        self.kind = "housekeeping"
