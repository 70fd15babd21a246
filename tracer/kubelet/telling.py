"""Telling: what a step changed, and which activity each call was told to be, also long after it was over."""

from collections import OrderedDict
from dataclasses import dataclass, field

from tracer.facts import CriCall
from tracer.kubelet.passes import SyncPass
from tracer.kubelet.pleg import PlegEvent
from tracer.kubelet.relists import Relist
from tracer.kubelet.runs import ActivityKind, Run

MAX_TOLD = 16_384
"""Calls whose activity is remembered, for those that get their name or their pod only later: 512 of each of some
twenty methods on an old connection."""

Told = tuple[ActivityKind, str | None]
"""Kind of an activity and id of the run; None when no run is known."""

Calls = list[tuple[CriCall, ActivityKind, str | None]]
"""Calls with what they are told to be."""


@dataclass(slots=True)
class Changed:
    """What a step changed: calls with their activity and its id; relists and passes, each shown again as it grows."""

    calls: Calls = field(default_factory=list)
    relists: list[Relist] = field(default_factory=list)
    events: list[PlegEvent] = field(default_factory=list)
    passes: list[SyncPass] = field(default_factory=list)


class Telling:
    """Tells activities of calls that are over, and remembers them."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, Told] = OrderedDict()

    def show(self, calls: Calls, call: CriCall, kind: ActivityKind, of: str | None) -> None:
        """Tell what `call` is, in `calls`."""
        self.remember(call, (kind, of))
        calls.append((call, kind, of))

    def show_run(self, calls: Calls, run: Run) -> None:
        """Every call of `run` that is over."""
        for call in run.calls:
            if call.rpc.end is not None:
                self.show(calls, call, run.kind_of(call), run.id)

    def remember(self, call: CriCall, told: Told) -> None:
        """What `call` is as far as known now, without showing it yet."""
        self._told[call.id] = told
        if len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)

    def known(self, call: CriCall) -> Told | None:
        """What `call` was told to be, if it was anything."""
        told = self._told.get(call.id)
        return told if told is not None and told[0] != "unknown" else None
