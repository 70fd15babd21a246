"""Very many pods start at once: the path below the CRI is saturated, and some of the starts hang beyond it."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Severity, Verdict
from tracer.findings.scene import NS, Scene

STARTS = frozenset({"RunPodSandbox", "CreateContainer", "StartContainer"})

BURST = 20
"""Pods that start at once. The kubelet starts as many as it has to; two cores do some twenty a second."""

SHOWN_NS = 5 * NS
"""The oldest of their calls, from which on the burst is told of: 43 at once on two cores took 3 s each."""

HANGS_NS = 60 * NS
"""A start that takes longer does not only wait for its turn."""

FEW = 2
"""Starts that hang, from which on the burst is thought to be the reason; a single one is that pod's matter."""

FORGET_NS = 600 * NS
"""After this the rest of a burst is no more thought to be its matter."""

MAX_PODS = 1024
"""Pods of a burst."""


@dataclass(slots=True)
class _Start:
    """A pod's latest call of a start. `beside`: how many pods were starting when it was first seen."""

    call: CriCall
    beside: int


@dataclass(slots=True)
class _Burst:
    start: int
    until: int
    peak: int = 0
    shown: bool = False
    pods: OrderedDict[str, _Start] = field(default_factory=OrderedDict)


class StartsSaturated:
    """One finding for each burst at a runtime."""

    kind = "starts_saturated"

    def __init__(self) -> None:
        self._bursts: dict[str, _Burst] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        starting: dict[str, dict[str, CriCall]] = {}
        for call in scene.open:
            if call.method in STARTS and call.pod is not None and scene.unexplained(call, self.kind):
                starting.setdefault(call.rpc.peer.path, {})[call.pod.uid] = call
        for path, calls in starting.items():
            fresh = [call for call in calls.values() if scene.now - call.rpc.start < HANGS_NS]
            if len(fresh) >= BURST:
                burst = self._bursts.get(path)
                if burst is None:
                    first = min(call.rpc.start for call in fresh)
                    burst = self._bursts[path] = _Burst(first, scene.now)
                burst.until, burst.peak = scene.now, max(burst.peak, len(fresh))
                for uid, call in calls.items():
                    self._add(burst, uid, call, len(fresh))
        for path, burst in list(self._bursts.items()):
            self._follow(path, burst, starting.get(path, {}), scene)
            hanging = _hanging(burst, scene.now)
            going = burst.until == scene.now
            opened = [each.call.rpc.start for each in burst.pods.values() if each.call.rpc.end is None]
            over = not going and ((not hanging and not opened) or scene.now - burst.until >= FORGET_NS)
            burst.shown = burst.shown or (bool(opened) and scene.now - min(opened) >= SHOWN_NS)
            if burst.shown:
                yield self._verdict(path, burst, hanging, scene, end=scene.now if over else None)
            if over:
                del self._bursts[path]

    @staticmethod
    def _add(burst: _Burst, uid: str, call: CriCall, beside: int) -> None:
        known = burst.pods.get(uid)
        if known is None and len(burst.pods) < MAX_PODS:
            burst.pods[uid] = _Start(call, beside)
        elif known is not None and known.call is not call:
            known.call, known.beside = call, beside

    def _follow(self, path: str, burst: _Burst, starting: dict[str, CriCall], scene: Scene) -> None:
        """Later calls of the burst's pods: its next steps, and its further attempts."""
        for call in scene.ended:
            if call.method in STARTS and call.pod is not None and call.rpc.peer.path == path:
                known = burst.pods.get(call.pod.uid)
                if known is not None and call.rpc.start >= known.call.rpc.start:
                    known.call = call
        for uid, call in starting.items():
            known = burst.pods.get(uid)
            if known is not None:
                known.call = call

    # what is said

    def _verdict(
        self, path: str, burst: _Burst, hanging: list[_Start], scene: Scene, *, end: int | None
    ) -> Verdict:  # fmt: skip
        total = len(burst.pods)
        done = sum(each.call.rpc.status == "OK" for each in burst.pods.values())
        lasted = wording.seconds(burst.until - burst.start)
        summary = f"{total} pods were started at once ({burst.peak} at the peak, within {lasted}): {done} got on"
        severity: Severity = "info"
        if len(hanging) >= FEW:
            severity = "warning"
            longest = wording.seconds(max(_lasted(each.call, scene.now) for each in hanging))
            summary += (
                f", {len(hanging)} hang beyond the burst, the longest for {longest}; the start path below the CRI "
                "(systemd, runc, the disk) was likely saturated, so this is not a matter of these pods"
            )
        elif end is None:
            oldest = wording.seconds(max(_lasted(each.call, scene.now) for each in burst.pods.values()))
            summary += f" so far, and the slowest call takes {oldest}; this is load"
        else:
            summary += "; this was load"
        calls = tuple(each.call for each in hanging)
        slow = frozenset(
            each.call.id for each in burst.pods.values() if _lasted(each.call, scene.now) >= SHOWN_NS
        )  # fmt: skip
        return Verdict(
            self.kind, path, severity, burst.start, f"{summary}.",
            end=end,
            pods=wording.pods_of(calls),
            calls=calls,
            explains=slow | {call.id for call in calls},
            evidence=[
                Evidence(
                    each.call.rpc.start,
                    f"{wording.call(each.call)} hangs; {each.beside} pods were starting when it began.",
                    each.call.id,
                )
                for each in hanging
            ],
            confidence="medium",
            unknown=("What was saturated: systemd (cgroups over D-Bus), runc, the disk, or the CPU.",),
            next_steps=(
                "systemctl list-jobs; busctl status: does systemd answer?",
                "ps -eo pid,stat,wchan:32,args | grep 'runc init': D is a wait in the kernel",
                "Fewer pods at once: the kubelet starts all that it is given.",
            ),
        )  # fmt: skip


def _lasted(call: CriCall, now: int) -> int:
    return (now if call.rpc.end is None else call.rpc.end) - call.rpc.start


def _hanging(burst: _Burst, now: int) -> list[_Start]:
    """Starts that take longer than a turn in the burst, or were given up."""
    return [
        each for each in burst.pods.values()
        if _lasted(each.call, now) >= HANGS_NS
        and (each.call.rpc.end is None or each.call.rpc.ended_by in ("deadline", "client_cancel"))
    ]  # fmt: skip
