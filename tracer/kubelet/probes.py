"""Exec probes: which there are, how often each runs, and how its runs end (`prober.go`, `worker.go`).

A probe is a container and a command: the CRI tells no more. Two probes of one container with the same command (a
liveness and a readiness probe, say) are one here; their runs then have no even rhythm, and no period is told.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from tracer.facts import CriCall
from tracer.kubelet.runs import ActivityKind, Run

MAX_PROBES = 4096
"""Probes remembered: several for each container of the largest nodes; a restarted container's are new ones."""

MAX_STARTS = 8
"""Starts of a probe's latest runs, of which its period is measured."""

RETRY_NS = 500_000_000
"""A run this soon after one that ended in an error repeats it (`maxProbeRetries`); periods are whole seconds."""

PERIOD_SLACK_NS = 250_000_000
"""A probe's ticker is exact; the run itself waits for a worker and a connection, on a busy node this long."""

Result = Literal["success", "failure", "timeout", "error", "lost", "unknown"]
"""The command's exit code was 0, or not; the runtime killed it after the probe's timeout; the runtime could not run
it; the client or the connection ended the call; nobody saw."""

FAILED: frozenset[Result] = frozenset({"failure", "timeout"})
"""Results that count against the container; an error is tried again and says nothing about it."""


@dataclass(slots=True)
class Probe:
    """One probe. Times in ns; `timeout` in s. `results` counts runs by result; `streak`: failed ones in a row now."""

    id: str
    call: CriCall  # its latest run: pod, container, command (a digest), timeout
    runs: int = 0
    result: Result = "unknown"  # of the latest run that is over
    ended: int | None = None
    streak: int = 0
    results: dict[Result, int] = field(default_factory=dict)
    starts: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_STARTS))

    @property
    def timeout(self) -> int | None:
        return self.call.timeout

    @property
    def period(self) -> int | None:
        """Start to start, ns; None before three runs, and when they have no rhythm.

        The shortest distance, of which all others are multiples: a run was not seen, or lasted longer than the period.
        """
        gaps = [after - before for before, after in pairwise(self.starts)]
        if len(gaps) < 2:
            return None
        shortest = min(gaps)
        off = [abs(gap - round(gap / shortest) * shortest) for gap in gaps]
        return shortest if max(off) <= PERIOD_SLACK_NS else None


class Probes:
    """Every probe seen, the one that ran longest ago first. `forgotten` counts those that made room."""

    def __init__(self) -> None:
        self.forgotten = 0
        self._probes: OrderedDict[str, Probe] = OrderedDict()

    def __iter__(self) -> Iterator[Probe]:
        return iter(self._probes.values())

    def get(self, ident: str) -> Probe | None:
        return self._probes.get(ident)

    def of(self, container_id: str) -> list[Probe]:
        """The probes of a container."""
        return [probe for probe in self._probes.values() if probe.call.container_id == container_id]

    def sent(self, call: CriCall) -> None:
        """A run began."""
        ident = identity(call)
        probe = self._probes.get(ident)
        if probe is None:
            probe = self._probes[ident] = Probe(ident, call)
            if len(self._probes) > MAX_PROBES:
                self._probes.popitem(last=False)
                self.forgotten += 1
        self._probes.move_to_end(ident)
        start = call.rpc.start
        again = probe.result == "error" and probe.ended is not None and start - probe.ended < RETRY_NS
        probe.call = call
        probe.runs += 1
        if not again:
            probe.starts.append(start)

    def done(self, call: CriCall) -> None:
        """A run is over."""
        probe = self._probes.get(identity(call))
        if probe is None:
            return
        result = result_of(call)
        probe.result, probe.ended = result, call.rpc.end
        probe.results[result] = probe.results.get(result, 0) + 1
        if result in FAILED:
            probe.streak += 1
        elif result == "success":
            probe.streak = 0

    def failed_since(self, container_id: str, time: int) -> bool:
        """Whether the latest run of a probe of this container failed, after `time`."""
        return any(
            probe.result in FAILED and probe.ended is not None and probe.ended >= time
            for probe in self.of(container_id)
        )


def identity(call: CriCall) -> str:
    """The probe that an ExecSync runs."""
    return f"p{(call.container_id or '')[:12]}-{(call.command or '')[:8]}"


def result_of(call: CriCall) -> Result:
    """How a run of a probe ended."""
    grpc = call.rpc
    if grpc.ended_by != "server":
        return "unknown" if grpc.ended_by == "unknown" else "lost"
    if grpc.status == "DEADLINE_EXCEEDED":
        return "timeout"  # the runtime killed the command: the call's own deadline is two minutes later
    if grpc.status == "OK":
        return "unknown" if call.exit_code is None else "failure" if call.exit_code else "success"
    if grpc.status is None and not grpc.responses and call.timeout and grpc.end is not None:
        # Which error it was is not on the wire, but a run that fails later than its timeout was killed for it.
        return "timeout" if grpc.end - grpc.start >= call.timeout * 1_000_000_000 else "unknown"
    return "unknown" if grpc.status is None else "error"


class ProbeRun(Run):
    """One run of a probe: a single ExecSync with a timeout (`prober.go:runProbe`). Its id is the probe's."""

    kind: ActivityKind = "probe"

    def __init__(self, call: CriCall) -> None:
        super().__init__(call)
        self.id = identity(call)

    def done(self, call: CriCall, time: int) -> None:
        super().done(call, time)
        self.over = True
