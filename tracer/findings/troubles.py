"""Troubles: failures of one kind and place, counted from the first to the last, however often they are tried again."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall, Pod
from tracer.findings import wording
from tracer.findings.finding import Evidence

MAX_CALLS = 64
"""Calls named in one finding: the first, and the latest others."""

MAX_PODS = 64
"""Pods named in one finding."""

FORGIVEN_NS = 360 * wording.NS
"""What has not failed for longer is not tried any more: the kubelet's longest back-off is 300 s."""

MAX_TROUBLES = 128
"""Troubles of one rule at once; the oldest makes room."""


@dataclass(slots=True)
class Trouble:
    """Times in ns. `times` counts all calls, `followers` those that failed because of an earlier; `calls` are named."""

    first: CriCall
    last: int
    times: int = 0
    followers: int = 0
    calls: OrderedDict[str, CriCall] = field(default_factory=OrderedDict)
    pods: dict[str, Pod] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return self.first.rpc.start

    @property
    def latest(self) -> CriCall:
        return next(reversed(self.calls.values()))

    def add(self, call: CriCall) -> None:
        self.last = max(self.last, call.rpc.end or call.rpc.start)
        self.times += 1
        self.calls[call.id] = call
        if len(self.calls) > MAX_CALLS:
            del self.calls[next(ident for ident in self.calls if ident != self.first.id)]
        if call.pod is not None and len(self.pods) < MAX_PODS:
            self.pods.setdefault(call.pod.uid, call.pod)

    @property
    def named(self) -> tuple[CriCall, ...]:
        return tuple(self.calls.values())

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        return tuple(self.pods.values())


class Troubles:
    """By key, the oldest first."""

    def __init__(self) -> None:
        self._troubles: OrderedDict[Hashable, Trouble] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[Hashable, Trouble]]:
        return iter(list(self._troubles.items()))

    def __len__(self) -> int:
        return len(self._troubles)

    def get(self, key: Hashable) -> Trouble | None:
        return self._troubles.get(key)

    def add(self, key: Hashable, call: CriCall) -> Trouble:
        trouble = self._troubles.get(key)
        if trouble is None:
            trouble = self._troubles[key] = Trouble(call, call.rpc.start)
            if len(self._troubles) > MAX_TROUBLES:
                self._troubles.popitem(last=False)
        trouble.add(call)
        return trouble

    def over(self, key: Hashable) -> None:
        self._troubles.pop(key, None)

    def shown(self, now: int, forgiven: int = FORGIVEN_NS) -> Iterator[tuple[Hashable, Trouble, int | None]]:
        """Each with its end, None while it goes on; one that ended (no failure for so long, ns) is then forgotten."""
        for key, trouble in self:
            over = now - trouble.last >= forgiven
            yield key, trouble, trouble.last if over else None
            if over:
                self.over(key)


def failed(call: CriCall) -> bool:
    """Whether the server answered with an error, whichever it was."""
    rpc = call.rpc
    if rpc.ended_by != "server" or not rpc.complete or rpc.status == "OK":
        return False
    return rpc.status is not None or not rpc.responses


def gave_up(call: CriCall) -> bool:
    """Whether the client's deadline ended it."""
    return call.rpc.ended_by == "deadline"


def told(calls: Iterable[CriCall]) -> list[Evidence]:
    """Each with the server's words."""
    return [Evidence(call.rpc.start, f"{wording.call(call)}: {said(call)}", call.id) for call in calls]


def said(call: CriCall) -> str:
    """The server's words, or what is known instead of them."""
    if gave_up(call):
        return "no answer before the kubelet's deadline"
    return wording.error(call.rpc.error or call.rpc.status or "an error that is not on the wire")
