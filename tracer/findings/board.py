"""The board: lets every rule look at the scene and keeps what they find from look to look."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Protocol

from tracer.findings.finding import Finding, Verdict
from tracer.findings.processes import telling
from tracer.findings.scene import Scene

LOOK_NS = 500_000_000
"""How often the rules look: a cause must be named within three seconds of a call's becoming slow."""

MAX_ACTIVE = 256
"""Findings that hold at once; a node with more has one cause that we do not know, and many followers."""

MAX_EXPLAINED = 8192
"""Calls remembered that a finding explains."""


class Rule(Protocol):
    """One kind of finding."""

    def look(self, scene: Scene) -> Iterable[Verdict]:
        """What it sees now: everything that holds, and once, with its end, what no longer does."""
        ...


class Board:
    """`look` at most each `LOOK_NS`; the order of `rules` is the order of causes, the deepest first."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self._active: dict[tuple[str, Hashable], Finding] = {}
        self._ended: OrderedDict[tuple[str, Hashable], Finding] = OrderedDict()
        self._explained: OrderedDict[str, str] = OrderedDict()
        self._count = 0
        self.overlooked = 0  # findings for which there was no room

    @property
    def active(self) -> list[Finding]:
        return list(self._active.values())

    def look(self, scene: Scene) -> list[Finding]:
        """Findings that began, changed or ended."""
        changed: list[Finding] = []
        held: set[tuple[str, Hashable]] = set()
        scene.explained = self._explained
        for rule in self._rules:
            for verdict in rule.look(scene):
                finding = self._take(verdict, scene)
                if finding is None:
                    continue
                held.add((verdict.kind, verdict.key))
                changed.append(finding)
        changed += self._over(scene.now, held)
        return changed

    def _take(self, verdict: Verdict, scene: Scene) -> Finding | None:
        name = (verdict.kind, verdict.key)
        finding = self._active.get(name) or self._again(name, verdict)
        if finding is None:
            if len(self._active) >= MAX_ACTIVE:
                self.overlooked += 1
                return None
            self._count += 1
            finding = self._active[name] = Finding(f"f{self._count}", verdict, verdict.start)
        finding.verdict = verdict
        finding.start = min(finding.start, verdict.start)
        if scene.lost_at is not None and scene.lost_at >= finding.start:
            finding.complete = False
        if not all(call.rpc.complete for call in verdict.calls):
            finding.complete = False
        for pid in verdict.processes:
            seen = scene.observed.get(pid)
            if seen is not None and (pid not in finding.observed or telling(seen)):
                finding.observed[pid] = seen
        for ident in verdict.explains:
            self._explained[ident] = verdict.kind
        while len(self._explained) > MAX_EXPLAINED:
            self._explained.popitem(last=False)
        if verdict.end is not None:
            self._end(name, finding, max(verdict.end, finding.start))
        return finding

    def _again(self, name: tuple[str, Hashable], verdict: Verdict) -> Finding | None:
        """A finding that ended, of which more is known now."""
        finding = self._ended.get(name)
        if finding is None or finding.end is None or verdict.start > finding.end:
            return None
        del self._ended[name]
        finding.end = None
        self._active[name] = finding
        return finding

    def _end(self, name: tuple[str, Hashable], finding: Finding, time: int) -> None:
        finding.end = time
        del self._active[name]
        self._ended[name] = finding
        if len(self._ended) > MAX_ACTIVE:
            self._ended.popitem(last=False)

    def _over(self, now: int, held: set[tuple[str, Hashable]]) -> Iterator[Finding]:
        """A finding whose rule is silent has ended."""
        for name in [name for name in self._active if name not in held]:
            finding = self._active[name]
            self._end(name, finding, now)
            yield finding
