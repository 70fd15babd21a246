"""Shipped captures, replayed once a test run, beside what the kubelet itself logged meanwhile."""

import datetime as dt
import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tracer.capture import CaptureFile
from tracer.replay import Result, replay

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Truth:
    """`events`: the kubelet's log on the capture's clock; `metrics`: its own counters."""

    events: list[dict[str, Any]]
    metrics: dict[str, float]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def spans(self, *kinds: str) -> list[tuple[int, int, str]]:
        """(enter, exit, pod uid) of every pod worker pass."""
        found = []
        for kind in kinds:
            entered: dict[str, int] = {}
            for event in self.events:
                if event["kind"] == f"{kind}_enter":
                    entered[event["pod_uid"]] = event["t"]
                elif event["kind"] == f"{kind}_exit" and event["pod_uid"] in entered:
                    found.append((entered.pop(event["pod_uid"]), event["t"], event["pod_uid"]))
        return found


@cache
def replayed(name: str) -> dict[str, Any]:
    """The object `criscope replay --json` prints."""
    source = CaptureFile(DATA / f"{name}.jsonl.gz")
    result = Result()
    pipeline, damage = replay(source, result.feed, lambda _: None)
    assert damage is None
    return result.object(name, pipeline)


@cache
def truth(name: str) -> Truth:
    found = json.loads((DATA / f"{name}.truth.json").read_text())
    return Truth(sorted(found["events"], key=lambda event: event["t"]), found.get("kubelet_metrics", {}))


@cache
def offset(name: str) -> int:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as lines:
        return int(json.loads(next(lines))["realtime_offset_ns"])


def monotonic(name: str, time: str) -> int:
    """RFC 3339 with nanoseconds -> ns on the capture's clock."""
    whole, fraction = time.rstrip("Z").split(".")
    seconds = int(dt.datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 1_000_000_000 + int(fraction) - offset(name)
