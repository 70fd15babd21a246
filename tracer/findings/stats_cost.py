"""Statistics take a large part of the runtime's time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import STREAMS, CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene

STATS = frozenset({
    "ListPodSandboxStats", "ListContainerStats", "PodSandboxStats", "ContainerStats", "ListPodSandboxMetrics",
})  # fmt: skip

WAITS = frozenset({"PullImage", "StopContainer", "ExecSync", "RunPodSandbox"}) | STREAMS
"""Calls that wait for others than the runtime: their time is not its work."""

WINDOW_NS = 60 * NS

LEAST_TIME = 0.1
LEAST_SHARE = 0.25
"""Of the time that passed, and of the runtime's working time."""


@dataclass(slots=True)
class _Window:
    busy: int = 0
    stats: int = 0
    items: int = 0
    listing: int = 0  # time of those that told how many items
    calls: list[CriCall] = field(default_factory=list)
    clients: Counter[str] = field(default_factory=Counter)


class StatsCost:
    """One finding for each runtime."""

    kind = "stats_cost"

    def __init__(self) -> None:
        self._since = 0
        self._windows: dict[str, _Window] = {}
        self._costly: dict[str, Verdict] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        self._since = self._since or scene.now
        for call in scene.ended:
            rpc = call.rpc
            if not call.cri or call.method in WAITS or rpc.received is None or rpc.answered is None:
                continue
            window = self._windows.setdefault(rpc.peer.path, _Window())
            worked = rpc.answered - rpc.received
            window.busy += worked
            if call.asks in STATS:
                window.stats += worked
                window.clients[rpc.peer.client_comm] += 1
                if call.items:
                    window.items += call.items
                    window.listing += worked
                if len(window.calls) < 64:
                    window.calls.append(call)
        if scene.now - self._since >= WINDOW_NS:
            length = scene.now - self._since
            self._costly = {
                path: self._verdict(path, window, length)
                for path, window in self._windows.items()
                if window.stats >= LEAST_TIME * length and window.stats >= LEAST_SHARE * window.busy
            }
            self._windows, self._since = {}, scene.now
        yield from self._costly.values()

    def _verdict(self, path: str, window: _Window, length: int) -> Verdict:
        before = self._costly.get(path)
        count = sum(window.clients.values())
        each = ""
        if window.items:
            each = f"; {window.listing / window.items / 1e6:.0f} ms for each item of {window.calls[-1].items}"
        clients = wording.several(f"{name} {times} times" for name, times in window.clients.most_common())
        return Verdict(
            self.kind, path, "info", before.start if before else self._since,
            f"Statistics take {window.stats / window.busy:.0%} of the working time of the runtime at {path}:"
            f" {count * 10 * NS / length:.1f} calls in 10 s ({clients} in {wording.seconds(length)}){each}.",
            calls=tuple(window.calls),
            evidence=[
                Evidence(call.rpc.start, f"{call.method}: {(call.rpc.answered or 0) - (call.rpc.received or 0)} ns,"
                         f" {call.items} items.", call.id)
                for call in window.calls[:4]
            ],
            next_steps=("Who scrapes the kubelet's /stats/summary, /metrics/cadvisor, /metrics/resource; how often.",),
        )  # fmt: skip
