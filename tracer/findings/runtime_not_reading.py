"""The runtime does not read its socket: requests wait in it, whatever they ask for."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer import stamps
from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene

SHOWN_NS = NS
WARNING_NS = 2 * NS

QUIET_NS = NS
"""Requests that wait within this of each other are one stop."""


@dataclass(slots=True)
class _Stop:
    """`waited`: longest wait of each call, ns. `worked`: calls the runtime had read before it stopped."""

    start: int
    until: int
    waited: dict[str, int] = field(default_factory=dict)
    calls: dict[str, CriCall] = field(default_factory=dict)
    worked: dict[str, CriCall] = field(default_factory=dict)


class RuntimeNotReading:
    """One finding for each stop of a runtime process."""

    kind = "runtime_not_reading"

    def __init__(self) -> None:
        self._stops: dict[str, _Stop] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        waiting: set[str] = set()
        for call in (*scene.ended, *scene.open):
            wait = stamps.request_wait(call.rpc, scene.now)
            if wait is None or wait < SHOWN_NS or call.rpc.sent is None:
                continue
            path = call.rpc.peer.path
            end = call.rpc.received if call.rpc.received is not None else scene.now
            if call.rpc.received is None and call.rpc.end is not None:
                end = call.rpc.end  # given up before it was read
            elif call.rpc.received is None:
                waiting.add(path)
            stop = self._stops.get(path)
            if stop is None:
                stop = self._stops[path] = _Stop(call.rpc.sent, end)
            stop.start = min(stop.start, call.rpc.sent)
            stop.until = max(stop.until, end)
            stop.waited[call.id] = wait
            stop.calls[call.id] = call
        for path, stop in list(self._stops.items()):
            over = path not in waiting and scene.now - stop.until >= QUIET_NS
            self._note_worked(path, stop, scene)
            yield self._verdict(path, stop, end=stop.until if over else None)
            if over:
                del self._stops[path]

    @staticmethod
    def _note_worked(path: str, stop: _Stop, scene: Scene) -> None:
        """Calls that were with the runtime for most of the stop: their time is the stop's."""
        length = stop.until - stop.start
        for call in (*scene.ended, *scene.open):
            rpc = call.rpc
            if rpc.peer.path != path or rpc.received is None or call.id in stop.calls:
                continue
            end = rpc.answered or rpc.end or scene.now
            overlap = min(end, stop.until) - max(rpc.received, stop.start)
            if length > 0 and 2 * overlap >= length and 2 * overlap >= end - rpc.received:
                stop.worked[call.id] = call

    def _verdict(self, path: str, stop: _Stop, *, end: int | None) -> Verdict:
        longest = max(stop.calls.values(), key=lambda call: stop.waited[call.id])
        peer = longest.rpc.peer
        who = f"{peer.server_comm or 'The runtime'} (process {peer.server_pid})"
        length = stop.until - stop.start
        verb = "did not read" if end is not None else "does not read"
        calls = (*stop.calls.values(), *stop.worked.values())
        evidence = [
            Evidence(
                call.rpc.sent, f"{wording.call(call)} waited {wording.seconds(stop.waited[call.id])} unread.", call.id
            )
            for call in stop.calls.values()
        ]
        evidence += [
            Evidence(
                call.rpc.received,
                f"{wording.call(call)} had been read before; its answer stayed out meanwhile.",
                call.id,
            )
            for call in stop.worked.values()
        ]
        return Verdict(
            self.kind, path, severity_of(length, WARNING_NS), stop.start,
            f"{who} {verb} its socket {path} for {wording.seconds(length)}: "
            f"{len(stop.calls)} request{'s' * (len(stop.calls) != 1)} waited, the longest {wording.call(longest)}; "
            "the process was stopped or starved, not slow at one call.",
            end=end,
            pods=wording.pods_of(calls),
            calls=calls,
            explains=frozenset(call.id for call in calls),
            evidence=evidence,
            processes={peer.server_pid: peer.server_comm or "The runtime"},
            unknown_process=("Whether the process was stopped, had no CPU, or its listener was blocked.",),
            next_steps=(
                f"cat /proc/{peer.server_pid}/status | grep State",
                f"cat /proc/{peer.server_pid}/cgroup, then cpu.stat and cpu.pressure there: throttled?",
                (f"If it still does not read: kill -USR1 {peer.server_pid} makes containerd and CRI-O log their "
                "goroutines, before anybody restarts it."),
            ),
        )  # fmt: skip
