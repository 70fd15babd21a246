"""What is asked of one container, or of its pod's sandbox, hangs; named with what was open, or given up, before."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall, Pod
from tracer.findings import inspecting, locks, wording
from tracer.findings.finding import Confidence, Evidence, Severity, Verdict
from tracer.findings.inspecting import Share
from tracer.findings.locks import Abandoned
from tracer.findings.scene import NS, Scene
from tracer.kubelet.kubelet import Kubelet

READS = frozenset({"ContainerStatus", "PodSandboxStatus", "ReopenContainerLog"})
"""Calls that only a lock keeps for long."""

STOPS = frozenset({"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"})
"""Calls that hang on what began before; how long they take without it is other findings' matter."""

SHOWN_NS = 2 * NS
ALONE_NS = 5 * NS
"""Without anything that was open before: a busy runtime answers a status within 2 s."""

WARNING_NS = 5 * NS
CRITICAL_NS = 60 * NS
"""A third of the time after which the kubelet calls its PLEG unhealthy, should it wait for this pod."""

FEW = 3
"""Pods that hang at once without anything open before: more are no trouble of one pod."""

CLEARED_NS = NS
"""An answer within this shows that nothing holds it up any more."""

QUIET_NS = 30 * NS
"""Longest pause between two calls that hang: relists come again after 1 s, log rotation after 10 s, workers after 15
at most."""

AGAIN_NS = 600 * NS
"""What hangs again within this is the same trouble."""

EXEC_NS = 10 * NS
"""An ExecSync that ended no longer ago is told of."""

MAX_BLOCKED = 64
"""Pods remembered."""

MAX_CALLS = 64
"""Calls named in one finding."""

MOST_NAMES = 3
"""Containers of a pod named in one sentence."""

MAX_EXECS = 2048
"""Containers whose latest ExecSync is remembered."""


@dataclass(slots=True)
class _Blocked:
    """`calls`: those that hung, the latest `MAX_CALLS`. `gave_up`: how many their client gave up; `after`: when, ns."""

    first: CriCall
    start: int
    until: int
    pod: Pod | None
    stall: int = 0  # start of the stall under way
    stalls: int = 1
    gave_up: int = 0
    after: set[int] = field(default_factory=set)
    calls: OrderedDict[str, CriCall] = field(default_factory=OrderedDict)
    holder: CriCall | None = None
    share: Share | None = None
    exec: CriCall | None = None
    state: str | None = None
    reads: bool = False
    cleared: bool = False


class ContainerBlocked:
    """One finding for each pod, however many of its calls hang and however often they are tried."""

    kind = "container_blocked"

    def __init__(self) -> None:
        self._abandoned = Abandoned()
        self._blocked: dict[str, _Blocked] = {}
        self._past: OrderedDict[str, _Blocked] = OrderedDict()
        self._execs: OrderedDict[str, CriCall] = OrderedDict()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        hanging = self._note(scene)
        self._abandoned.ended(scene.ended, scene.now)
        for call in scene.ended:
            if call.method in ("ExecSync", "Exec") and call.container_id is not None:
                self._execs[call.container_id] = call
                self._execs.move_to_end(call.container_id)
                if len(self._execs) > MAX_EXECS:
                    self._execs.popitem(last=False)
            elif self._blocked and call.method in READS:
                self._clear(call)
        shown = [(key, blocked) for key, blocked in self._blocked.items() if self._shown(blocked)]
        alone = sum(blocked.holder is None for _, blocked in shown)
        for key, blocked in shown:
            over = key not in hanging and (blocked.cleared or scene.now - blocked.until >= QUIET_NS)
            if blocked.holder is not None or alone <= FEW:
                yield self._verdict(key, blocked, scene, end=blocked.until if over else None)
        for key, blocked in list(self._blocked.items()):
            if key not in hanging and (blocked.cleared or scene.now - blocked.until >= QUIET_NS):
                self._past[key] = self._blocked.pop(key)
                if len(self._past) > MAX_BLOCKED:
                    self._past.popitem(last=False)

    # what hangs

    def _note(self, scene: Scene) -> set[str]:
        """Take what hangs, or hung, to its pod; the pods where something still does."""
        hanging: set[str] = set()
        changing: list[CriCall] | None = None
        for call in (*scene.ended, *scene.open):
            if call.method not in READS and call.method not in STOPS:
                continue
            end = scene.now if call.rpc.end is None else call.rpc.end
            if end - call.rpc.start < SHOWN_NS + (call.grace or 0) * NS or not scene.unexplained(call, self.kind):
                continue
            if not any(
                (path, pid) == (call.rpc.peer.path, call.rpc.peer.client_pid) for path, pid, _ in scene.kubelets
            ):
                continue
            if changing is None:
                changing = [
                    each for each in (*scene.open, *self._abandoned)
                    if each.method in locks.CHANGES or each.method == "ExecSync"
                ]  # fmt: skip
            blocked = self._take(call, end, changing, scene)
            if blocked is not None and call.rpc.end is None:
                hanging.add(_key(call))
        return hanging

    def _take(self, call: CriCall, end: int, changing: list[CriCall], scene: Scene) -> _Blocked | None:
        key = _key(call)
        blocked = self._blocked.get(key)
        holder = locks.holder(call, changing) if blocked is None or blocked.holder is None else None
        if blocked is None:
            begins = call.method in READS or (holder is not None and holder.method not in STOPS | {"ExecSync"})
            if not begins or len(self._blocked) >= MAX_BLOCKED:
                return None
            blocked = self._begin(key, call)
        new = call.id not in blocked.calls
        blocked.calls[call.id] = call
        if len(blocked.calls) > MAX_CALLS:
            blocked.calls.popitem(last=False)
        blocked.until = max(blocked.until, end)
        blocked.reads = blocked.reads or call.method in READS
        blocked.cleared = False
        if call.rpc.ended_by in ("deadline", "client_cancel"):
            blocked.gave_up += 1
            if call.method in READS:
                blocked.after.add(round((end - call.rpc.start) / NS))
        if blocked.holder is None and holder is not None and holder.rpc.start < blocked.first.rpc.start:
            blocked.holder = holder  # what began after the first hung is a follower too
        if new and blocked.exec is None and call.container_id is not None:
            last = self._execs.get(call.container_id)
            if last is not None and -EXEC_NS <= (last.rpc.end or 0) - call.rpc.start <= 0:
                blocked.exec = last
        for path, pid, kubelet in scene.kubelets:
            if (path, pid) == (call.rpc.peer.path, call.rpc.peer.client_pid):
                self._relist(blocked, call, kubelet, scene.now)
        return blocked

    def _begin(self, key: str, call: CriCall) -> _Blocked:
        start = call.rpc.start
        blocked = self._past.pop(key, None)
        if blocked is None or start - blocked.until > AGAIN_NS:
            blocked = _Blocked(call, start, start, call.pod)
        else:
            blocked.stalls += 1
        blocked.stall = start
        if blocked.holder is not None and blocked.holder.rpc.answered is not None:
            blocked.holder = None
        self._blocked[key] = blocked
        return blocked

    @staticmethod
    def _relist(blocked: _Blocked, call: CriCall, kubelet: Kubelet, now: int) -> None:
        """How much of the relist that makes this call the pod takes, and in which state it listed the container."""
        run = kubelet.relist
        if run is None or call.method == "ReopenContainerLog" or not any(each is call for each in run.relist.calls):
            return
        share = inspecting.largest(run.relist, now)
        if share is not None and call.pod is not None and share.pod.uid == call.pod.uid:
            blocked.share = share
        if call.container_id is not None:
            blocked.state = inspecting.state(run.relist, call.container_id) or blocked.state

    def _clear(self, call: CriCall) -> None:
        blocked = self._blocked.get(_key(call))
        if blocked is None or call.rpc.status != "OK" or call.rpc.end is None:
            return
        asked = {(each.method, each.container_id or each.sandbox_id) for each in blocked.calls.values()}
        if (call.method, call.container_id or call.sandbox_id) in asked and call.rpc.start >= blocked.until:
            blocked.cleared = call.rpc.end - call.rpc.start <= CLEARED_NS

    @staticmethod
    def _shown(blocked: _Blocked) -> bool:
        return blocked.holder is not None or (blocked.reads and blocked.until - blocked.stall >= ALONE_NS)

    # what is said

    def _verdict(self, key: str, blocked: _Blocked, scene: Scene, *, end: int | None) -> Verdict:
        holder = blocked.holder
        until = blocked.until
        calls = tuple(blocked.calls.values())
        of = f" for {wording.seconds(until - blocked.stall)}"
        summary = f"{_who(calls)} {'did' if end is not None else 'does'} not answer {_methods(calls)}{of}"
        if blocked.gave_up:
            each = ", each" if blocked.gave_up > 1 else ""
            after = f"{each} after {next(iter(blocked.after))} s" if len(blocked.after) == 1 else ""
            summary += f" ({blocked.gave_up} given up{after})"
        if blocked.stalls > 1:
            summary += f", the {blocked.stalls}. time within {wording.seconds(until - blocked.start)}"
        explained = None
        if holder is not None:
            summary += f"; {_holding(holder, blocked.first, scene.now)}"
            explained = None if scene.unexplained(holder, self.kind) else scene.explained[holder.id]
        elif blocked.exec is not None:
            ago = wording.gap(blocked.first.rpc.start - (blocked.exec.rpc.end or 0))
            summary += f"; it stopped answering {ago} after an {blocked.exec.method}"
        if explained is not None:
            summary += f" (see {explained})"
        if blocked.share is not None:
            summary += f"; {blocked.share.words}, both lists answered"
        severity: Severity = "info"
        if explained not in locks.DEEPER:
            severity = _severity(until - blocked.stall, relist=blocked.share is not None)
        confidence: Confidence = "low"
        if holder is not None and locks.relation(holder, blocked.first) in (0, 1):
            confidence = "medium"
        named = (holder, *calls) if holder is not None else calls
        return Verdict(
            self.kind, key, severity, blocked.start, f"{summary}.",
            end=end,
            pods=(blocked.pod,) if blocked.pod else (),
            calls=named,
            explains=frozenset(call.id for call in (named if explained is None else calls)),
            evidence=self._evidence(blocked, scene.now),
            confidence=confidence,
            unknown=("What it waits for lies below the CRI: a lock of the runtime, the shim, runc, or a mount.",),
            next_steps=_next_steps(blocked),
        )  # fmt: skip

    def _evidence(self, blocked: _Blocked, now: int) -> list[Evidence]:
        found: list[Evidence] = []
        holder = blocked.holder
        if holder is not None:
            before = wording.gap(blocked.first.rpc.start - holder.rpc.start)
            found.append(Evidence(holder.rpc.start, f"{wording.call(holder)} began {before} before.", holder.id))
        if blocked.exec is not None:
            found.append(
                Evidence(blocked.exec.rpc.end, f"{wording.call(blocked.exec)} was the last before.", blocked.exec.id)
            )
        if blocked.state is not None:
            found.append(Evidence(None, f"The relist's list shows the container as {blocked.state}."))
        for call in blocked.calls.values():
            lasted = wording.seconds((now if call.rpc.end is None else call.rpc.end) - call.rpc.start)
            how = {"deadline": "given up by its client", "client_cancel": "given up by its client", None: "open"}
            found.append(
                Evidence(
                    call.rpc.start, f"{wording.call(call)}: {lasted}, {how.get(call.rpc.ended_by, 'answered')}.",
                    call.id,
                )
            )  # fmt: skip
        return found


def _key(call: CriCall) -> str:
    """The pod, as far as it is known."""
    return call.pod.uid if call.pod is not None else call.sandbox_id or call.container_id or call.id


def _who(calls: tuple[CriCall, ...]) -> str:
    """`Container main in pod default/web-0`."""
    names = [f"container {each.container.name}" for each in calls if each.container is not None]
    names += [f"container {each.container_id[:13]}" for each in calls if each.container is None and each.container_id]
    names += ["the sandbox" for each in calls if not each.container_id and each.sandbox_id]
    pod = next((each.pod for each in calls if each.pod is not None), None)
    who = " and ".join(sorted(set(names))[:MOST_NAMES]) or "a container"
    return f"{who[0].upper()}{who[1:]}{f' of pod {wording.pod(pod)}' if pod is not None else ''}"


def _methods(calls: tuple[CriCall, ...]) -> str:
    return wording.several(each.method or "a call" for each in calls)


def _holding(holder: CriCall, first: CriCall, now: int) -> str:
    """What was open before, how it stands, and when it is expected to end."""
    grace = f" with {holder.grace} s grace" if holder.method == "StopContainer" and holder.grace is not None else ""
    where = ""
    if holder.container is not None and holder.container_id != first.container_id:
        where = f" of container {holder.container.name}"
    before = wording.gap(first.rpc.start - holder.rpc.start)
    what = f"{holder.method}{grace}{where}, which began {before} before,"
    rpc = holder.rpc
    if rpc.ended_by in ("deadline", "client_cancel") and rpc.end is not None:
        return (
            f"{what} was given up by its client after {wording.seconds(rpc.end - rpc.start)} and is likely still going "
            "on in the runtime"
        )
    if rpc.end is not None:
        return f"{what} likely held it up and took {wording.seconds(rpc.end - rpc.start)}"
    what = f"{what} is open for {wording.seconds(now - rpc.start)} and likely holds it up"
    if holder.method == "StopContainer" and holder.grace is not None:
        left = rpc.start + holder.grace * NS - now
        if left > 0:
            return f"{what}: expected to clear when the grace ends, in {wording.seconds(left)}"
        return f"{what}, {wording.seconds(-left)} longer than its grace"
    return what


def _next_steps(blocked: _Blocked) -> tuple[str, ...]:
    ident = next((each.container_id or each.sandbox_id for each in blocked.calls.values()), None) or "ID"
    short = ident[:13]
    return (
        f"ps -eo pid,ppid,stat,wchan:32,args | grep {short}: its shim and runc; D waits in the kernel, T is stopped",
        "Mounts of the pod that do not answer (NFS): stat on each, with a timeout.",
        "Do not restart the runtime first: it would hide what holds the lock (kill -USR1 logs its goroutines).",
    )


def _severity(length: int, *, relist: bool) -> Severity:
    if length >= CRITICAL_NS and relist:
        return "critical"
    return "warning" if length >= WARNING_NS else "info"
