"""Findings: verdicts about what is slow or broken, with what they rest on."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from tracer.facts import CriCall, Pod
from tracer.observed import Observation

Severity = Literal["info", "warning", "critical"]
Confidence = Literal["high", "medium", "low"]

NOT_READY_SOON_NS = 60_000_000_000
"""A third of the time after which the kubelet calls its PLEG unhealthy (`genericPlegRelistThreshold`): what lasts as
long and can hold up a relist is critical."""


def severity_of(lasted: int, warning: int, critical: int | None = NOT_READY_SOON_NS) -> Severity:
    """By how long it has lasted, ns; `critical` None: it never is."""
    if critical is not None and lasted >= critical:
        return "critical"
    return "warning" if lasted >= warning else "info"


@dataclass(slots=True)
class Evidence:
    """One observation. `call` and `step` are ids that REST knows; `text` never holds what a payload held."""

    time: int | None
    text: str
    call: str | None = None
    step: str | None = None


@dataclass(slots=True, eq=False)
class Verdict:
    """What a rule says at one look. Verdicts of one `kind` and `key` in consecutive looks are one finding.

    `start` and `end` are monotonic ns; `end` None: it still holds. A verdict with an end is the last of its finding.
    `explains`: ids of calls and relists whose slowness this is the cause of; no later rule speaks of them again.
    `processes`: who they are by process id; what they are seen to do is added, and where that tells enough the texts
    of `unknown_process` are left out.
    `summary` is one sentence that names cause, place and time; a cause that is only suspected is worded so, and
    `confidence` is then not high. `unknown`: what cannot be told from here. `next_steps`: commands or places to look.
    """

    kind: str
    key: Hashable
    severity: Severity
    start: int
    summary: str
    end: int | None = None
    pods: tuple[Pod, ...] = ()
    calls: tuple[CriCall, ...] = ()
    explains: frozenset[str] = frozenset()
    evidence: list[Evidence] = field(default_factory=list)
    confidence: Confidence = "high"
    processes: dict[int, str] = field(default_factory=dict)
    unknown_process: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Finding:
    """A verdict through time. `end` None while it is active; `complete` False: something was not seen meanwhile.

    `observed`: the most telling look at each process of the verdict.
    """

    id: str
    verdict: Verdict
    start: int
    end: int | None = None
    complete: bool = True
    observed: dict[int, Observation] = field(default_factory=dict)
