"""One kubelet: sorts its calls into relists, sync passes and other runs."""

from collections.abc import Callable

from tracer.facts import CriCall, Pod, Scope
from tracer.kubelet.alone import alone
from tracer.kubelet.passes import CHANGING, SyncPass, SyncRun
from tracer.kubelet.pleg import STREAMED, PlegEvent
from tracer.kubelet.probes import ProbeRun, Probes
from tracer.kubelet.relists import Relist, RelistRun
from tracer.kubelet.removals import RemovalRun, Removals
from tracer.kubelet.requests import HousekeepingRun
from tracer.kubelet.rhythm import Rhythm
from tracer.kubelet.runs import NEXT_NS, ImagesRun, Run, StartupRun, nearest, unfiltered
from tracer.kubelet.stats import ImageFsRun, StatsPasses, before
from tracer.kubelet.sweeps import STATS, Sweep
from tracer.kubelet.telling import Changed, Telling, Told
from tracer.kubelet.workers import LOSS_DOUBT_NS, Workers

EXPIRE_EVERY_NS = 10_000_000
"""How often runs are looked through for those that fell silent: well below their patience."""


class Kubelet:
    """Feed `sent` and `done` of one kubelet process's calls in time order; `tick` when time passes without calls.

    `fresh`: the process started under our eyes, so its PLEG knew nothing before its first relist. `pod_of_seen`: the
    pod whose annotation `kubernetes.io/config.seen` has this value, if known.
    """

    def __init__(self, pod_of_seen: Callable[[str], Pod | None], *, fresh: bool) -> None:
        self.probes = Probes()
        self.stats = StatsPasses()
        self._workers = Workers(self.probes.failed_since)
        self._telling = Telling()
        self._runs: list[Run] = []
        self._rhythm = Rhythm(self._runs, self._telling, self._workers, fresh=fresh)
        self._starting = fresh  # it asked for the runtime's status not once yet
        self._pod_of_seen = pod_of_seen
        self._run_of: dict[str, Run] = {}  # of open calls
        self._exec: tuple[HousekeepingRun, CriCall] | None = None  # the latest ExecSync that a request seemed to make
        self._named_removals = True  # RemoveContainer would be known by its name
        self._removals = Removals()
        self._expired_at = 0
        self._streamed = 0  # events of GetContainerEvents streams so far

    @property
    def evented(self) -> bool:
        """Whether the runtime streams its events, so that relists are rare."""
        return self._rhythm.stream.in_use

    @property
    def relist(self) -> RelistRun | None:
        """The latest relist of all pods."""
        return self._rhythm.latest

    @property
    def relist_end(self) -> int | None:
        """When the latest relist of all pods that is over ended."""
        return self._rhythm.ended

    @property
    def last_listed(self) -> int | None:
        """Start of the latest relist of all pods whose lists succeeded."""
        return self._rhythm.listed

    @property
    def lost_at(self) -> int:
        """When bytes of some connection were last missing; set it."""
        return self._workers.lost_at

    @lost_at.setter
    def lost_at(self, time: int) -> None:
        self._workers.lost_at = time

    # what happens

    def sent(self, call: CriCall) -> Changed:
        """The request of `call` was sent."""
        changed = Changed()
        time = call.rpc.start
        self._expire(time, changed)
        if call.method == "GetContainerEvents":
            self._rhythm.stream.opened(call.id)
        run = self._place(call, time, changed)
        if run is not None:
            kind = run.kind
            tentative = isinstance(run, RelistRun) and run.tentative is not None and bool(run.calls)
            run.sent(call)
            self._run_of[call.id] = run
            if isinstance(run, Sweep) and run.kind == "stats" and run.look in self._runs:
                self._runs.remove(run.look)
                run.calls[:0] = run.look.calls
            if tentative and isinstance(run, RelistRun):
                self._rhythm.confirm(run, changed)
                self._telling.show_run(changed.calls, run)
            elif run.kind != kind and len(run.calls) > 1 and not run.late:
                # It turned out to be something else: its earlier calls are shown as part of that.
                self._telling.show_run(changed.calls, run)
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
            self._workers.told(changed.events)
        return changed

    def done(self, call: CriCall) -> Changed:
        """`call` is over."""
        changed = Changed()
        time = call.rpc.end or call.rpc.start
        if call.method == "GetContainerEvents":
            self._rhythm.stream.ended(call.id)
        run = self._run_of.pop(call.id, None)
        self._named_removals = call.method == "RemoveContainer" or (
            self._named_removals and call.method_source == "header"
        )
        if run is None:
            self._telling.show(changed.calls, call, alone(call, starting=self._starting), None)
            self._starting = self._starting and call.method != "Status"
            if call.asks == "RemovePodSandbox":
                self._pair(call, changed)
            return changed
        run.done(call, time)
        if call.asks != call.method and call.rpc.status == "UNIMPLEMENTED":
            # The runtime does not stream lists: the client asks again, and for lists from then on (`cri-client`).
            self._rhythm.withdraw(run)
            self._telling.show(changed.calls, call, "startup", None)
            return changed
        if isinstance(run, RelistRun):
            if run.rivalled and run.tentative and run in self._runs:
                self._rhythm.give_back(run, changed)
                return changed
            self._rhythm.done(run, changed)
        elif isinstance(run, SyncRun) and run.complete:
            self._workers.close(run, changed.passes)
        elif isinstance(run, ProbeRun):
            self.probes.done(call)
        told = (run.kind_of(call), run.id)
        if run.late or (isinstance(run, RelistRun) and run.tentative):
            self._telling.remember(call, told)
        else:
            self._telling.show(changed.calls, call, *told)
        if run.over and run in self._runs:
            self._drop(run, changed)
        if call.asks == "RemovePodSandbox":
            self._pair(call, changed)
        return changed

    def named(self, call: CriCall) -> Changed:
        """`call` is over and got its method (or lost it) only now: what it was, as far as that still shows."""
        changed = Changed()
        told = self._telling.known(call)
        run = self._workers.of_late(call) if told is None or told[1] is None else None
        removal = self._removals.completed(call) if run is None else None
        if run is not None:
            run.sent(call)
            run.done(call, call.rpc.end or call.rpc.start)
            self._workers.close(run, changed.passes)
            self._telling.show_run(changed.calls, run)
        elif removal is not None:
            removal.sent(call)
            self._telling.show_run(changed.calls, removal)
        else:
            self._telling.show(changed.calls, call, *self.activity_of(call))
            self._pair(call, changed)
        return changed

    def _pair(self, call: CriCall, changed: Changed) -> None:
        """A stop of a sandbox that got its name later, with its removal right behind it, is garbage collection's."""
        pair = self._removals.pair(call)
        if pair is not None:
            stop, removal = pair
            told = self._telling.known(removal)
            self._telling.show(changed.calls, stop, "sandbox_gc", told[1] if told else None)

    def tick(self, now: int) -> Changed:
        """Time passed."""
        changed = Changed()
        self._expire(now, changed)
        return changed

    def activity_of(self, call: CriCall) -> Told:
        """Kind and id of the run of a call, open or over, as far as known."""
        run = self._run_of.get(call.id)
        if run is not None:
            return (run.kind_of(call), run.id)
        return self._telling.known(call) or (alone(call, starting=self._starting), None)

    def open_relists(self) -> list[Relist]:
        """Relists that are not over."""
        return [run.relist for run in self._runs if isinstance(run, RelistRun) and not run.over]

    def open_passes(self) -> list[SyncPass]:
        """Sync passes that are not known to be over."""
        return [run.sync for run in self._workers]

    # placing a call

    def _place(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        method = call.asks
        if method == "ListPodSandbox":
            return self._place_sandbox_list(call, time, changed)
        if method == "ListContainers":
            return self._place_container_list(call, time, changed)
        if method in STATS:
            if call.sandbox_id and call.pod:  # of one pod, before its memory limit is lowered
                return self._workers.run(call, call.pod, changed.passes)
            self._rhythm.untangle(call, changed)
            return self._waiting(call, time)
        if method == "ListImages":
            return self._new(ImagesRun(call))
        if method == "ImageFsInfo" and not self._starting:
            return self._waiting(call, time) or self._new(ImageFsRun(call))
        if method == "ContainerStatus":
            beside = any(isinstance(run, (Sweep, ImagesRun, RelistRun)) for run in self._runs)
            return self._waiting(call, time) or self._new(RemovalRun(call, beside=beside))
        if method == "ImageStatus":
            return self._place_image(call, changed)
        if method == "ExecSync":
            return self._place_exec(call, time, changed)
        if method == "PortForward":
            return self._place_forward(call, time, changed)
        if method == "StopPodSandbox":
            self._rhythm.untangle(call, changed)
        waiting = self._waiting(call, time)
        if waiting is None and method == "PodSandboxStatus" and self.relist is not None and self.relist.again(call):
            return self.relist
        if waiting is not None and not isinstance(waiting, SyncRun):
            return waiting
        if call.pod is not None and (method in CHANGING or method == "PullImage"):
            if call.cpuset_only:
                return None  # the CPU manager's own loop (`cpu_manager_others.go`)
            if method == "StopContainer":
                self._adopt(call, call.pod, changed)
            return self._workers.run(call, call.pod, changed.passes)
        return waiting

    def _waiting(self, call: CriCall, time: int) -> Run | None:
        runs: list[Run] = self._runs
        uid = call.pod_uid or (call.pod.uid if call.pod else None)
        sync = self._workers.of(uid) if uid else None
        return nearest([*runs, sync] if sync is not None else runs, call, time)

    def _new(self, run: Run) -> Run:
        self._runs.append(run)
        return run

    def _place_sandbox_list(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        waiting = self._waiting(call, time)
        if call.scope is Scope.READY:
            return waiting or self._new(HousekeepingRun(call))
        if call.scope is Scope.POD:
            return waiting or self._new(RelistRun(call, self._rhythm.records))
        if call.scope is not Scope.ALL:
            return None
        if unfiltered(call) and self._rhythm.filters:
            return self._new(StartupRun(call))
        if isinstance(waiting, Sweep):
            rival = nearest([run for run in self._runs if isinstance(run, ImagesRun)], call, time)
            waiting.rival = rival if isinstance(rival, ImagesRun) else None
        relist = self._rhythm.begin(call, waiting, changed)
        return relist or waiting or self._new(StartupRun(call))

    def _place_container_list(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        waiting = self._waiting(call, time)
        if waiting is not None or call.scope is not Scope.ALL or unfiltered(call):
            return waiting
        for run in self._runs:
            given = run.yields() if isinstance(run, Sweep) else None
            if isinstance(run, Sweep) and run.rival is not None and given is not None:
                rival = run.rival
                run.without(given)
                self._give(given, rival, changed)
                return run
        return self._new(Sweep(call, before(self._runs, time)))

    def _place_exec(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        """An exec probe has a timeout. Others are hooks, or a request of the API server right after its two lists."""
        if call.timeout:
            self.probes.sent(call)
            return self._new(ProbeRun(call))
        if call.timeout is None or call.pod is None:
            return None
        sync = self._workers.of(call.pod.uid)
        waiting = sync if sync is not None and sync.calls and sync.starts(call) else self._waiting(call, time)
        if isinstance(waiting, HousekeepingRun):
            self._exec = (waiting, call)
            return waiting
        return self._workers.run(call, call.pod, changed.passes)

    def _place_forward(self, call: CriCall, time: int, changed: Changed) -> Run | None:
        """The list of one pod's sandboxes before it looked like the beginning of that pod's relist."""
        for run in self._runs:
            listed = run.calls[0] if isinstance(run, RelistRun) and len(run.calls) == 1 else None
            if listed is None or listed.rpc.end is None or listed.scope is not Scope.POD:
                continue
            if time - listed.rpc.end <= NEXT_NS and call.sandbox_id in {item.id for item in listed.sandboxes or ()}:
                self._runs.remove(run)
                for pair in self._runs:
                    if isinstance(pair, HousekeepingRun) and pair.forwards(listed):
                        pair.sent(listed)
                        pair.done(listed, listed.rpc.end)
                        return pair
                self._telling.show(changed.calls, listed, "exec_api", None)
                return None
        return self._waiting(call, time)

    def _adopt(self, call: CriCall, pod: Pod, changed: Changed) -> None:
        """What came before the stop of a container belongs to its pass, though it looked like something else.

        A hook, just when housekeeping had listed; or the status of a container of a pod that the kubelet does not
        know (`kuberuntime_container.go:restoreSpecsFromContainerLabels`).
        """
        first = None
        if self._exec is not None:
            run, hook = self._exec
            end = hook.rpc.end
            if hook.container_id == call.container_id and (end is None or call.rpc.start - end <= NEXT_NS):
                run.without(hook)
                self._telling.show_run(changed.calls, run)
                self._exec, first = None, hook
        for other in self._runs:
            ready = other.ready
            fits = isinstance(other, RemovalRun) and len(other.calls) == 1 and other.asks_only
            if not fits or ready is None or call.rpc.start - ready > NEXT_NS:
                continue
            if other.calls[0].container_id == call.container_id:
                self._runs.remove(other)
                first = other.calls[0]
                break
        if first is not None:
            self._give(first, self._workers.run(first, pod, changed.passes), changed)

    def _give(self, call: CriCall, run: Run, changed: Changed) -> None:
        """A call that looked like another run's is this run's."""
        run.sent(call)
        if call.rpc.end is None:
            self._run_of[call.id] = run
        else:
            run.done(call, call.rpc.end)
            self._telling.show(changed.calls, call, run.kind_of(call), run.id)

    def _place_image(self, call: CriCall, changed: Changed) -> Run | None:
        if call.annotated:
            pod = call.pod or (self._pod_of_seen(call.seen) if call.seen else None)
            if pod is None:
                return None
            call.pod = pod
            return self._workers.run(call, pod, changed.passes)
        run = self._workers.of_image(call)
        if run is not None:
            call.pod = run.pod
        return run

    # runs that are over

    def _expire(self, now: int, changed: Changed) -> None:
        if now - self._expired_at < EXPIRE_EVERY_NS:
            return
        self._expired_at = now
        held: list[Run | None] = [*self._rhythm.expire(now, changed)]
        held += [run.look for run in self._runs if isinstance(run, Sweep) and run.kind == "unknown"]
        for run in list(self._runs):
            if run in held:
                continue
            run.expire(now)
            if run.over:
                if isinstance(run, RelistRun):
                    self._rhythm.done(run, changed)
                self._drop(run, changed)
        self._workers.expire(now, changed.passes)

    def _drop(self, run: Run, changed: Changed) -> None:
        self._runs.remove(run)
        if isinstance(run, RemovalRun) and run.kind == "unknown" and self._sure(run) and run.asks_only:
            run.kind = "exec_api"  # logs
        elif isinstance(run, RemovalRun) and run.kind == "unknown":
            self._removals.looked(run)
        if run.kind == "stats":
            self.stats.over(run)
        if not isinstance(run, RelistRun) and run.late:
            self._telling.show_run(changed.calls, run)

    def _sure(self, run: Run) -> bool:
        """Whether no run can have begun before the tracer, or in a gap, that `run` is only the rest of."""
        begun = run.calls[0].rpc.start
        return (
            self._rhythm.former is not None and self._named_removals and begun - self._workers.lost_at >= LOSS_DOUBT_NS
        )
