"""Stats passes, and who asked for them (`cri_stats_provider.go`, `eviction_manager.go`, `server/stats`).

What tells them apart is only what comes before, the rhythm, and trace ids where there are any.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tracer.facts import CriCall
from tracer.kubelet.runs import ActivityKind, Run

MAX_PASSES = 256
"""Stats passes remembered: the last twenty minutes of a node that is scraped as often as it looks itself."""

EVICTION_PERIOD_NS = 10_000_000_000
"""The eviction manager looks this long after its last look ended (`monitoringInterval`)."""

RHYTHM_SLACK_NS = 500_000_000
"""How much later than that its next look may begin on a busy node."""

TOGETHER_NS = 100_000_000
"""Two passes that overlap, or follow each other within this, are of one scrape."""

Asker = Literal["eviction", "summary", "metrics", "resource"]
"""The kubelet's own eviction manager; GET /stats/summary; GET /metrics (two passes at once); GET /metrics/resource or
a summary of CPU and memory only (metrics-server)."""


@dataclass(slots=True)
class StatsPass:
    """One pass; times in ns. `file_system`: it asked for the images' file system first. `asked_by` None: not known."""

    id: str
    start: int
    end: int
    calls: list[CriCall]
    file_system: bool
    asked_by: Asker | None = None


class ImageFsRun(Run):
    """ImageFsInfo alone, or as the beginning of a stats pass; the eviction manager's first look asks twice or more."""

    prefix = "f"
    kind: ActivityKind = "stats"

    def wants(self, call: CriCall) -> bool:
        return call.asks == "ImageFsInfo"


def before(runs: Iterable[Run], start: int) -> ImageFsRun | None:
    """The run of ImageFsInfo that goes on with a list sent at `start`, if one may."""
    found = None
    for run in runs:
        fits = isinstance(run, ImageFsRun) and run.ready is not None and 0 <= start - run.ready <= run.patience
        if fits and (found is None or (run.ready or 0) > (found.ready or 0)):
            found = run
    return found if isinstance(found, ImageFsRun) else None


class StatsPasses:
    """The latest passes, oldest first."""

    def __init__(self) -> None:
        self._passes: deque[StatsPass] = deque(maxlen=MAX_PASSES)

    def __iter__(self) -> Iterator[StatsPass]:
        return iter(self._passes)

    def over(self, run: Run) -> None:
        """`run` was a stats pass, or ImageFsInfo alone, and is over."""
        calls = run.calls
        looks = sum(call.asks == "ImageFsInfo" for call in calls)
        end = max(call.rpc.end or call.rpc.start for call in calls)
        now = StatsPass(run.id, calls[0].rpc.start, end, list(calls), looks > 0)
        if looks:
            now.asked_by = self._with_file_system(now, looks)
        else:
            now.asked_by = self._without(now)
        self._passes.append(now)

    def _with_file_system(self, now: StatsPass, looks: int) -> Asker | None:
        traces = {call.rpc.trace for call in now.calls}
        if None not in traces and len(now.calls) > looks:
            # One request of the API server has one trace id; the kubelet's own calls have one each.
            return "summary" if len(traces) == 1 else "eviction"
        if looks > 1:
            return "eviction"
        known = False
        for former in reversed(self._passes):
            if not former.file_system:
                continue
            late = now.start - former.end - EVICTION_PERIOD_NS
            if 0 <= late <= RHYTHM_SLACK_NS:
                former.asked_by = former.asked_by or "eviction"
                return "eviction"
            known = known or (former.asked_by == "eviction" and late < 0)
        return "summary" if known else None

    def _without(self, now: StatsPass) -> Asker:
        for former in reversed(self._passes):
            if not former.file_system and now.start - former.end <= TOGETHER_NS:
                former.asked_by = "metrics"
                return "metrics"
        return "resource"
