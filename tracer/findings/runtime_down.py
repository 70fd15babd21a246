"""Nobody serves the runtime's socket: it stopped, and perhaps started again; or it does so again and again."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene
from tracer.node import NodeEvent

WARNING_NS = 3 * NS
"""A planned restart of containerd takes less."""

LOOP = 3
LOOP_NS = 600 * NS
"""As many stops within this are a loop."""

CRASH_NS = NS // 2
"""A call that was open when the runtime ended, and began no earlier than this before, is suspected to be the reason."""

AFTER_NS = 5 * NS
"""Requests that waited for a runtime that was just starting are followers: grpc-go dials again within 3 s."""


@dataclass(slots=True)
class _Down:
    stopped: NodeEvent | None
    started: NodeEvent | None = None
    lost: dict[str, CriCall] = field(default_factory=dict)  # calls that ended with the connection


class RuntimeDown:
    """One finding for each stop; a loop of stops is one."""

    kind = "runtime_down"

    def __init__(self) -> None:
        self._down: dict[str, _Down] = {}
        self._stops: dict[str, deque[int]] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for event in scene.node_events:
            self._note(event)
        for call in scene.ended:
            down = self._down.get(call.rpc.peer.path)
            if down is not None and call.rpc.ended_by == "connection":
                down.lost[call.id] = call
        for path, down in list(self._down.items()):
            over = down.started is not None and scene.now - down.started.time >= AFTER_NS
            yield self._verdict(path, down, scene)
            if over:
                del self._down[path]

    def _note(self, event: NodeEvent) -> None:
        path = event.runtime
        if path is None:
            return
        if event.kind == "runtime_stopped":
            self._down[path] = _Down(event)
            stops = self._stops.setdefault(path, deque(maxlen=16))
            stops.append(event.time)
            while stops[0] < event.time - LOOP_NS:
                stops.popleft()
        elif event.kind == "runtime_started":
            self._down.setdefault(path, _Down(None)).started = event

    def _verdict(self, path: str, down: _Down, scene: Scene) -> Verdict:
        stopped, started = down.stopped, down.started
        start = stopped.time if stopped else started.time if started else scene.now
        until = started.time if started else scene.now
        length = until - start
        stops = len(self._stops.get(path, ()))
        waited = [
            call
            for call in (*scene.ended, *scene.open)
            if call.rpc.peer.path == path and started is not None
            and start <= call.rpc.start <= started.time + AFTER_NS
            and (call.rpc.received is None or call.rpc.received - call.rpc.start > NS // 2)
        ]  # fmt: skip
        crashed = [
            call
            for call in down.lost.values()
            if stopped is not None and 0 <= stopped.time - call.rpc.start <= CRASH_NS
            and call.method in ("RunPodSandbox", "CreateContainer", "StartContainer")
        ]  # fmt: skip
        calls = tuple(down.lost.values())
        who = f"{stopped.comm if stopped else 'The runtime'} (process {stopped.pid if stopped else 'unknown'})"
        if started is None:
            summary = f"{who} is gone since {wording.seconds(length)}: nobody serves {path}"
        elif stopped is None:
            summary = f"The runtime at {path} was restarted: process {started.pid} serves it now"
        else:
            summary = f"{who} was gone for {wording.seconds(length)}; process {started.pid} serves {path} now"
        if calls:
            summary += f"; {len(calls)} call{'s' * (len(calls) != 1)} ended with the connection"
        severity = severity_of(length, WARNING_NS)
        if stops >= LOOP:
            summary += f"; it is the {stops}. stop within {wording.seconds(LOOP_NS)}: the runtime restarts in a loop"
            severity = "critical"
        if crashed:
            summary += f"; it ended just after {wording.call(crashed[0])} began"
        evidence = [Evidence(event.time, event.text) for event in (stopped, started) if event is not None]
        evidence += [Evidence(call.rpc.start, f"{wording.call(call)} was open.", call.id) for call in calls]
        return Verdict(
            self.kind, path, severity, start, f"{summary}.",
            end=until if started is not None and scene.now - started.time >= AFTER_NS else None,
            pods=wording.pods_of(calls),
            calls=calls,
            explains=frozenset(call.id for call in (*calls, *waited)),
            evidence=evidence,
            unknown=("Why it ended: a restart by somebody, a crash, or a kill.",),
            next_steps=(
                "journalctl -u containerd (or crio, k3s, rke2-server ...) around this time",
                "dmesg for OOM kills and segmentation faults; GET /api/v1/node-events?kind=oom_kill",
            ),
        )  # fmt: skip
