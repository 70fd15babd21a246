"""Pod workers: which call belongs to which pass, and when a pass is over."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from tracer.facts import CriCall, Pod
from tracer.kubelet.passes import SyncPass, SyncRun, Trigger
from tracer.kubelet.pleg import PlegEvent
from tracer.kubelet.runs import NEXT_NS

MAX_PASSES = 4096
"""Pods whose latest pass is remembered, to tell its next from a new one."""

MAX_RELISTED = 64
"""Relists remembered to tell one pass of a pod from the next; on-demand ones come in bursts of some dozens."""

MAX_EVENTS = 1024
"""PLEG events remembered to tell what triggered a pass."""

EVENT_TO_PASS_NS = 100_000_000
"""A pass this soon after an event of its pod was triggered by it: a pod worker starts within 2 to 5 ms."""

PROBE_TO_PASS_NS = 1_500_000_000
"""A kill this soon after its container's probe failed was triggered by it: a worker may wait for the next relist."""

UNSEEN_NS = 1_000_000_000
"""What must follow in a pass follows within milliseconds. When the kubelet relisted twice meanwhile, the second time
this long after the pass' last answer, the call came but was not seen, or has no name."""

LOSS_DOUBT_NS = 10_000_000_000
"""How long after a loss a call may belong to a pass whose beginning was lost."""


class Workers:
    """The passes of one kubelet. `show` takes passes to be shown, each time they changed so far that it matters.

    `failed_since(container id, time)`: whether a probe of the container failed after `time`.
    """

    def __init__(self, failed_since: Callable[[str, int], bool]) -> None:
        self.lost_at = -LOSS_DOUBT_NS  # when bytes of some connection were last missing
        self._failed_since = failed_since
        self._passes: OrderedDict[str, SyncRun] = OrderedDict()  # latest of each pod uid
        self._relisted: deque[tuple[int, int, str | None]] = deque(maxlen=MAX_RELISTED)
        self._recent: deque[PlegEvent] = deque(maxlen=MAX_EVENTS)

    def __iter__(self) -> Iterator[SyncRun]:
        """Passes that are not known to be over."""
        return (run for run in self._passes.values() if not run.over)

    def of(self, uid: str) -> SyncRun | None:
        """The latest pass of a pod."""
        return self._passes.get(uid)

    def told(self, events: list[PlegEvent]) -> None:
        """The PLEG told the SyncLoop of these."""
        self._recent.extend(events)

    # whose call it is

    def run(self, call: CriCall, pod: Pod, show: list[SyncPass]) -> SyncRun:
        """The pass of `pod` that makes this call: the one under way, or a new one."""
        time = call.rpc.start
        run = self._passes.get(pod.uid)
        if run is not None:
            same_trace = not (run.trace and call.rpc.trace) or run.trace == call.rpc.trace
            idle = run.last_done is not None and not run.open
            over = idle and self._relisted_between(pod.uid, run.last_done or 0, time)
            if same_trace and (run.continues(call) or not over):
                self._passes.move_to_end(pod.uid)
                return run
            if not run.over:
                self.close(run, show)
        former, run = run, SyncRun(call, pod)
        event = self._event_before(pod, call.rpc.start)
        run.sync.trigger = self._trigger(call, former, event=event)
        run.quiet = bool(self._relisted) and not event
        self._passes[pod.uid] = run
        self._passes.move_to_end(pod.uid)
        if len(self._passes) > MAX_PASSES:
            _, oldest = self._passes.popitem(last=False)
            if not oldest.over:
                self.close(oldest, show)
        show.append(run.sync)
        return run

    def of_image(self, call: CriCall) -> SyncRun | None:
        """The one pass that waits for this image; None when several do: no owner is better than a wrong one.

        After a loss another pass may wait whose call was not seen; then only a trace id can tell.
        """
        time = call.rpc.start
        if time - self.lost_at < LOSS_DOUBT_NS and call.rpc.trace is None:
            return None
        waiting = [run for run in self if run.ready is not None and run.wants(call)]
        near = [run for run in waiting if run.ready is not None and time - run.ready <= NEXT_NS]
        chosen = near or waiting
        return chosen[0] if len(chosen) == 1 else None

    def of_late(self, call: CriCall) -> SyncRun | None:
        """The pass that `call`, which got its name only after it was over, can only belong to.

        The start of the container that was created last, or the stop of the sandbox right behind its last container's.
        """
        run = self._passes.get(call.pod.uid) if call.pod else None
        if run is None or not run.calls or run.open:
            return None
        last = run.calls[-1]
        gap = call.rpc.start - (last.rpc.end or 0)
        if call.asks == "StartContainer":
            waits = last.asks == "CreateContainer" and last.container_id == call.container_id and gap >= 0
        else:
            waits = call.asks == "StopPodSandbox" and last.asks == "StopContainer" and 0 <= gap <= NEXT_NS
        return run if waits else None

    def _relisted_between(self, uid: str, after: int, before: int) -> bool:
        """A pod worker waits for a relist that began after its last pass (`podWorkerLoop`, `GetNewerThan`)."""
        return any(start >= after and end <= before and (of is None or of == uid) for start, end, of in self._relisted)

    def _event_before(self, pod: Pod, time: int) -> bool:
        """Whether the PLEG just told of the pod."""
        for event in reversed(self._recent):
            if time - event.time > EVENT_TO_PASS_NS:
                break
            if event.pod.uid == pod.uid:
                return True
        return False

    def _trigger(self, call: CriCall, former: SyncRun | None, *, event: bool) -> Trigger:
        time = call.rpc.start
        retried = former is not None and former.sync.outcome == "failed"
        if call.method == "RunPodSandbox":
            return "pleg" if call.attempt else "timer" if retried else "config"
        stopped = call.container_id if call.method == "StopContainer" else None
        if stopped and self._failed_since(stopped, time - PROBE_TO_PASS_NS):
            return "probe"
        return "pleg" if event else "timer" if retried else "unknown"

    # when it is over

    def close(self, run: SyncRun, show: list[SyncPass]) -> None:
        """No more of it can come."""
        run.close()
        if run.over:
            show.append(run.sync)

    def listed(self, start: int, end: int, uid: str | None, show: list[SyncPass]) -> None:
        """A relist of all pods, or of one, that began at `start` has its lists: passes that ended before are over."""
        before = [begun for begun, _, of in self._relisted if of is None]
        self._relisted.append((start, end, uid))
        runs = list(self) if uid is None else [self._passes[uid]] if uid in self._passes else []
        for run in runs:
            if run.over or run.open or run.last_done is None or run.last_done > start:
                continue
            last = run.last_done
            unseen = uid is None and start - last >= UNSEEN_NS and any(begun >= last for begun in before)
            if not run.unfinished or (unseen and run.calls[-1].asks != "PullImage"):
                # After a pull a device plugin may still prepare the container (up to 30 s).
                self.close(run, show)

    def expire(self, now: int, show: list[SyncPass]) -> None:
        """Close the passes that were silent for too long."""
        for run in list(self):
            run.expire(now)
            if run.over:
                show.append(run.sync)
