"""One kubelet: sorts its calls into relists, sync passes and other runs."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tracer.facts import CriCall, Pod, Scope
from tracer.kubelet.passes import CHANGING, SyncPass, SyncRun, Trigger
from tracer.kubelet.pleg import STREAMED, PlegEvent
from tracer.kubelet.relists import RELIST_PERIOD_NS, Records, Relist, RelistRun
from tracer.kubelet.runs import (
    NEXT_NS,
    ActivityKind,
    ContainersRun,
    HousekeepingRun,
    ImagesRun,
    ProbeRun,
    RemovalRun,
    Run,
    StartupRun,
    nearest,
)

MAX_PASSES = 4096
"""Pods whose latest pass is remembered, to tell its next from a new one."""

MAX_RELISTED = 64
"""Relists remembered to tell one pass of a pod from the next; on-demand ones come in bursts of some dozens."""

MAX_EVENTS = 1024
"""PLEG events remembered to tell what triggered a pass."""

EVENT_TO_PASS_NS = 1_000_000_000
"""A pass this soon after an event of its pod was triggered by it: a pod worker starts within milliseconds."""

LOSS_DOUBT_NS = 10_000_000_000
"""How long after a loss a call may belong to a pass whose beginning was lost."""

EXPIRE_EVERY_NS = 10_000_000
"""How often runs are looked through for those that fell silent: well below their patience."""

_SINGLE: dict[str, ActivityKind] = {
    "Status": "runtime_status",
    "Version": "node_version",
    "RuntimeConfig": "startup",
    "UpdateRuntimeConfig": "startup",
    "ImageFsInfo": "stats",
    "ListContainerStats": "stats",
    "ListPodSandboxStats": "stats",
    "ContainerStats": "stats",
    "PodSandboxStats": "stats",
    "ListMetricDescriptors": "stats",
    "ListPodSandboxMetrics": "stats",
    "PullImage": "image_pull",
    "RemoveImage": "image_gc",
    "Exec": "exec_api",
    "Attach": "exec_api",
    "PortForward": "exec_api",
    "CheckpointContainer": "exec_api",
    "ReopenContainerLog": "log_rotation",
    "RemoveContainer": "container_gc",
    "RemovePodSandbox": "sandbox_gc",
    "GetContainerEvents": "relist",
    "ImageStatus": "sync",  # whose is not known: several pods start at once with this image
    "StreamContainerStats": "stats",
    "StreamPodSandboxStats": "stats",
    "StreamPodSandboxMetrics": "stats",
}


@dataclass(slots=True)
class Changed:
    """What a step changed: calls with their activity and its id; relists and passes, each shown again as it grows."""

    calls: list[tuple[CriCall, ActivityKind, str | None]] = field(default_factory=list)
    relists: list[Relist] = field(default_factory=list)
    events: list[PlegEvent] = field(default_factory=list)
    passes: list[SyncPass] = field(default_factory=list)


class Kubelet:
    """Feed `sent` and `done` of one kubelet process's calls in time order; `tick` when time passes without calls.

    `fresh`: the process started under our eyes, so its PLEG knew nothing before its first relist. `pod_of_seen`: the
    pod whose annotation `kubernetes.io/config.seen` has this value, if known.
    """

    def __init__(self, pod_of_seen: Callable[[str], Pod | None], *, fresh: bool) -> None:
        self.records = Records(known=fresh)
        self.relist: RelistRun | None = None  # the latest generic one
        self._former: RelistRun | None = None  # the one before it
        self.relist_end: int | None = None
        self.last_listed: int | None = None  # start of the latest generic relist whose lists succeeded
        self.lost_at = -LOSS_DOUBT_NS  # when bytes of some connection were last missing
        self.evented = False  # the runtime streams its events: relists are rare
        self._pod_of_seen = pod_of_seen
        self._runs: list[Run] = []
        self._run_of: dict[str, Run] = {}  # of open calls
        self._passes: OrderedDict[str, SyncRun] = OrderedDict()  # latest of each pod uid
        self._relisted: deque[tuple[int, int, str | None]] = deque(maxlen=MAX_RELISTED)
        self._recent: deque[PlegEvent] = deque(maxlen=MAX_EVENTS)
        self._expired_at = 0
        self._streamed = 0  # events of GetContainerEvents streams so far

    # what happens

    def sent(self, call: CriCall) -> Changed:
        """The request of `call` was sent."""
        changed = Changed()
        time = call.rpc.start
        self._expire(time, changed)
        if call.method == "GetContainerEvents":
            self.evented = True
        run = self._place(call, time, changed)
        if run is not None:
            kind = run.kind
            tentative = isinstance(run, RelistRun) and run.tentative is not None and bool(run.calls)
            run.sent(call)
            self._run_of[call.id] = run
            if tentative and isinstance(run, RelistRun):
                self._confirm(run, changed)
                self._show_calls(run, changed)
            elif run.kind != kind and isinstance(run, SyncRun):
                # It turned out to be a termination: its earlier calls are shown as part of one.
                self._show_calls(run, changed)
        return changed

    def streamed(self, call: CriCall, time: int) -> Changed:
        """A message of a `GetContainerEvents` stream came: the evented PLEG tells the SyncLoop at once."""
        changed = Changed()
        event = call.event
        if event is not None:
            for kind in STREAMED.get(event.kind, ()):
                self._streamed += 1
                name = f"e{call.id}.{self._streamed}"
                changed.events.append(PlegEvent(name, time, kind, event.pod, event.container_id, call.id))
            self._recent.extend(changed.events)
        return changed

    def done(self, call: CriCall) -> Changed:
        """`call` is over."""
        changed = Changed()
        time = call.rpc.end or call.rpc.start
        if call.method == "GetContainerEvents":
            self.lost_at = -LOSS_DOUBT_NS  # when bytes of some connection were last missing
        self.evented = False
        run = self._run_of.pop(call.id, None)
        if run is None:
            changed.calls.append((call, _SINGLE.get(call.method or "", "unknown"), None))
            return changed
        run.done(call, time)
        if call.asks != call.method and call.rpc.status == "UNIMPLEMENTED":
            # The runtime does not stream lists: the client asks again, and for lists from then on (`cri-client`).
            self._withdraw(run)
            changed.calls.append((call, "startup", None))
            return changed
        if isinstance(run, RelistRun):
            if run.rivalled and run.tentative and run in self._runs:
                self._give_back(run, changed)
                return changed
            self._relist_done(run, changed)
        elif isinstance(run, SyncRun) and run.complete:
            self._close_pass(run, changed)
        if not run.late and not (isinstance(run, RelistRun) and run.tentative):
            changed.calls.append((call, run.kind_of(call), run.id))
        if run.over and run in self._runs:
            self._drop(run, changed)
        return changed

    def tick(self, now: int) -> Changed:
        """Time passed."""
        changed = Changed()
        self._expire(now, changed)
        return changed

    def activity_of(self, call: CriCall) -> tuple[ActivityKind, str | None]:
        """Kind and id of the run of an open call, as far as known."""
        run = self._run_of.get(call.id)
        if run is None:
            return (_SINGLE.get(call.method or "", "unknown"), None)
        return (run.kind_of(call), run.id)

    def open_relists(self) -> list[Relist]:
        """Relists that are not over."""
        return [run.relist for run in self._runs if isinstance(run, RelistRun) and not run.over]

    def open_passes(self) -> list[SyncPass]:
        """Sync passes that are not known to be over."""
        return [run.sync for run in self._passes.values() if not run.over]

    # placing a call

    def _place(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        method = call.asks
        if method == "ListPodSandbox":
            return self._place_sandbox_list(call, time, changed)
        if method == "ListContainers":
            if call.scope is Scope.ALL:
                return self._waiting(call, time) or self._new(ContainersRun(call))
            return self._waiting(call, time)
        if method in ("ListContainerStats", "ListPodSandboxStats"):
            self._untangle(call, changed)
            return self._waiting(call, time)
        if method == "StopPodSandbox":
            self._untangle(call, changed)
        if method == "ListImages":
            return self._new(ImagesRun(call))
        if method == "ContainerStatus":
            return self._waiting(call, time) or self._new(RemovalRun(call))
        if method == "ImageStatus":
            return self._place_image(call, time, changed)
        if method == "ExecSync" and call.timeout:
            return self._new(ProbeRun(call))
        waiting = self._waiting(call, time)
        if waiting is None and method == "PodSandboxStatus" and self.relist is not None and self.relist.again(call):
            return self.relist
        if waiting is not None and not isinstance(waiting, SyncRun):
            return waiting
        if call.pod is not None and (method in CHANGING or method in {"PullImage", "ExecSync"}):
            if call.cpuset_only:
                return None  # the CPU manager's own loop (`cpu_manager_others.go`)
            return self._pass(call, call.pod, time, changed)
        return waiting

    def _waiting(self, call: CriCall, time: int) -> Run | None:
        runs: list[Run] = self._runs
        uid = call.pod_uid or (call.pod.uid if call.pod else None)
        sync = self._passes.get(uid) if uid else None
        return nearest([*runs, sync] if sync is not None else runs, call, time)

    def _new(self, run: Run) -> Run:
        self._runs.append(run)
        return run

    def _place_sandbox_list(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        waiting = self._waiting(call, time)
        if call.scope is Scope.READY:
            return waiting or self._new(HousekeepingRun(call))
        if call.scope is Scope.POD:
            return waiting or self._new(RelistRun(call, self.records))
        if call.scope is not Scope.ALL:
            return None
        if self._relist_due(time, changed):
            return self._new_relist(RelistRun(call, self.records, tentative=waiting), changed)
        return waiting or self._new(StartupRun(call))

    def _relist_due(self, time: int, changed: Changed) -> bool:
        """Whether a generic relist can start now: none runs, and the last ended a period ago."""
        last = self.relist
        if last is None:
            return True
        if not last.over:
            if last.open or last.ready is None or time - last.ready < RELIST_PERIOD_NS:
                return False
            last.supersede(last.ready)
            self._relist_done(last, changed)
            self._drop(last, changed)
        return self.relist_end is None or time - self.relist_end >= RELIST_PERIOD_NS

    def _new_relist(self, run: RelistRun, changed: Changed) -> Run:
        if run.tentative is None:
            self._confirm(run, changed)
            changed.relists.append(run.relist)
        self._runs.append(run)
        return run

    def _confirm(self, run: RelistRun, changed: Changed) -> None:
        """It is a relist, and the latest one; lists that might have been one at the same time are others'."""
        for other in self._tentative():
            if other is not run and other.ready is not None:
                self._give_back(other, changed)
            elif other is not run:
                other.rivalled = True
        if self.relist is not None:
            run.relist.interval = run.relist.start - self.relist.relist.start
        self._former, self.relist = self.relist, run

    def _untangle(self, call: CriCall, changed: Changed) -> None:
        """A sandbox list taken for a relist's, with a request behind it that only the other run makes: it was that's.

        A stats request, or the stop of a sandbox that the list shows as not ready: garbage collection.
        """
        for run in self._tentative():
            listed = run.calls[0].sandboxes or ()
            dead = any(item.id == call.sandbox_id and not item.ready for item in listed)
            if run.ready is not None and (call.method != "StopPodSandbox" or dead):
                self._give_back(run, changed)

    def _withdraw(self, run: Run) -> None:
        if run in self._runs:
            self._runs.remove(run)
        if self.relist is run:
            self.relist = self._former

    def _tentative(self) -> list[RelistRun]:
        return [run for run in self._runs if isinstance(run, RelistRun) and run.tentative]

    def _give_back(self, run: RelistRun, changed: Changed) -> None:
        other, first = run.tentative, run.calls[0]
        assert other is not None
        assert run.ready is not None
        self._runs.remove(run)
        other.sent(first)
        other.done(first, run.ready)
        if not other.late:
            changed.calls.append((first, other.kind_of(first), other.id))

    def _place_image(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        if call.annotated:
            pod = call.pod or (self._pod_of_seen(call.seen) if call.seen else None)
            if pod is None:
                return None
            call.pod = pod
            return self._pass(call, pod, time, changed)
        run = self._only_pass(call, time)
        if run is not None:
            call.pod = run.pod
        return run

    def _only_pass(self, call: CriCall, time: int) -> SyncRun | None:
        """The one pass that waits for this image; None when several do: no owner is better than a wrong one.

        After a loss another pass may wait whose call was not seen; then only a trace id can tell.
        """
        if time - self.lost_at < LOSS_DOUBT_NS and call.rpc.trace is None:
            return None
        waiting = [run for run in self._passes.values() if not run.over and run.ready is not None and run.wants(call)]
        near = [run for run in waiting if run.ready is not None and time - run.ready <= NEXT_NS]
        chosen = near or waiting
        return chosen[0] if len(chosen) == 1 else None

    # sync passes

    def _pass(self, call: CriCall, pod: Pod, time: int, changed: Changed) -> SyncRun:
        run = self._passes.get(pod.uid)
        if run is not None:
            same_trace = not (run.trace and call.rpc.trace) or run.trace == call.rpc.trace
            idle = run.last_done is not None and not run.open
            over = idle and self._relisted_between(pod.uid, run.last_done or 0, time)
            if same_trace and (run.continues(call) or not over):
                self._passes.move_to_end(pod.uid)
                return run
            if not run.over:
                self._close_pass(run, changed)
        run = SyncRun(call, pod)
        run.sync.trigger = self._trigger(call, pod, time)
        self._passes[pod.uid] = run
        self._passes.move_to_end(pod.uid)
        if len(self._passes) > MAX_PASSES:
            _, oldest = self._passes.popitem(last=False)
            if not oldest.over:
                self._close_pass(oldest, changed)
        changed.passes.append(run.sync)
        return run

    def _relisted_between(self, uid: str, after: int, before: int) -> bool:
        """A pod worker waits for a relist that began after its last pass (`podWorkerLoop`, `GetNewerThan`)."""
        return any(start >= after and end <= before and (of is None or of == uid) for start, end, of in self._relisted)

    def _trigger(self, call: CriCall, pod: Pod, time: int) -> Trigger:
        if call.method == "RunPodSandbox":
            return "pleg" if call.attempt else "config"
        for event in reversed(self._recent):
            if time - event.time > EVENT_TO_PASS_NS:
                break
            if event.pod.uid == pod.uid:
                return "pleg"
        return "unknown"

    def _close_pass(self, run: SyncRun, changed: Changed) -> None:
        run.close()
        if run.over:
            changed.passes.append(run.sync)

    def _bound_passes(self, start: int, uid: str | None, changed: Changed) -> None:
        """A relist that began at `start` is listed: passes that ended before it are over."""
        runs = [self._passes[uid]] if uid and uid in self._passes else [] if uid else list(self._passes.values())
        for run in runs:
            idle = not run.over and not run.open and not run.unfinished
            if idle and run.last_done is not None and run.last_done <= start:
                self._close_pass(run, changed)

    # relists

    def _relist_done(self, run: RelistRun, changed: Changed) -> None:
        relist = run.relist
        if run.listed_at is not None and not run.noted:
            run.noted = True
            if run.uid is None:
                self.last_listed = relist.start
            self._relisted.append((relist.start, run.listed_at, run.uid))
            self._bound_passes(relist.start, run.uid, changed)
        new = relist.events[run.given :]
        run.given = len(relist.events)
        changed.events += new
        self._recent.extend(new)
        if run.over:
            if relist.kind == "generic":
                self.relist_end = relist.end
            changed.relists.append(relist)

    # runs that are over

    def _expire(self, now: int, changed: Changed) -> None:
        if now - self._expired_at < EXPIRE_EVERY_NS:
            return
        self._expired_at = now
        held = []  # runs whose next call a tentative relist has
        for relist in self._tentative():
            if relist.ready is not None and now - relist.ready > NEXT_NS:
                self._give_back(relist, changed)
            else:
                held.append(relist.tentative)
        for run in list(self._runs):
            if run in held:
                continue
            run.expire(now)
            if run.over:
                if isinstance(run, RelistRun):
                    self._relist_done(run, changed)
                self._drop(run, changed)
        for sync in [run for run in self._passes.values() if not run.over]:
            sync.expire(now)
            if sync.over:
                changed.passes.append(sync.sync)

    def _drop(self, run: Run, changed: Changed) -> None:
        self._runs.remove(run)
        if not isinstance(run, RelistRun) and run.late:
            self._show_calls(run, changed)

    @staticmethod
    def _show_calls(run: Run, changed: Changed) -> None:
        for call in run.calls:
            if call.rpc.end is not None:
                changed.calls.append((call, run.kind_of(call), run.id))
