"""What is asked of one container, or of its pod's sandbox, hangs; named with what was open, or given up, before."""

from collections import OrderedDict
from collections.abc import Iterator

from tracer.facts import CriCall
from tracer.findings import inspecting, locks
from tracer.findings.finding import NOT_READY_SOON_NS, Confidence, Severity, Verdict, severity_of
from tracer.findings.locks import Abandoned
from tracer.findings.pod_hang import PodHang
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

MAX_EXECS = 2048
"""Containers whose latest ExecSync is remembered."""


class ContainerBlocked:
    """One finding for each pod, however many of its calls hang and however often they are tried."""

    kind = "container_blocked"

    def __init__(self) -> None:
        self._abandoned = Abandoned()
        self._blocked: dict[str, PodHang] = {}
        self._past: OrderedDict[str, PodHang] = OrderedDict()
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
            end = locks.until(call, scene.now)
            if end - call.rpc.start < SHOWN_NS + (call.grace or 0) * NS or not scene.unexplained(call, self.kind):
                continue
            if scene.kubelet_of(call) is None:
                continue
            if changing is None:
                changing = [
                    each for each in (*scene.open, *self._abandoned)
                    if each.method in locks.CHANGES or each.method == "ExecSync"
                ]  # fmt: skip
            blocked = self._take(call, end, changing, scene)
            if blocked is not None and call.rpc.end is None and call.rpc.answered is None:
                hanging.add(_key(call))
        return hanging

    def _take(self, call: CriCall, end: int, changing: list[CriCall], scene: Scene) -> PodHang | None:
        key = _key(call)
        blocked = self._blocked.get(key)
        holder = locks.holder(call, changing) if blocked is None or blocked.holder is None else None
        if blocked is None:
            begun_before = holder is not None and holder.method not in STOPS | {"ExecSync"}
            begins = call.method in READS or (
                begun_before and end - call.rpc.start >= ALONE_NS + (call.grace or 0) * NS
            )
            if not begins or len(self._blocked) >= MAX_BLOCKED:
                return None
            blocked = self._begin(key, call)
        new = call.id not in blocked.calls
        blocked.add(call, end, read=call.method in READS)
        if blocked.holder is None and holder is not None and holder.rpc.start < blocked.first.rpc.start:
            blocked.holder = holder  # what began after the first hung is a follower too
        if new and blocked.exec is None and call.container_id is not None:
            last = self._execs.get(call.container_id)
            if last is not None and -EXEC_NS <= (last.rpc.end or 0) - call.rpc.start <= 0:
                blocked.exec = last
        kubelet = scene.kubelet_of(call)
        if kubelet is not None:
            self._relist(blocked, call, kubelet, scene.now)
        return blocked

    def _begin(self, key: str, call: CriCall) -> PodHang:
        start = call.rpc.start
        blocked = self._past.pop(key, None)
        if blocked is None or start - blocked.until > AGAIN_NS:
            blocked = PodHang(call, start, start, call.pod, start)
        else:
            blocked.stalls += 1
        blocked.stall = start
        if blocked.holder is not None and blocked.holder.rpc.answered is not None:
            blocked.holder = None
        self._blocked[key] = blocked
        return blocked

    @staticmethod
    def _relist(blocked: PodHang, call: CriCall, kubelet: Kubelet, now: int) -> None:
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
    def _shown(blocked: PodHang) -> bool:
        return blocked.holder is not None or (blocked.reads and blocked.until - blocked.stall >= ALONE_NS)

    def _verdict(self, key: str, blocked: PodHang, scene: Scene, *, end: int | None) -> Verdict:
        holder, calls = blocked.holder, tuple(blocked.calls.values())
        see = None
        if holder is not None and not scene.unexplained(holder, self.kind):
            see = scene.explained[holder.id]
        severity: Severity = "info"
        if see not in locks.DEEPER:
            critical = NOT_READY_SOON_NS if blocked.share is not None else None  # while it holds up a relist
            severity = severity_of(blocked.until - blocked.stall, WARNING_NS, critical)
        confidence: Confidence = "low"
        if holder is not None and locks.relation(holder, blocked.first) in (0, 1):
            confidence = "medium"
        named = (holder, *calls) if holder is not None else calls
        return Verdict(
            self.kind, key, severity, blocked.start, f"{blocked.summary(scene.now, over=end is not None, see=see)}.",
            end=end,
            pods=(blocked.pod,) if blocked.pod else (),
            calls=named,
            explains=frozenset(call.id for call in (named if see is None else calls)),
            evidence=blocked.evidence(scene.now),
            confidence=confidence,
            unknown=("What it waits for lies below the CRI: a lock of the runtime, the shim, runc, or a mount.",),
            next_steps=_next_steps(blocked),
        )  # fmt: skip


def _key(call: CriCall) -> str:
    """The pod, as far as it is known."""
    return call.pod.uid if call.pod is not None else call.sandbox_id or call.container_id or call.id


def _next_steps(blocked: PodHang) -> tuple[str, ...]:
    ident = next((each.container_id or each.sandbox_id for each in blocked.calls.values()), None) or "ID"
    short = ident[:13]
    return (
        f"ps -eo pid,ppid,stat,wchan:32,args | grep {short}: its shim and runc; D waits in the kernel, T is stopped",
        "Mounts of the pod that do not answer (NFS): stat on each, with a timeout.",
        "Do not restart the runtime first: it would hide what holds the lock (kill -USR1 logs its goroutines).",
    )
