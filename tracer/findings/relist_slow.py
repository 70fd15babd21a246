"""A relist takes long with no call that hangs: it inspects many pods, one after the other."""

import statistics
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from tracer.facts import CriCall
from tracer.findings import inspecting, wording
from tracer.findings.finding import Confidence, Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene
from tracer.kubelet.relists import Relist

SHOWN_NS = 3 * NS
"""Three times the pause between relists: the kubelet learns of changes later than it should."""

WARNING_NS = 30 * NS
"""A sixth of the time after which the kubelet calls its PLEG unhealthy."""

ONE_CALL = 0.5
"""Share of the relist that one call takes, above which that call is the matter, not their number."""

BURST = 20
"""Pods that were started or stopped around the relist; fewer do not stretch it."""

BURST_NS = 120 * NS
"""How long before the relist they are counted: the last relist may have been as long."""

MAX_CHANGES = 4096
"""Starts and stops of pods remembered; a storm has some hundred."""

MAX_KUBELETS = 64

_CHANGES = ("RunPodSandbox", "StopPodSandbox")

Key = tuple[str, int]


@dataclass(slots=True)
class _Slow:
    """`latest`: the latest slow relist; `longest`: the longest. `count`: how many were slow."""

    start: int
    until: int
    latest: Relist
    longest: Relist
    first: bool
    count: int = 1


class RelistSlow:
    """One finding for each time in which a kubelet's relists are slow."""

    kind = "relist_slow"

    def __init__(self) -> None:
        self._slow: dict[Key, _Slow] = {}
        self._started: OrderedDict[Key, int] = OrderedDict()  # kubelets whose start was seen
        self._changes: deque[tuple[int, str, str]] = deque(maxlen=MAX_CHANGES)  # time, runtime's path, pod

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for event in scene.node_events:
            if event.kind == "kubelet_started" and event.runtime is not None and event.pid is not None:
                self._started[event.runtime, event.pid] = event.time
                if len(self._started) > MAX_KUBELETS:
                    self._started.popitem(last=False)
        for call in scene.ended:
            if call.method in _CHANGES and call.pod is not None:
                self._changes.append((call.rpc.end or scene.now, call.rpc.peer.path, call.pod.uid))
        quick: set[Key] = set()
        for relist in scene.relists:
            if relist.kind == "generic" and relist.calls:
                self._take(_key(relist.calls[0]), relist, scene, quick)
        for path, pid, kubelet in scene.kubelets:
            run = kubelet.relist
            if run is not None and not run.over:
                self._take((path, pid), run.relist, scene, quick)
        known = {(path, pid) for path, pid, _ in scene.kubelets}
        for key, slow in list(self._slow.items()):
            over = key in quick or key not in known
            yield self._verdict(key, slow, scene, end=slow.until if over else None)
            if over:
                del self._slow[key]

    def _take(self, key: Key, relist: Relist, scene: Scene, quick: set[Key]) -> None:
        length = inspecting.lasted(relist, scene.now)
        slow = self._slow.get(key)
        if length < SHOWN_NS:
            if relist.end is not None and (slow is None or relist is not slow.latest):
                quick.add(key)
            return
        if not self._of_many(relist, length, scene):
            return
        quick.discard(key)
        if slow is None:
            first = relist.interval is None and key in self._started
            slow = self._slow[key] = _Slow(relist.start, scene.now, relist, relist, first)
        elif relist is not slow.latest:
            slow.latest, slow.count, slow.first = relist, slow.count + 1, False
        slow.until = scene.now if relist.end is None else relist.end
        if length >= inspecting.lasted(slow.longest, scene.now):
            slow.longest = relist

    def _of_many(self, relist: Relist, length: int, scene: Scene) -> bool:
        """Whether it is long for the number of its calls: none takes most of it, and nothing explains most of them."""
        explained = 0
        for call in relist.calls:
            took = (scene.now if call.rpc.end is None else call.rpc.end) - call.rpc.start
            if took > ONE_CALL * length:
                return False
            if not scene.unexplained(call, self.kind):
                explained += took
        return explained <= ONE_CALL * length

    # what is said

    def _verdict(self, key: Key, slow: _Slow, scene: Scene, *, end: int | None) -> Verdict:
        _path, pid = key
        relist = slow.longest
        length = inspecting.lasted(relist, scene.now)
        asked = len(relist.inspections)
        failed = sum(call.rpc.end is not None and call.rpc.status not in ("OK", None) for call in relist.calls)
        took = [call.rpc.end - call.rpc.start for call in relist.calls if call.rpc.end is not None]
        median = wording.gap(int(statistics.median(took))) if took else "unknown"
        inspected = (
            f"{asked:,} pod{'s' * (asked != 1)} inspected one after the other in {wording.seconds(length)} "
            f"(median {median} a call)"
        )
        listed = _listed(relist)
        if 2 * listed > length:
            inspected = f"its two lists took {wording.seconds(listed)} of {wording.seconds(length)}"
        changed = self._changed(key[0], relist, scene.now)
        confidence: Confidence = "high"
        if slow.first:
            going = "" if relist.end is not None else " so far"
            summary = f"First relist after the start of the kubelet (process {pid}): {inspected}{going}"
            shares = inspecting.exited(relist)
            if shares is not None:
                summary += f"; {shares[0]:,} of {shares[1]:,} containers have exited"
            summary += "; it is the number of containers, not a hang"
        elif changed >= BURST and 2 * changed >= asked:
            summary = (
                f"Relists {'were' if end is not None else 'are'} stretched by a burst of {changed} pods that started "
                f"or stopped: {slow.count} took more than {wording.seconds(SHOWN_NS)}, the longest with {inspected}; "
                "this is load, which passes by itself"
            )
        else:
            confidence = "medium"
            longest = f"; {slow.count} in a row took more than {wording.seconds(SHOWN_NS)}" if slow.count > 1 else ""
            summary = f"A relist of the kubelet (process {pid}) is long: {inspected}{longest}"
            share = inspecting.largest(relist, scene.now)
            if share is not None and share.taken > ONE_CALL * length:
                summary += f"; {share.words}: {wording.pod(share.pod)}"
        summary += f"; {failed} call{'s' * (failed != 1)} failed" if failed else "; no call failed"
        longest_calls = sorted(
            (call for call in relist.calls if call.rpc.end is not None),
            key=lambda call: call.rpc.start - (call.rpc.end or 0),
        )[:3]  # fmt: skip
        return Verdict(
            self.kind, key, severity_of(length, WARNING_NS, None), slow.start, f"{summary}.",
            end=end,
            calls=tuple(longest_calls),
            explains=frozenset((slow.latest.id, relist.id)),
            evidence=_evidence(relist, longest_calls, scene.now),
            confidence=confidence,
            next_steps=(
                "crictl ps -a | wc -l; crictl pods | wc -l: what has exited is inspected as well",
                "Container garbage collection of the kubelet (maximum dead containers per container, minimum age).",
            ),
        )  # fmt: skip

    def _changed(self, path: str, relist: Relist, now: int) -> int:
        """Pods that were started or stopped during the relist or shortly before."""
        end = now if relist.end is None else relist.end
        return len({
            pod for time, of, pod in self._changes if of == path and relist.start - BURST_NS <= time <= end
        })  # fmt: skip


def _evidence(relist: Relist, longest: list[CriCall], now: int) -> list[Evidence]:
    listed = _listed(relist)
    found = [
        Evidence(
            relist.start,
            f"The longest relist: {wording.seconds(inspecting.lasted(relist, now))}, of which its two lists "
            f"{wording.gap(listed)}; {len(relist.calls):,} calls in all.",
        )
    ]
    found += [
        Evidence(
            call.rpc.start,
            f"{wording.call(call)}, one of the longest: {wording.gap((call.rpc.end or now) - call.rpc.start)}.",
            call.id,
        )
        for call in longest
    ]
    return found


def _listed(relist: Relist) -> int:
    """Nanoseconds that its two lists took, of those that are over."""
    lists = [call for call in (relist.list_sandboxes, relist.list_containers) if call is not None and call.rpc.end]
    return sum((call.rpc.end or 0) - call.rpc.start for call in lists)


def _key(call: CriCall) -> Key:
    return call.rpc.peer.path, call.rpc.peer.client_pid
