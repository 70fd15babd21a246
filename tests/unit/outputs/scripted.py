"""A tracer whose state a test writes, in the words of `rows.Live`; and looks at a registry."""

from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from tests.unit.store.sample import NOW, SECOND
from tracer.rows import rfc3339

IDLE = {
    "stage": "idle",
    "relist_age_seconds": None,
    "last_relist_start": rfc3339(NOW),
    "seconds_until_unhealthy": 180.0,
}


@dataclass
class ScriptedLive:
    """Open calls are (method, client role, seconds since they began)."""

    calls: list[tuple[str, str, float]] = field(default_factory=list)
    health_: dict[str, Any] = field(default_factory=lambda: {"tracing": True, "connections": 4, "probes": []})
    pleg_: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(IDLE))
    counters_: dict[str, int] = field(default_factory=lambda: {"streams.lost": 0, "streams.gaps": 0})
    time: int = NOW

    def now(self) -> int:
        return self.time

    def pleg(self) -> dict[str, Any]:
        return self.pleg_

    def findings(self) -> list[dict[str, Any]]:
        return []

    def open_calls(self) -> list[tuple[str | None, str, str, int]]:
        return [(None, method, role, self.time - int(age * SECOND)) for method, role, age in self.calls]

    def health(self) -> dict[str, Any]:
        return self.health_

    def counters(self) -> dict[str, int]:
        return self.counters_


def samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    """Label values, in the order of the labels' names, -> value."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def series(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())
