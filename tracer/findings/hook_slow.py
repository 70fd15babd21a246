"""A lifecycle hook runs long: the kubelet waits for it without a deadline."""

from collections.abc import Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene

SHOWN_NS = 10 * NS
WARNING_NS = 60 * NS
"""A container is not running for its pod before its postStart hook is over; a preStop hook has its grace."""


class HookSlow:
    """One finding for each run of a hook."""

    kind = "hook_slow"

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in (*scene.ended, *scene.open):
            if call.method != "ExecSync" or call.timeout != 0:
                continue
            until = scene.now if call.rpc.end is None else call.rpc.end
            if until - call.rpc.start < SHOWN_NS or not scene.unexplained(call, self.kind):
                continue
            if scene.activity(call)[0] == "lifecycle_hook":
                yield self._verdict(call, until)

    def _verdict(self, call: CriCall, until: int) -> Verdict:
        lasted = wording.seconds(until - call.rpc.start)
        verb = "has been running for" if call.rpc.end is None else "took"
        of = f" of container {call.container.name}" if call.container else ""
        pod = f" in pod {wording.pod(call.pod)}" if call.pod else ""
        limit = "" if call.rpc.deadline_ns else "; it has no deadline"
        return Verdict(
            self.kind, call.id, "warning" if until - call.rpc.start >= WARNING_NS else "info", call.rpc.start,
            f"A lifecycle hook{of}{pod} {verb} {lasted}{limit}, and the pod's worker waits for it.",
            end=call.rpc.end,
            pods=(call.pod,) if call.pod else (),
            calls=(call,),
            explains=frozenset((call.id,)),
            evidence=[Evidence(call.rpc.start, f"{wording.call(call)} without a timeout: {lasted}.", call.id)],
            next_steps=("The command of the container's postStart or preStop hook: what does it wait for?",),
        )  # fmt: skip
