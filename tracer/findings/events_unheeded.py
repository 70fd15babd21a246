"""The runtime streams events of a pod, and the kubelet does nothing about it."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from tracer.facts import CriCall, Pod
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene

LEAST = 3
SPREAD_NS = 30 * NS
SILENT_NS = 60 * NS
"""As many events, over as long, and no call for the pod since the first: a pod whose containers just end one after the
other needs none either, so this is a suspicion only."""

MAX_PODS = 1024


@dataclass(slots=True)
class _Told:
    pod: Pod
    stream: CriCall
    first: int
    last: int
    times: int = 0


class EventsUnheeded:
    """One finding for each pod, beside others whose events the kubelet heeds."""

    kind = "events_unheeded"

    def __init__(self) -> None:
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._heeded: OrderedDict[str, int] = OrderedDict()  # pod -> when a call for it followed an event

    def look(self, scene: Scene) -> Iterator[Verdict]:
        if scene.events:
            streams = {call.id: call for call in scene.open if call.method == "GetContainerEvents"}
            for event in scene.events:
                stream = streams.get(event.relist)
                if stream is not None:
                    self._event(event.pod, event.time, stream)
        if not self._told:
            return
        for call in (*scene.ended, *scene.open):
            told = self._told.get(call.pod.uid) if call.pod is not None else None
            if told is not None and call.rpc.start >= told.first and call is not told.stream:
                del self._told[told.pod.uid]
                self._heeded[told.pod.uid] = call.rpc.start
                self._heeded.move_to_end(told.pod.uid)
                if len(self._heeded) > MAX_PODS:
                    self._heeded.popitem(last=False)
        for told in self._told.values():
            silent = told.times >= LEAST and told.last - told.first >= SPREAD_NS
            if silent and scene.now - told.first >= SILENT_NS:
                heeded = sum(time >= told.first for uid, time in self._heeded.items() if uid != told.pod.uid)
                if heeded:
                    yield self._verdict(told, heeded, scene.now)

    def _event(self, pod: Pod, time: int, stream: CriCall) -> None:
        told = self._told.get(pod.uid)
        if told is None:
            told = self._told[pod.uid] = _Told(pod, stream, time, time)
            if len(self._told) > MAX_PODS:
                self._told.popitem(last=False)
        told.last = time
        told.times += 1

    def _verdict(self, told: _Told, heeded: int, now: int) -> Verdict:
        return Verdict(
            self.kind, told.pod.uid, "info", told.first,
            f"{told.times} events of pod {wording.pod(told.pod)} arrived within"
            f" {wording.seconds(told.last - told.first)} (the last {wording.seconds(now - told.last)} ago), but the"
            f" kubelet made no call for it since, while it did for {heeded} other pods: likely it does not take them.",
            pods=(told.pod,),
            calls=(told.stream,),
            evidence=[Evidence(told.first, "The first event that no call followed.", told.stream.id)],
            confidence="low",
            unknown=("Why: that is inside the kubelet; a pod that is just ending needs no call.",),
            next_steps=(
                f"kubectl -n {told.pod.namespace} get pod {told.pod.name}: does its status follow?",
                "The kubelet's log at -v=4; did the runtime's version change lately?",
            ),
        )  # fmt: skip
