"""The runtime as a whole is slow: calls of every sort, of all pods, take long, though it answers them."""

import statistics
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer import stamps
from tracer.facts import CriCall
from tracer.findings import locks, wording
from tracer.findings.finding import Evidence, Severity, Verdict
from tracer.findings.scene import NS, Scene

READS = frozenset({
    "Status", "Version", "ListPodSandbox", "ListContainers", "ListImages", "PodSandboxStatus", "ContainerStatus",
    "ImageStatus", "ImageFsInfo", "ListContainerStats", "ListPodSandboxStats", "ContainerStats", "PodSandboxStats",
})  # fmt: skip
WRITES = (locks.CHANGES | {"RemoveImage"}) - {"StopContainer"}
"""StopContainer lasts as long as its container pleases."""

READ_NS = 3 * NS // 10
"""A read takes less than a millisecond, and 0.2 s at most when a hundred pods start at once on two cores."""

WRITE_NS = 5 * NS
"""A change takes 0.1 to 0.3 s, and 3 s at most under the same load."""

USUAL = 5
"""Times its usual duration from which on a call is slow."""

WARNING_NS = NS
"""Median of reads."""

METHODS = 3
"""Methods of reads that must be slow: one lock holds up one or two."""

SHARE = 0.6
"""Of the methods of reads in use, those that must be slow: some are answered from memory, whatever happens."""

RECENT_NS = 60 * NS
"""A method that was not used for longer says nothing. The kubelet's slowest rhythm that counts is 10 s."""

BURST = 20
"""Pods that start at once, from which on the slowness is their load."""

MAX_METHODS = 64
MAX_CALLS = 16
"""The longest calls, named as examples."""

MAX_RUNTIMES = 16


@dataclass(slots=True)
class _Method:
    """`usual`: durations of calls that were not slow, ns. `since`: start of the first of all those that are, now."""

    usual: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    latest: deque[int] = field(default_factory=lambda: deque(maxlen=16))
    since: int | None = None
    used: int = 0


@dataclass(slots=True)
class _Slow:
    start: int
    methods: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    longest: dict[str, tuple[int, CriCall]] = field(default_factory=dict)
    starting: int = 0  # pods that were being started when it began
    median: int = 0  # of reads, the worst
    told: str = ""


class RuntimeSlow:
    """One finding for each runtime, as long as it is slow."""

    kind = "runtime_slow"

    def __init__(self) -> None:
        self._methods: OrderedDict[str, dict[str, _Method]] = OrderedDict()  # by the runtime's path
        self._slow: dict[str, _Slow] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        found: dict[str, list[tuple[int, CriCall]]] = {}  # slow calls by path
        for call in scene.ended:
            if call.rpc.ended_by == "server":
                self._note(call, scene, found)
        for path in {path for path, *_ in scene.kubelets}:
            reads = {
                name: method
                for name, method in self._methods.get(path, {}).items()
                if name in READS and scene.now - method.used <= RECENT_NS
            }
            slow = {name for name, method in reads.items() if method.since is not None}
            if len(slow) >= METHODS and len(slow) >= SHARE * len(reads):
                self._begin(path, scene)
            elif path in self._slow and len(slow) < METHODS - 1:
                yield self._verdict(path, self._slow.pop(path), [], scene, end=scene.now)
            if path in self._slow:
                yield self._going(path, found.get(path, []), scene)
        for path in [path for path in self._slow if not any(path == each for each, *_ in scene.kubelets)]:
            del self._slow[path]

    def _note(self, call: CriCall, scene: Scene, found: dict[str, list[tuple[int, CriCall]]]) -> None:
        name = call.method or ""
        limit = READ_NS if name in READS else WRITE_NS if name in WRITES else None
        if limit is None or not scene.unexplained(call, self.kind):
            return
        rpc = call.rpc
        methods = self._methods.get(rpc.peer.path)
        if methods is None:
            methods = self._methods[rpc.peer.path] = {}
            if len(self._methods) > MAX_RUNTIMES:
                self._methods.popitem(last=False)
        method = methods.setdefault(name, _Method())
        took = _took(call, scene.now)
        method.used = scene.now
        usual = statistics.median(method.usual) if took >= limit and method.usual else 0
        if took < limit or took < USUAL * usual:
            method.since = None
            method.latest.clear()
            if took <= limit // USUAL:
                method.usual.append(took)  # what grows slowly must not be taken for usual on its way
            return
        method.since = rpc.start if method.since is None else method.since
        method.latest.append(took)
        found.setdefault(rpc.peer.path, []).append((took, call))

    def _begin(self, path: str, scene: Scene) -> None:
        if path in self._slow:
            return
        since = [method.since for method in self._methods[path].values() if method.since is not None]
        starting = {
            call.pod.uid for call in scene.open
            if call.rpc.peer.path == path and call.pod is not None
            and call.method in ("RunPodSandbox", "CreateContainer", "StartContainer")
        }  # fmt: skip
        # Later it is no sign: where all is slow, starts pile up.
        self._slow[path] = _Slow(min(since), starting=len(starting))

    def _going(self, path: str, found: list[tuple[int, CriCall]], scene: Scene) -> Verdict:
        slow = self._slow[path]
        waiting = [
            (took, call)
            for call in scene.open
            if call.rpc.peer.path == path and call.method in READS | WRITES and scene.unexplained(call, self.kind)
            and (took := _took(call, scene.now)) >= (READ_NS if call.method in READS else WRITE_NS)
        ]  # fmt: skip
        for took, call in (*found, *waiting):
            slow.methods.add(call.method or "")
            slow.longest[call.id] = (took, call)
            if call.pod is not None and len(slow.pods) < MAX_METHODS * MAX_CALLS:
                slow.pods.add(call.pod.uid)
        longest = sorted(slow.longest.values(), key=lambda each: -each[0])[:MAX_CALLS]
        slow.longest = {call.id: (took, call) for took, call in longest}
        return self._verdict(path, slow, [call for _, call in (*found, *waiting)], scene, end=None)

    # what is said

    def _verdict(self, path: str, slow: _Slow, calls: list[CriCall], scene: Scene, *, end: int | None) -> Verdict:
        methods = self._methods[path]
        now = sorted((name for name in slow.methods if name in methods and methods[name].latest), key=_reads_first)
        reads = [took for name in now if name in READS for took in methods[name].latest]
        if end is None and reads:
            slow.median = max(slow.median, int(statistics.median(reads)))
            slow.told = wording.several(_told(name, methods[name]) for name in now)
        lasted = wording.seconds((scene.now if end is None else end) - slow.start)
        of_pods = f", of {len(slow.pods)} pods" if len(slow.pods) > 1 else ""
        summary = (
            f"The runtime at {path} as a whole {'was' if end is not None else 'is'} slow for {lasted}: "
            f"{len(slow.methods)} methods{of_pods}"
        )
        summary += f" ({slow.told})" if slow.told else ""
        order = self._order(path, slow)
        summary += f"; {order}" if order else ""
        summary += "; it is not one container"
        load = slow.starting >= BURST
        if load:
            summary += f"; {slow.starting} pods were being started at once when it began, so this is likely their load"
        severity: Severity = "warning" if slow.median >= WARNING_NS and not load else "info"
        server = next((call.rpc.peer.server_pid for call in calls if call.rpc.peer.server_pid), None)
        examples = sorted(slow.longest.values(), key=lambda each: -each[0])
        return Verdict(
            self.kind, path, severity, slow.start, f"{summary}.",
            end=end,
            calls=tuple(call for _, call in examples),
            explains=frozenset(call.id for call in calls),
            evidence=[
                Evidence(call.rpc.start, f"{call.method or 'A call'}: {wording.gap(took)}.", call.id)
                for took, call in examples
            ],
            confidence="medium",
            unknown=("What it lacks: the disk, the CPU, or memory.",),
            next_steps=(
                "cat /proc/pressure/{io,cpu,memory}; iostat -x 1: a cloud disk at its quota shows up here",
                f"cat /proc/{server or 'PID'}/cgroup, then io.pressure, cpu.stat and memory.pressure there",
            ),
        )  # fmt: skip

    def _order(self, path: str, slow: _Slow) -> str | None:
        """Whether changes or reads were slow first, where both were."""
        methods = self._methods[path]
        since = {name: methods[name].since for name in slow.methods if name in methods}
        writes = [time for name, time in since.items() if name in WRITES and time is not None]
        reads = [time for name, time in since.items() if name in READS and time is not None]
        if not writes or not reads or min(writes) >= min(reads):
            return None
        return f"calls that change something were slow first, {wording.gap(min(reads) - min(writes))} before reads"


def _took(call: CriCall, now: int) -> int:
    """How long the runtime worked on it, as far as that was seen; else how long it lasted."""
    service = stamps.service(call.rpc, now)
    if service is not None:
        return service
    return (now if call.rpc.end is None else call.rpc.end) - call.rpc.start


def _reads_first(name: str) -> tuple[bool, str]:
    return name not in READS, name


def _told(name: str, method: _Method) -> str:
    """`ListPodSandbox 2.3 s, usually 5 ms`."""
    usual = f", usually {wording.gap(int(statistics.median(method.usual)))}" if method.usual else ""
    return f"{name} {wording.gap(int(statistics.median(method.latest)))}{usual}"
