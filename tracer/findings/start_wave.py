"""Many pods start at once and slowly: where their time goes, phase by phase."""

from collections import Counter
from collections.abc import Iterator
from statistics import median

from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.kubelet.passes import SyncPass

LEAST = 5
SLOW_NS = 20 * NS
"""Pods that start at once, and how long half of them take at least: alone, a pod takes a second or two."""

TOGETHER_NS = 30 * NS
"""A pod whose start begins this long after the others' ended is not of their wave."""

QUIET_NS = 60 * NS
"""A wave is over: passes are known to have ended 35 s after their last call."""

MAX_PASSES = 512

PHASES = {"sandbox": "sandbox", "sandbox_status": "sandbox", "image": "image", "pull": "pull", "create": "containers",
          "start": "containers"}  # fmt: skip


class StartWave:
    """One finding for each wave; nothing failed in it, it was only slow."""

    kind = "start_wave"

    def __init__(self) -> None:
        self._wave: list[SyncPass] = []
        self._noted = 0
        self._slow = False  # half of them, or more

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for each in scene.passes:
            if each.kind == "create" and each.end is not None and each.outcome == "ok":
                self._take(each, scene.now)
        if not self._wave:
            return
        over = scene.now - self._noted >= QUIET_NS
        if self._slow:
            yield self._verdict(over=over)
        if over:
            self._wave, self._slow = [], False

    def _take(self, new: SyncPass, now: int) -> None:
        if any(each.id == new.id for each in self._wave):
            return
        if self._wave and new.start - max(each.end or 0 for each in self._wave) > TOGETHER_NS:
            self._wave = []
        if len(self._wave) < MAX_PASSES:
            self._wave.append(new)
            self._noted = now
            lengths = [_length(each) for each in self._wave]
            self._slow = len(lengths) >= LEAST and median(lengths) >= SLOW_NS

    def _verdict(self, *, over: bool) -> Verdict:
        wave = self._wave
        start, end = min(each.start for each in wave), max(each.end or 0 for each in wave)
        total = sum(_length(each) for each in wave)
        spent: Counter[str] = Counter()
        for each in wave:
            for stage in each.stages:
                spent[PHASES.get(stage.name, "other calls")] += (stage.end or stage.start) - stage.start
        spent["waiting between calls"] = max(0, total - spent.total())
        parts = ", ".join(f"{name} {time / total:.0%}" for name, time in spent.most_common() if time * 100 >= total)
        calls = tuple(call for each in wave for call in each.calls)[:64]
        slowest = max(wave, key=_length)
        return Verdict(
            self.kind, start, "info", start,
            f"{len(wave)} pods started within {wording.seconds(end - start)}, half of them in"
            f" {wording.seconds(int(median(_length(each) for each in wave)))} or more; by phase: {parts}.",
            end=end if over else None,
            pods=tuple(dict.fromkeys(each.pod for each in wave)),
            calls=calls,
            evidence=[
                Evidence(slowest.start, f"{wording.pod(slowest.pod)} took {wording.seconds(_length(slowest))}.",
                         slowest.calls[0].id),
            ],
            unknown=("What was short (CPU, disk, network): pressure is not part of this.",),
            next_steps=(
                "GET /api/v1/sync-passes?kind=create: each pod's phases",
                "cat /proc/pressure/{cpu,io,memory}",
            ),
        )  # fmt: skip


def _length(each: SyncPass) -> int:
    return (each.end or each.start) - each.start
