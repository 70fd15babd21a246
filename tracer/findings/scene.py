"""The scene: what the rules look at, twice a second: what is open, and what ended since the look before."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tracer.facts import CriCall
from tracer.kubelet.kubelet import Kubelet
from tracer.kubelet.passes import SyncPass
from tracer.kubelet.pleg import PlegEvent
from tracer.kubelet.relists import Relist
from tracer.kubelet.runs import ActivityKind
from tracer.node import NodeEvent, Servers
from tracer.observed import Observation
from tracer.runtime.runtime import Runtime
from tracer.runtime.step import Step

NS = 1_000_000_000


@dataclass(slots=True)
class Scene:
    """Collected from one look to the next, completed when the rules look. Times are monotonic ns.

    `activity`: kind and id of the activity of a call. `ended`, `relists`, `passes`, `events`, `node_events`, `steps`:
    since the look before. `kubelets`: (runtime path, pid, kubelet). `explained`: id of a call or relist -> kind of the
    finding that explains it already.
    """

    activity: Callable[[CriCall], tuple[ActivityKind, str | None]]
    servers: Servers
    runtime: Runtime
    ended: list[CriCall] = field(default_factory=list)
    relists: list[Relist] = field(default_factory=list)
    passes: list[SyncPass] = field(default_factory=list)
    events: list[PlegEvent] = field(default_factory=list)
    node_events: list[NodeEvent] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    now: int = 0
    lost_at: int | None = None
    kubelets: list[tuple[str, int, Kubelet]] = field(default_factory=list)
    open: list[CriCall] = field(default_factory=list)
    observed: dict[int, Observation] = field(default_factory=dict)
    explained: dict[str, str] = field(default_factory=dict)

    def unexplained(self, call: CriCall, kind: str = "") -> bool:
        """Whether no finding of a kind other than `kind` explains the call."""
        return self.explained.get(call.id, kind) == kind

    def kubelet_of(self, call: CriCall) -> Kubelet | None:
        """The kubelet that made the call; None when another client did, or a kubelet that is gone."""
        peer = call.rpc.peer
        for path, pid, kubelet in self.kubelets:
            if pid == peer.client_pid and path == peer.path:
                return kubelet
        return None
