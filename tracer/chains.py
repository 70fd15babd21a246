"""Chains: a container ended -> the runtime noticed -> the PLEG saw -> the pod worker acted -> it runs again."""

from collections import OrderedDict
from dataclasses import dataclass

from tracer.facts import Container, CriCall, Pod
from tracer.kubelet.pleg import PlegEvent
from tracer.runtime.exits import Exited

MAX_CHAINS = 1024
"""Exits that may still get a further link."""

ACTED = frozenset({"CreateContainer", "StartContainer", "RunPodSandbox", "StopContainer", "StopPodSandbox"})
"""Calls by which a pod worker answers an exit."""


@dataclass(slots=True, eq=False)
class Chain:
    """One exit. Times are monotonic ns, None where not seen, or not yet.

    `died`: the process ended; `noticed`: the runtime had read the shim's word of it; `handled`: its lists show it from
    then on; `seen`: the PLEG's ContainerDied; `acted`: the first call of the pod's worker after that; `restarted`: the
    next attempt's StartContainer had been answered.
    """

    container_id: str
    pod: Pod | None = None
    container: Container | None = None
    exit_status: int | None = None
    oom: bool = False
    died: int | None = None
    noticed: int | None = None
    handled: int | None = None
    seen: int | None = None
    acted: int | None = None
    restarted: int | None = None

    @property
    def begin(self) -> int | None:
        """The first link that is known."""
        return next((at for at in (self.died, self.noticed, self.handled, self.seen) if at is not None), None)


class Chains:
    """Feed exits, PLEG events and ended calls in time order; each returns the chain that grew."""

    def __init__(self) -> None:
        self._chains: OrderedDict[str, Chain] = OrderedDict()
        self._waiting: OrderedDict[str, list[Chain]] = OrderedDict()  # by pod uid: seen, and not running again

    def exited(self, exited: Exited) -> Chain:
        chain = self._chain(exited.container_id)
        chain.exit_status, chain.oom = exited.exit_status, exited.oom
        chain.died, chain.noticed, chain.handled = exited.died_at, exited.noticed_at, exited.handled_at
        chain.pod, chain.container = chain.pod or exited.pod, chain.container or exited.container
        return chain

    def event(self, event: PlegEvent) -> Chain | None:
        """Only a container's death that is known otherwise, too, or is the PLEG's news, begins a chain."""
        if event.type != "ContainerDied":
            return None
        chain = self._chain(event.container_id)
        if chain.seen is not None:
            return None
        chain.seen, chain.pod = event.time, event.pod
        self._waiting.setdefault(event.pod.uid, []).append(chain)
        if len(self._waiting) > MAX_CHAINS:
            self._waiting.popitem(last=False)
        return chain

    def done(self, call: CriCall) -> list[Chain]:
        """A call of a kubelet ended."""
        if call.pod is None or call.method not in ACTED:
            return []
        chains = self._waiting.get(call.pod.uid)
        if chains is None:
            return []
        grown = []
        for chain in list(chains):
            if chain.seen is None or call.rpc.start < chain.seen:
                continue
            if chain.acted is None:
                chain.acted = call.rpc.start
                grown.append(chain)
            if _again(call, chain):
                chain.restarted = call.rpc.end
                chains.remove(chain)
                grown.append(chain)
        if not chains:
            del self._waiting[call.pod.uid]
        return list(dict.fromkeys(grown))

    def _chain(self, container_id: str) -> Chain:
        chain = self._chains.get(container_id)
        if chain is None:
            chain = self._chains[container_id] = Chain(container_id)
            if len(self._chains) > MAX_CHAINS:
                self._chains.popitem(last=False)
        return chain


def _again(call: CriCall, chain: Chain) -> bool:
    """Whether this call started the next attempt of the chain's container."""
    if call.method != "StartContainer" or call.rpc.status != "OK" or chain.container is None or call.container is None:
        return False
    return call.container.name == chain.container.name and call.container.attempt > chain.container.attempt
