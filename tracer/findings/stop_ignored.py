"""A container does not react to its stop signal: it uses its whole grace, and is killed."""

from collections.abc import Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene

LEAST_GRACE = 5
"""Seconds: a shorter grace costs nobody much (the kubelet's least is 2)."""

SLACK_NS = 10 * NS
"""A stop that takes longer than this beyond its grace is stuck."""


class StopIgnored:
    """One finding for each such stop."""

    kind = "stop_ignored"

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method != "StopContainer" or (call.grace or 0) < LEAST_GRACE or call.rpc.status != "OK":
                continue
            beyond = (call.rpc.end or call.rpc.start) - call.rpc.start - (call.grace or 0) * NS
            known = scene.unexplained(call, self.kind) and scene.kubelet_of(call) is not None
            if 0 <= beyond < SLACK_NS and known and _read_at_once(call):
                yield self._verdict(call)

    def _verdict(self, call: CriCall) -> Verdict:
        lasted = wording.seconds((call.rpc.end or call.rpc.start) - call.rpc.start)
        return Verdict(
            self.kind, call.id, "warning", call.rpc.start,
            f"{wording.call(call)} took {lasted}, its whole grace of {call.grace} s: the container did not end upon its"
            " stop signal and was killed.",
            end=call.rpc.end,
            pods=(call.pod,) if call.pod else (),
            calls=(call,),
            explains=frozenset((call.id,)),
            evidence=[Evidence(call.rpc.start, f"{wording.call(call)}, {call.grace} s of grace: {lasted}.", call.id)],
            unknown=("Whether it ignores the signal or needs longer than its grace to end.",),
            next_steps=(
                "A shell as process 1 does not pass signals on: exec the program, or use an init (tini).",
                "Otherwise a longer terminationGracePeriodSeconds, or a STOPSIGNAL that the program handles.",
            ),
        )  # fmt: skip


def _read_at_once(call: CriCall) -> bool:
    """Whether the time is the container's, not that of a runtime which had not read the request."""
    return call.rpc.received is None or call.rpc.received - call.rpc.start < NS
