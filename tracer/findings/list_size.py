"""List answers that near the size that gRPC lets through; beyond it nothing can be listed, not even to clean up."""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from tracer.facts import EXITED, STREAMS, CriCall, Scope
from tracer.findings import wording
from tracer.findings.finding import Evidence, Severity, Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import failed

LIMIT = 16 << 20
"""Bytes that kubelet and runtime send and take at most (`maxMsgSize` in cri-client)."""

SHOWN, WARNING = 0.5, 0.8
"""Of the limit."""

SAMPLE_NS = 60 * NS
MAX_SAMPLES = 60
LEAST_SPAN_NS = 600 * NS
"""Growth is told from the samples of an hour, when they span ten minutes at least."""

HOUR_NS = 3600 * NS

MAX_LISTS = 64
"""Runtimes and methods: a node has about ten."""

_TOO_LARGE = "larger than max"

_THINGS = {"ListContainers": "containers", "ListPodSandbox": "sandboxes", "ListImages": "images"}


@dataclass(slots=True)
class _List:
    """`samples`: (time, bytes, items) each minute; `latest`: the last answer; `refused`: calls beyond the limit."""

    latest: CriCall
    items: int = 0
    samples: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    refused: int = 0
    first: CriCall | None = None
    last: CriCall | None = None

    @property
    def start(self) -> int:
        return self.first.rpc.start if self.first is not None else self.samples[0][0]

    def growth(self) -> tuple[float, float] | None:
        """Bytes and items an hour; None when too little was seen."""
        if len(self.samples) < 2 or self.samples[-1][0] - self.samples[0][0] < LEAST_SPAN_NS:
            return None
        (begin, size, items), (end, now, more) = self.samples[0], self.samples[-1]
        return (now - size) * HOUR_NS / (end - begin), (more - items) * HOUR_NS / (end - begin)


class ListSize:
    """One finding for each list of a runtime's."""

    kind = "list_size"

    def __init__(self) -> None:
        self._lists: dict[Hashable, _List] = {}
        self._shown: dict[Hashable, int] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method is None or not call.method.startswith("List") or call.method in STREAMS:
                continue
            if scene.kubelet_of(call) is not None and call.scope in (None, Scope.ALL):
                self._take(call)
        for key, listed in self._lists.items():
            share = listed.latest.rpc.response_bytes / LIMIT
            if listed.refused or share >= SHOWN:
                self._shown.setdefault(key, listed.start if listed.refused else listed.latest.rpc.start)
                yield self._verdict(key, listed, share)
            else:
                self._shown.pop(key, None)

    def _take(self, call: CriCall) -> None:
        key = (call.rpc.peer.path, call.method)
        listed = self._lists.get(key)
        if failed(call) and _TOO_LARGE in (call.rpc.error or ""):
            if listed is None:
                listed = self._new(key, call)
            if listed is not None:
                listed.refused += 1
                listed.first, listed.last = listed.first or call, call
        elif call.rpc.status == "OK":
            listed = listed or self._new(key, call)
            if listed is None:
                return
            listed.latest, listed.refused, listed.first = call, 0, None
            listed.items = call.items or len(call.containers or call.sandboxes or ())
            if not listed.samples or call.rpc.start - listed.samples[-1][0] >= SAMPLE_NS:
                listed.samples.append((call.rpc.start, call.rpc.response_bytes, listed.items))

    def _new(self, key: Hashable, call: CriCall) -> _List | None:
        if len(self._lists) >= MAX_LISTS:
            return None
        listed = self._lists[key] = _List(call)
        return listed

    def _verdict(self, key: Hashable, listed: _List, share: float) -> Verdict:
        method = listed.latest.method or ""
        things = _THINGS.get(method, "items")
        last = f"{listed.latest.rpc.response_bytes / (1 << 20):.2f} MiB, {listed.items} {things}" if share else ""
        growth = listed.growth()
        grows = ""
        if growth is not None and growth[0] > 0:
            grows = f", growing by {growth[1]:.0f} {things} an hour"
            left = LIMIT - listed.latest.rpc.response_bytes
            if not listed.refused and left > 0:
                grows += f": full in {wording.seconds(int(left / growth[0] * HOUR_NS))}"
        severity: Severity = "warning" if share >= WARNING else "info"
        calls = [listed.latest]
        if listed.refused and listed.last is not None and listed.first is not None:
            severity, calls = "critical", [*dict.fromkeys((listed.latest, listed.first, listed.last))]
            good = f" (last success: {last}{grows})" if last else ""
            summary = (
                f"{method} failed {listed.refused} times: its answer is larger than the {LIMIT >> 20} MiB that gRPC"
                f" lets through{good}; what would remove {things} needs the same list, so this does not end by itself"
            )
        else:
            summary = f"The answer of {method} is at {share:.0%} of the {LIMIT >> 20} MiB limit ({last}{grows})"
        return Verdict(
            self.kind, key, severity, self._shown[key], f"{summary}.",
            calls=tuple(calls),
            explains=frozenset(call.id for call in calls) if listed.refused else frozenset(),
            evidence=[
                Evidence(call.rpc.start, f"{method}: {call.rpc.response_bytes} bytes, {call.rpc.status}.", call.id)
                for call in calls
            ],
            next_steps=(
                "crictl ps -a -q --state exited | wc -l",
                "crictl rm of exited containers; crictl may need the same list: then ctr -n k8s.io, or a higher limit.",
                "What makes the containers: jobs without ttlSecondsAfterFinished, crash loops with many containers.",
            ),
        )  # fmt: skip


DEAD = 1000
"""Exited containers: the kubelet keeps one for each container of a pod, so a node has a few hundred."""

COUNT_NS = 60 * NS


class DeadContainers:
    """One finding for each runtime that has many exited containers."""

    kind = "dead_containers"

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        self._many: dict[str, Verdict] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            path = call.rpc.peer.path
            if call.asks != "ListContainers" or call.scope is not Scope.ALL or call.containers is None:
                continue
            if call.rpc.start - self._counted.get(path, -COUNT_NS) >= COUNT_NS and scene.kubelet_of(call) is not None:
                self._counted[path] = call.rpc.start
                self._count(path, call)
        yield from self._many.values()

    def _count(self, path: str, call: CriCall) -> None:
        listed = call.containers or ()
        dead = sum(item.state == EXITED for item in listed)
        before = self._many.pop(path, None)
        if dead < DEAD or 2 * dead < len(listed):
            return
        pods = len({item.pod.uid for item in listed if item.pod is not None})
        self._many[path] = Verdict(
            self.kind, path, "info", before.start if before else call.rpc.start,
            f"{dead} of {len(listed)} containers are exited ({pods} pods): each relist lists them all.",
            calls=(call,),
            evidence=[Evidence(call.rpc.start, f"ListContainers: {call.rpc.response_bytes} bytes.", call.id)],
            next_steps=("crictl ps -a --state exited", "The kubelet's flags maximum-dead-containers*."),
        )  # fmt: skip
