"""A list of all sandboxes or containers hangs, so the relist does; named with the change that began just before."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall, Scope
from tracer.findings import locks, wording
from tracer.findings.finding import Confidence, Evidence, Severity, Verdict, severity_of
from tracer.findings.locks import Abandoned
from tracer.findings.scene import NS, Scene

LISTS = frozenset({"ListPodSandbox", "ListContainers"})

SHOWN_NS = 2 * NS
WARNING_NS = 5 * NS
"""A list takes milliseconds, and a second when a hundred pods start at once on two cores."""

QUIET_NS = 5 * NS
"""The kubelet lists again a second after a list failed; after longer without one the trouble is over."""

AGAIN_NS = 600 * NS
"""What hangs again within this is the same trouble."""

MAX_PAST = 64
"""Runtimes and methods that hung lately; a node has two of each."""

MAX_CALLS = 64
"""Calls named in one finding."""

MAX_SUSPECTS = 16
"""Changes that began between the last good list and the first that hangs."""


@dataclass(slots=True)
class _Blocked:
    """`calls`: lists that hang or hung, the latest `MAX_CALLS`. `good`: start of the last that did not, if any did."""

    first: CriCall
    start: int
    until: int
    good: int | None
    stalls: int = 1
    gave_up: int = 0
    calls: OrderedDict[str, CriCall] = field(default_factory=OrderedDict)
    suspects: list[CriCall] = field(default_factory=list)
    judged: bool = False
    others: set[str] = field(default_factory=set)  # methods that answered meanwhile
    cleared: bool = False


class RelistBlocked:
    """One finding for each runtime and method that hangs, however often the kubelet tries it."""

    kind = "relist_blocked"

    def __init__(self) -> None:
        self._abandoned = Abandoned()
        self._blocked: dict[tuple[str, str], _Blocked] = {}
        self._past: OrderedDict[tuple[str, str], _Blocked] = OrderedDict()
        self._good: dict[tuple[str, str], int] = {}  # start of the last list that was answered in time

    def look(self, scene: Scene) -> Iterator[Verdict]:
        self._abandoned.ended(scene.ended, scene.now)
        hanging: set[tuple[str, str]] = set()
        for call in (*scene.ended, *scene.open):
            if call.method in LISTS and call.scope is Scope.ALL:
                self._list(call, scene, hanging)
            if self._blocked:
                self._beside(call)
        for key, blocked in list(self._blocked.items()):
            self._judge(blocked, scene)
            over = key not in hanging and (blocked.cleared or scene.now - blocked.until >= QUIET_NS)
            yield self._verdict(key, blocked, scene, end=blocked.until if over else None)
            if over:
                self._past[key] = self._blocked.pop(key)
                if len(self._past) > MAX_PAST:
                    self._past.popitem(last=False)

    def _list(self, call: CriCall, scene: Scene, hanging: set[tuple[str, str]]) -> None:
        rpc, method = call.rpc, call.method
        key = (rpc.peer.path, method or "")
        end = locks.until(call, scene.now)
        if end - rpc.start < SHOWN_NS:
            if rpc.status == "OK" or (rpc.end is not None and rpc.responses):
                while key not in self._good and len(self._good) >= MAX_PAST:
                    del self._good[next(iter(self._good))]
                self._good[key] = max(self._good.get(key, 0), rpc.start)
                if key in self._blocked and rpc.start >= self._blocked[key].until:
                    self._blocked[key].cleared = True
            return
        if not scene.unexplained(call, self.kind):
            return
        if scene.kubelet_of(call) is None:
            return
        blocked = self._blocked.get(key)
        if blocked is None:
            blocked = self._blocked[key] = _Blocked(call, rpc.start, end, self._good.get(key))
            past = self._past.pop(key, None)
            if past is not None and rpc.start - past.until <= AGAIN_NS:
                blocked.start, blocked.stalls, blocked.gave_up = past.start, past.stalls + 1, past.gave_up
        blocked.calls[call.id] = call
        if len(blocked.calls) > MAX_CALLS:
            blocked.calls.popitem(last=False)
        blocked.until, blocked.cleared = max(blocked.until, end), False
        blocked.gave_up += rpc.ended_by in ("deadline", "client_cancel")
        if rpc.end is None and rpc.answered is None:
            hanging.add(key)

    def _beside(self, call: CriCall) -> None:
        """Another method that answers while lists hang: the runtime is up."""
        rpc = call.rpc
        for (path, method), blocked in self._blocked.items():
            quick = rpc.end is not None and rpc.end - rpc.start < SHOWN_NS and rpc.responses
            if (
                path == rpc.peer.path
                and quick
                and rpc.start > blocked.first.rpc.start
                and call.method not in (None, method)
            ):
                blocked.others.add(call.method)

    def _judge(self, blocked: _Blocked, scene: Scene) -> None:
        """What began after the last good list, and was going on when the first that hangs began: who holds the lock.

        What had been open while lists were still answered did not hold them up.
        """
        if blocked.judged:
            return
        blocked.judged = True
        first = blocked.first.rpc
        blocked.suspects = sorted(
            (
                call for call in (*scene.open, *self._abandoned)
                if call.method in locks.CHANGES and call.rpc.peer.path == first.peer.path
                and (blocked.good or 0) <= call.rpc.start < first.start
                and (call.rpc.end is None or call.rpc.end >= first.start)
            ),
            key=lambda call: call.rpc.start,
        )[:MAX_SUSPECTS]  # fmt: skip

    # what is said

    def _verdict(self, key: tuple[str, str], blocked: _Blocked, scene: Scene, *, end: int | None) -> Verdict:
        method = key[1]
        first, until = blocked.first, blocked.until
        length = until - first.rpc.start
        is_over = end is not None
        summary = f"{method} {'did' if is_over else 'does'} not answer for {wording.seconds(length)}"
        if blocked.gave_up:
            summary += f" ({blocked.gave_up} given up by the kubelet)"
        if blocked.stalls > 1:
            summary += f", the {blocked.stalls}. time within {wording.seconds(until - blocked.start)}"
        summary += f", so {'no relist got' if is_over else 'no relist gets'} past it"
        suspect = blocked.suspects[0] if blocked.suspects else None
        explained = None
        confidence: Confidence = "low"
        if suspect is not None:
            before = wording.gap(first.rpc.start - suspect.rpc.start)
            summary += f"; {wording.call(suspect)} began {before} before the first that hung, {_stands(suspect, scene)}"
            if not scene.unexplained(suspect, self.kind):
                explained = scene.explained[suspect.id]
            if len(blocked.suspects) == 1 and blocked.good is not None:
                confidence = "medium"
                summary += ": likely it holds the runtime's lock"
            else:
                summary += f": it, or one of {len(blocked.suspects) - 1} others that began then, may hold the lock"
            if explained is not None:
                summary += f" (see {explained})"
        if blocked.others:
            summary += f"; {wording.several(sorted(blocked.others))} answered meanwhile"
        calls = (*blocked.suspects, *blocked.calls.values())
        explains = {call.id for call in blocked.calls.values()}
        if confidence == "medium" and suspect is not None and explained is None:
            explains.add(suspect.id)
        severity: Severity = "info" if explained in locks.DEEPER else severity_of(length, WARNING_NS)
        return Verdict(
            self.kind, key, severity, blocked.start, f"{summary}.",
            end=end,
            pods=wording.pods_of(blocked.suspects[:1]) if confidence == "medium" else (),
            calls=calls,
            explains=frozenset(explains),
            evidence=self._evidence(blocked, scene.now),
            confidence=confidence,
            unknown=("Whose lock the list waits for: the runtime's locks are not seen, only what began before.",),
            next_steps=_next_steps(suspect, first),
        )  # fmt: skip

    def _evidence(self, blocked: _Blocked, now: int) -> list[Evidence]:
        found = [
            Evidence(call.rpc.start, f"{wording.call(call)} began, the {number}. of what was open before.", call.id)
            for number, call in enumerate(blocked.suspects, 1)
        ]
        if blocked.good is not None:
            found.insert(0, Evidence(blocked.good, f"The last {blocked.first.method} that answered in time."))
        for call in blocked.calls.values():
            lasted = wording.seconds((now if call.rpc.end is None else call.rpc.end) - call.rpc.start)
            how = {"deadline": "given up", "client_cancel": "given up", None: "open"}
            found.append(
                Evidence(call.rpc.start, f"{call.method}: {lasted}, {how.get(call.rpc.ended_by, 'answered')}.", call.id)
            )
        return found


def _stands(suspect: CriCall, scene: Scene) -> str:
    rpc = suspect.rpc
    if rpc.end is None:
        return f"and is open for {wording.seconds(scene.now - rpc.start)}"
    if rpc.ended_by in ("deadline", "client_cancel"):
        return "and was given up, which does not end it in the runtime"
    return f"and took {wording.seconds(rpc.end - rpc.start)}"


def _next_steps(suspect: CriCall | None, first: CriCall) -> tuple[str, ...]:
    pid = first.rpc.peer.server_pid
    steps = [f"kill -USR1 {pid} makes containerd and CRI-O log their goroutines: who holds the lock, before a restart"]
    ident = suspect and (suspect.container_id or suspect.sandbox_id)
    if ident:
        steps.insert(0, f"ps -eo pid,ppid,stat,wchan:32,args | grep {ident[:13]}: its shim and runc")
    return tuple(steps)
