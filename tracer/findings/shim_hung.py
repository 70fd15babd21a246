"""A shim does not answer: calls to it stay open, and no program that it runs for them explains why."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer import stamps
from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene
from tracer.runtime.step import Step

SHOWN_NS = NS
WARNING_NS = 2 * NS

QUIET_NS = NS
"""Calls to one shim that hang within this of each other are one hang."""

LASTING = frozenset({"Wait", "SandboxWait", "WaitSandbox"})
"""Open for as long as a process runs."""


@dataclass(slots=True)
class _Hang:
    start: int
    until: int
    steps: dict[str, Step] = field(default_factory=dict)
    calls: dict[str, CriCall] = field(default_factory=dict)


class ShimHung:
    """One finding for each hang of a shim process."""

    kind = "shim_hung"

    def __init__(self) -> None:
        self._hangs: dict[int, _Hang] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        hanging: set[int] = set()
        for step in (*scene.steps, *scene.runtime.open_steps()):
            if step.kind != "shim" or step.name in LASTING or not step.pid:
                continue
            until = scene.now if step.end is None else step.end
            if until - step.start < SHOWN_NS or self._explained(step, scene, until):
                continue
            hang = self._hangs.get(step.pid)
            if hang is None:
                hang = self._hangs[step.pid] = _Hang(step.start, until)
            hang.start, hang.until = min(hang.start, step.start), max(hang.until, until)
            hang.steps[step.id] = step
            if step.call is not None:
                hang.calls[step.call.id] = step.call
            if step.end is None:
                hanging.add(step.pid)
        for pid, hang in list(self._hangs.items()):
            over = pid not in hanging and scene.now - hang.until >= QUIET_NS
            yield self._verdict(pid, hang, end=hang.until if over else None)
            if over:
                del self._hangs[pid]

    def _explained(self, step: Step, scene: Scene, until: int) -> bool:
        """Whether it is another's time: a program ran for most of it, the runtime stood still, or the shim is alive.

        A shim that answers others may still be stuck with one container: that counts when a call waits for it.
        """
        length = until - step.start
        alive = scene.runtime.answered(step.pid or 0)
        if alive is not None and step.start + SHOWN_NS < alive < until and (step.call is None or step.end is not None):
            return True
        ran = sum(
            (until if child.end is None else child.end) - child.start for child in step.children if child.kind != "shim"
        )
        return 2 * ran > length or (step.call is not None and not scene.unexplained(step.call, self.kind))

    def _verdict(self, pid: int, hang: _Hang, *, end: int | None) -> Verdict:
        first = min(hang.steps.values(), key=lambda step: step.start)
        pod = next((step.pod for step in hang.steps.values() if step.pod is not None), None)
        lasted = wording.seconds(hang.until - hang.start)
        verb = "did not answer" if end is not None else "has not answered"
        whose = f"The shim of pod {wording.pod(pod)}" if pod else "A shim"
        calls = tuple(hang.calls.values())
        for_whom = f" for {wording.several(wording.call(call) for call in calls)}" if calls else ""
        evidence = [
            Evidence(
                step.start,
                f"{step.name}{f' of container {step.container.name}' if step.container else ''} "
                f"{'took' if step.end is not None else 'has been open for'} "
                f"{wording.seconds((hang.until if step.end is None else step.end) - step.start)}"
                f"{_unread(step)}.",
                step.call.id if step.call else None,
                step.id,
            )
            for step in sorted(hang.steps.values(), key=lambda step: step.start)
        ]
        evidence += [
            Evidence(
                call.rpc.start,
                f"{wording.call(call)}: {wording.seconds(stamps.service(call.rpc, hang.until) or 0)} of service.",
                call.id,
            )
            for call in calls
        ]
        return Verdict(
            self.kind, pid, severity_of(hang.until - hang.start, WARNING_NS), hang.start,
            f"{whose} (process {pid}) {verb} {first.name} for {lasted}{for_whom}; no runc ran for it meanwhile.",
            end=end,
            pods=(pod,) if pod else (),
            calls=calls,
            explains=frozenset(hang.calls),
            evidence=evidence,
            processes={pid: "The shim"},
            unknown_process=("Whether the shim is stopped, blocked in the kernel, or deadlocked.",),
            next_steps=(
                f"grep State /proc/{pid}/status; cat /proc/{pid}/wchan /proc/{pid}/stack",
                f"kill -USR1 {pid} makes the shim log its goroutines; kill -CONT {pid} if it is stopped",
                "The pod's containers outlive a restart of the runtime; they do not outlive their shim.",
            ),
        )  # fmt: skip


def _unread(step: Step) -> str:
    """How long the shim left the request in its socket; what is not known (on old connections) is not said."""
    if step.received is None:
        return ""
    wait = step.received - step.start
    if wait < SHOWN_NS:
        return "; the shim had read it at once"
    return f", {wording.seconds(wait)} of it unread by the shim"
