"""The PLEG becomes unhealthy, or has: when, what the relist waits for, and how often it went back and forth."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.kubelet.kubelet import Kubelet
from tracer.kubelet.relists import EVENTED_UNHEALTHY_AFTER_NS, UNHEALTHY_AFTER_NS

FORECAST_NS = 120 * NS
"""How long before it is told: the kubelet's own deadline of a call, which is what it then waits for."""

HANGS_NS = 2 * NS
"""A call that is open for less is one of many, not what is waited for."""

SETTLE_NS = 5 * NS
"""How long it must be near while no relist is under way."""

AGAIN_NS = 600 * NS
"""What comes back within this is the same trouble: status calls time out after two minutes each."""

MAX_TURNS = 64
"""Times at which it turned unhealthy that are remembered, for the period."""

MAX_KUBELETS = 64

Key = tuple[str, int]


@dataclass(slots=True)
class _Late:
    """`since`: start of the relist that is too long ago. `turns`: when the kubelet's check began to fail.

    `waits`: the call that hangs; where none does, how many pods the relist under way has `asked` for.
    """

    start: int
    since: int
    until: int = 0
    waits: CriCall | None = None
    asked: int = 0
    relist: str | None = None
    turns: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_TURNS))


class PlegUnhealthy:
    """One finding for each kubelet, as long as it goes back and forth."""

    kind = "pleg_unhealthy"

    def __init__(self) -> None:
        self._late: dict[Key, _Late] = {}
        self._past: OrderedDict[Key, _Late] = OrderedDict()
        self._near: dict[Key, int] = {}  # since when it is near, while that is not told yet
        self._unnamed: dict[Key, int] = {}  # when each kubelet's latest call without a method began

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method is None:
                self._unnamed[call.rpc.peer.path, call.rpc.peer.client_pid] = call.rpc.start
        for path, pid, kubelet in scene.kubelets:
            verdict = self._of((path, pid), kubelet, scene)
            if verdict is not None:
                yield verdict
        known = {(path, pid) for path, pid, _ in scene.kubelets}
        for key in [key for key in (*self._late, *self._near, *self._unnamed) if key not in known]:
            late = self._late.pop(key, None)
            if late is not None:
                late.until = scene.now
                self._remember(key, late)
            self._near.pop(key, None)
            self._unnamed.pop(key, None)

    def _of(self, key: Key, kubelet: Kubelet, scene: Scene) -> Verdict | None:
        since, limit = kubelet.last_listed, EVENTED_UNHEALTHY_AFTER_NS if kubelet.evented else UNHEALTHY_AFTER_NS
        late = self._late.get(key)
        if since is None:
            return None
        near = since + limit - scene.now <= FORECAST_NS
        if late is not None and not near:
            late.until = scene.now
            self._remember(key, self._late.pop(key))
            return self._verdict(key, late, limit, scene, end=scene.now)
        if not near or (late is None and self._doubtful(key, kubelet, since, scene)):
            self._near.pop(key, None)
            return None
        if late is None and self._near.setdefault(key, scene.now) + self._settle(kubelet) > scene.now:
            return None
        if late is None:
            late = self._past.pop(key, None)
            if late is None or scene.now - late.until > AGAIN_NS:
                late = _Late(scene.now, since)
            late.waits = None
            self._late[key] = late
            self._near.pop(key, None)
        late.since = since
        if scene.now >= since + limit and (not late.turns or late.turns[-1] < since):
            late.turns.append(since + limit)
        self._note_relist(late, kubelet, scene.now)
        return self._verdict(key, late, limit, scene, end=None)

    @staticmethod
    def _note_relist(late: _Late, kubelet: Kubelet, now: int) -> None:
        """What the relist under way waits for, or why the latest one failed."""
        run = kubelet.relist
        if run is None:
            return
        relist = run.relist
        waits = None if run.over else relist.waiting_for
        late.asked = 0
        if run.over and relist.outcome == "failed" and relist.calls:
            late.waits = relist.calls[-1]
        elif waits is not None and now - waits.rpc.start >= HANGS_NS:
            late.waits = waits
        elif waits is not None and relist.inspections:
            late.waits, late.asked, late.relist = None, len(relist.inspections), relist.id

    @staticmethod
    def _settle(kubelet: Kubelet) -> int:
        """A kubelet whose stream of events broke relists at once: its limit falls to a third before that is seen."""
        run = kubelet.relist
        return SETTLE_NS if run is None or run.over else 0

    def _remember(self, key: Key, late: _Late) -> None:
        self._past[key] = late
        if len(self._past) > MAX_KUBELETS:
            self._past.popitem(last=False)

    def _doubtful(self, key: Key, kubelet: Kubelet, since: int, scene: Scene) -> bool:
        """Whether relists may have come that we did not see: their bytes were lost, or their names."""
        run = kubelet.relist
        if run is not None and not run.over and run.relist.waiting_for is not None:
            return False
        return (scene.lost_at is not None and scene.lost_at >= since) or self._unnamed.get(key, 0) >= since

    def _verdict(self, key: Key, late: _Late, limit: int, scene: Scene, *, end: int | None) -> Verdict:
        path, pid = key
        now, waits = scene.now, late.waits
        left = late.since + limit - now
        if end is not None:
            turned = bool(late.turns) and late.turns[-1] > late.since
            what = "was unhealthy, and is no more" if turned else "came near to unhealthy, and relists again"
            summary = f"The PLEG of the kubelet (process {pid}) {what}"
        elif left > 0:
            summary = (
                f"The kubelet (process {pid}) will call its PLEG unhealthy in {wording.seconds(left)}, which makes the "
                f"node NotReady: the last relist whose lists succeeded began {wording.seconds(now - late.since)} ago"
            )
        else:
            summary = (
                f"The kubelet (process {pid}) calls its PLEG unhealthy for {wording.seconds(-left)}, so the node is "
                f"NotReady: the last relist whose lists succeeded began {wording.seconds(now - late.since)} ago"
            )
        evidence = [Evidence(late.since, "The last relist whose lists succeeded began.")]
        if waits is not None:
            cause = scene.explained.get(waits.id)
            age = wording.seconds((now if waits.rpc.end is None else waits.rpc.end) - waits.rpc.start)
            evidence.append(Evidence(waits.rpc.start, f"{wording.call(waits)}: {age}.", waits.id))
            if waits.rpc.end is None:
                summary += f"; it waits for {wording.call(waits)}, open for {age}"
            elif waits.rpc.ended_by == "server" and waits.rpc.status not in ("OK", None):
                summary += f"; {waits.method or 'a call'} of the latest relist failed with {waits.rpc.status}"
            else:
                summary += f"; it waited for {wording.call(waits)}, which took {age}"
            summary += f" (see {cause})" if cause is not None else ""
        elif late.asked:
            cause = scene.explained.get(late.relist or "")
            summary += f"; the relist under way has asked for {late.asked:,} pods so far"
            summary += f" (see {cause})" if cause is not None else ""
        elif end is None:
            down = scene.servers.down(path)
            summary += f"; {'nobody serves the socket' if down is not None else 'no call of a relist is open'}"
        summary += _turns(late)
        return Verdict(
            self.kind, key, "critical", late.start, f"{summary}.",
            end=end,
            pods=(waits.pod,) if waits is not None and waits.pod is not None else (),
            calls=(waits,) if waits is not None else (),
            evidence=evidence,
            next_steps=(
                "The finding that explains the call it waits for says what to do.",
                "kubectl describe node: the Ready condition says 'PLEG is not healthy' with the same age.",
            ),
        )  # fmt: skip


def _turns(late: _Late) -> str:
    """`; the 3. time, each 4 min 2 s: the period of the calls that time out`."""
    count = len(late.turns)
    if count < 2:
        return ""
    period = (late.turns[-1] - late.turns[0]) // (count - 1)
    return f"; unhealthy {count} times so far, about every {wording.seconds(period)}: the node flaps"
