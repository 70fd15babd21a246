"""A kubelet that was told of events by the runtime polls again: it lost the stream, and does not open it again."""

from collections.abc import Iterator
from dataclasses import dataclass

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.client_errors import other
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.kubelet.relists import Relist

RELISTS = 5
"""Relists without a stream: the kubelet opens the stream again at once, if it does."""

HELD_NS = 5 * NS
"""A stream that is open for longer was opened for good."""

MAX_LOST = 64
"""Kubelets that lost their stream; a node has one."""

Key = tuple[str, int]


@dataclass(slots=True)
class _Lost:
    """`first`: the stream that ended; `tries`: those opened since that ended as well."""

    first: CriCall
    tries: int = 0
    last: CriCall | None = None
    relists: int = 0
    latest: Relist | None = None

    @property
    def time(self) -> int:
        return self.first.rpc.end or self.first.rpc.start


class EventedPlegFallback:
    """One finding for each kubelet."""

    kind = "evented_pleg_fallback"

    def __init__(self) -> None:
        self._lost: dict[Key, _Lost] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method == "GetContainerEvents" and not other(call, scene):
                self._ended(call)
        if not self._lost:
            return
        for event in scene.node_events:
            if event.kind == "kubelet_started":
                for key in [key for key in self._lost if key[0] == event.runtime]:
                    del self._lost[key]
        for call in scene.open:
            held = call.method == "GetContainerEvents" and scene.now - call.rpc.start >= HELD_NS
            if held:
                self._lost.pop(_key(call), None)
        for relist in scene.relists:
            lost = self._lost.get(_key(relist.calls[0])) if relist.calls else None
            if lost is not None and relist.kind == "generic" and relist.start > lost.time:
                lost.relists, lost.latest = lost.relists + 1, relist
        for key, lost in self._lost.items():
            if lost.relists >= RELISTS:
                yield self._verdict(key, lost, scene)

    def _ended(self, call: CriCall) -> None:
        lost = self._lost.get(_key(call))
        if lost is None or (call.rpc.end or 0) - call.rpc.start >= HELD_NS:
            if len(self._lost) < MAX_LOST:
                self._lost[_key(call)] = _Lost(call)
        else:
            lost.tries, lost.last = lost.tries + 1, call

    def _verdict(self, key: Key, lost: _Lost, scene: Scene) -> Verdict:
        first = lost.first
        who = f"{first.rpc.peer.client_comm} (process {key[1]})"
        lasted = (first.rpc.end or first.rpc.start) - first.rpc.start
        if first.rpc.status == "UNIMPLEMENTED":
            summary = f"The runtime at {key[0]} does not stream events, so {who} polls it"
        elif lasted < HELD_NS:
            summary = f"{who} could not open the runtime's stream of events, and polls it"
        else:
            restart = ", as the runtime was restarted," if scene.servers.changed(key[0], lost.time - NS) else ""
            summary = f"{who} lost the runtime's stream of events{restart} and polls it since"
        if lost.tries:
            summary += f"; {lost.tries} further tries failed within {_tries(lost)}"
        interval = lost.latest.interval if lost.latest is not None else None
        if interval is not None:
            summary += f"; it relists each {interval / NS:.1f} s"
        calls = (first, lost.last) if lost.last is not None else (first,)
        return Verdict(
            self.kind, key, "info", lost.time, f"{summary}, until it is started again.",
            calls=calls,
            evidence=[Evidence(call.rpc.start, f"{wording.call(call)} ended by {call.rpc.ended_by}.", call.id)
                      for call in calls],
            next_steps=(
                "Restarting the kubelet opens the stream again; polling each second is what kubelets do without it.",
            ),
        )  # fmt: skip


def _tries(lost: _Lost) -> str:
    end = lost.last.rpc.end if lost.last is not None else None
    return wording.gap((end or lost.time) - lost.time)


def _key(call: CriCall) -> Key:
    return call.rpc.peer.path, call.rpc.peer.client_pid
