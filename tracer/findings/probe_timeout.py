"""Exec probes that time out, and those whose time-out the runtime does not keep."""

from collections import Counter
from collections.abc import Hashable, Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Confidence, Evidence, Severity, Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles, gave_up
from tracer.kubelet.probes import result_of

CLIENT_NS = 120 * NS
"""The kubelet's deadline for ExecSync is the probe's timeout and this (`runtimeRequestTimeout`)."""

SLACK_NS = 5 * NS
"""A runtime needs some time to kill the command."""

FORGIVEN_NS = 360 * NS
"""What did not time out for longer works again, or is not run any more."""

RECOVERED = 3
"""Runs in a row that ended in time."""

WARNING_TIMES = 3
"""The default failure threshold of a probe."""

STOP_NS = NS
"""The kubelet stops a container this soon after the run of its liveness probe that was one too many."""


class ProbeTimeout:
    """One finding for each probe: a container of a pod, and a command."""

    kind = "probe_timeout"

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._runs: Counter[Hashable] = Counter()  # since the first time-out
        self._fine: Counter[Hashable] = Counter()  # in a row
        self._ignored: Counter[Hashable] = Counter()  # ended by the kubelet's own deadline
        self._open: dict[Hashable, CriCall] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        self._open = {}
        for call in scene.ended:
            if call.method == "ExecSync" and call.timeout and scene.kubelet_of(call) is not None:
                self._ended(call, scene)
            elif call.method == "StopContainer":
                self._stopped(call)
        for call in scene.open:
            late = call.method == "ExecSync" and call.timeout and _lasted(call, scene.now) >= SLACK_NS
            if late and scene.unexplained(call, self.kind) and scene.kubelet_of(call) is not None:
                self._open[_key(call)] = call
                if self._troubles.get(_key(call)) is None:
                    yield self._hanging(call, scene.now)
        for key, trouble in self._troubles:
            over = self._fine[key] >= RECOVERED or scene.now - trouble.last >= FORGIVEN_NS
            over = over and key not in self._open
            yield self._verdict(key, trouble, scene, end=trouble.last if over else None)
            if over:
                self._troubles.over(key)
        for counter in (self._runs, self._fine, self._ignored):
            for key in [key for key in counter if self._troubles.get(key) is None]:
                del counter[key]

    def _ended(self, call: CriCall, scene: Scene) -> None:
        key = _key(call)
        if not scene.unexplained(call, self.kind):
            return
        ignored = gave_up(call) and _lasted(call, scene.now) >= CLIENT_NS - SLACK_NS
        if result_of(call) == "timeout" or ignored:
            self._troubles.add(key, call)
            self._runs[key] += 1
            self._fine[key] = 0
            self._ignored[key] += ignored
        elif self._troubles.get(key) is not None:
            self._runs[key] += 1
            self._fine[key] += call.rpc.ended_by == "server"

    def _stopped(self, call: CriCall) -> None:
        """A container that is stopped because of its probe: that is part of the same trouble."""
        for _, trouble in self._troubles:
            last = trouble.latest
            ends = [each.rpc.end for each in trouble.calls.values() if each.rpc.end is not None]
            near = any(0 <= call.rpc.start - end <= STOP_NS for end in ends)
            if near and last.container_id == call.container_id:
                trouble.calls[call.id] = call
                trouble.calls.move_to_end(last.id)

    def _hanging(self, call: CriCall, now: int) -> Verdict:
        """The first run that does not end in time."""
        return Verdict(
            self.kind, _key(call), "warning", call.rpc.start,
            f"{wording.call(call)} has not ended for {wording.seconds(now - call.rpc.start)}: the runtime does not keep"
            f" its timeout of {call.timeout} s.",
            pods=(call.pod,) if call.pod else (),
            calls=(call,),
            evidence=[Evidence(call.rpc.start, f"{wording.call(call)}: timeout {call.timeout} s.", call.id)],
            confidence="medium",
            unknown=_UNKNOWN,
            next_steps=_steps(call),
        )  # fmt: skip

    def _verdict(self, key: Hashable, trouble: Trouble, scene: Scene, *, end: int | None) -> Verdict:
        call, runs = trouble.latest, self._runs[key]
        confidence: Confidence = "high"
        severity: Severity = "warning" if trouble.times >= WARNING_TIMES or self._ignored[key] else "info"
        probe = f"The exec probe{_of(call)} with a timeout of {call.timeout} s"
        since = f"within {wording.seconds(trouble.last - trouble.start)}"
        if self._ignored[key]:
            took = wording.seconds(_lasted(call, scene.now) + (call.timeout or 0) * NS)
            summary = (
                f"{probe} was not ended by the runtime in time: {self._ignored[key]} of {runs} runs took {took}, the"
                f" timeout and the kubelet's 120 s, {since}; no other run of it began meanwhile. Likely its command"
                " leaves a child in the background that keeps its output open"
            )
            confidence = "medium"
        elif trouble.times == 1:
            summary = f"{probe} timed out once"
        else:
            share = "all" if runs == trouble.times else f"{trouble.times} of"
            summary = f"{probe} timed out in {share} {runs} runs {since}"
        stops = sum(each.method == "StopContainer" for each in trouble.calls.values())
        if stops:
            summary += f"; the container was stopped for it {stops} times" if stops > 1 else (
                "; the container was stopped for it"
            )  # fmt: skip
        return Verdict(
            self.kind, key, severity, trouble.start, f"{summary}.",
            end=end,
            pods=trouble.all_pods,
            calls=(*trouble.named, self._open[key]) if key in self._open else trouble.named,
            explains=frozenset(trouble.calls),
            evidence=[Evidence(each.rpc.start, f"{wording.call(each)} ended after"
                      f" {wording.seconds((each.rpc.end or each.rpc.start) - each.rpc.start)}.", each.id)
                      for each in trouble.named[-8:]],
            confidence=confidence,
            unknown=_UNKNOWN,
            next_steps=_steps(call),
        )  # fmt: skip


_UNKNOWN = ("Whether processes of the command are left in the container: that is possible, and not visible here.",)


def _steps(call: CriCall) -> tuple[str, ...]:
    where = f"-n {call.pod.namespace} {call.pod.name} -c {call.container.name} " if call.pod and call.container else ""
    return (
        f"kubectl exec {where}-- ps: processes of the probe that were left",
        "A command that starts something in the background must close its output (>/dev/null 2>&1 &).",
    )


def _key(call: CriCall) -> Hashable:
    """A probe through restarts of its container."""
    who = (call.pod.uid, call.container.name) if call.pod and call.container else call.container_id
    return call.rpc.peer.path, who, call.command


def _lasted(call: CriCall, now: int) -> int:
    """How long it lasted beyond its timeout."""
    return (now if call.rpc.end is None else call.rpc.end) - call.rpc.start - (call.timeout or 0) * NS


def _of(call: CriCall) -> str:
    name = f" of container {call.container.name}" if call.container else ""
    return f"{name} in pod {wording.pod(call.pod)}" if call.pod else name
