"""Changes of every sort stall together and are released together, while reads are answered: a lock for writing."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Severity, Verdict
from tracer.findings.scene import NS, Scene

WRITES = frozenset({"RunPodSandbox", "CreateContainer", "RemoveContainer", "RemovePodSandbox", "RemoveImage"})
"""Calls that write to the runtime's store of snapshots."""

REMOVALS = frozenset({"RemoveContainer", "RemovePodSandbox", "RemoveImage"})
READS = frozenset({"Status", "Version", "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"})

STALLED_NS = 5 * NS
"""Each of the calls; they take 0.1 to 0.3 s, and 3 s when a hundred pods start at once on two cores."""

WARNING_NS = 10 * NS
CALLS, METHODS, PODS = 3, 2, 2
"""As many at least, or it is a matter of one pod or of one sort of call."""

QUICK_NS = NS
RELEASE_NS = 2 * NS
"""Within this of each other the calls end that waited for one thing."""

BEFORE_NS = 60 * NS
"""Removals are counted for this long before: they are what is cleaned up."""

AGAIN_NS = 3600 * NS
"""Windows within this of each other are one finding."""

MAX_WINDOWS = 64
MAX_CALLS = 64
MAX_REMOVALS = 4096

MAX_RUNTIMES = 16


@dataclass(frozen=True, slots=True)
class _Window:
    """A stall that is over. `together`: its calls ended at once. `removals`: how many came before."""

    start: int
    end: int
    calls: int
    together: bool
    removals: int


@dataclass(slots=True)
class _Store:
    """One runtime. `quick`: start of the latest write that took its usual time; `wrote`: end of the latest write.

    `read`: end of the latest read that took its usual time.
    """

    quick: int = 0
    wrote: int = 0
    read: int = 0
    stalled: dict[str, CriCall] = field(default_factory=dict)
    windows: deque[_Window] = field(default_factory=lambda: deque(maxlen=MAX_WINDOWS))
    removals: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_REMOVALS))


class WritesStalled:
    """One finding for each runtime, of all its stalls within an hour."""

    kind = "writes_stalled"

    def __init__(self) -> None:
        self._stores: OrderedDict[str, _Store] = OrderedDict()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method in WRITES or call.method in READS:
                self._ended(call)
        waiting: dict[str, list[CriCall]] = {}
        for call in scene.open:
            if (
                call.method in WRITES
                and scene.now - call.rpc.start >= STALLED_NS
                and scene.unexplained(call, self.kind)
            ):
                waiting.setdefault(call.rpc.peer.path, []).append(call)
        for path, store in self._stores.items():
            stalled = [call for call in waiting.get(path, ()) if call.rpc.start > store.quick]
            first = min((call.rpc.start for call in stalled), default=0)
            # Where some end meanwhile, changes are slow, but nothing holds them all up.
            if _common(stalled) and store.wrote <= first + QUICK_NS and store.read > first + STALLED_NS - QUICK_NS:
                store.stalled.update((call.id, call) for call in stalled[: MAX_CALLS - len(store.stalled)])
            if not store.stalled:
                continue
            if any(call.rpc.end is None for call in store.stalled.values()):
                yield self._verdict(path, store, scene.now, end=None)
            else:
                end = max(call.rpc.end or 0 for call in store.stalled.values())
                self._close(store, end, scene.now)
                yield self._verdict(path, store, scene.now, end=end)
                store.stalled = {}

    def _ended(self, call: CriCall) -> None:
        rpc = call.rpc
        store = self._stores.get(rpc.peer.path)
        if store is None:
            store = self._stores[rpc.peer.path] = _Store()
            if len(self._stores) > MAX_RUNTIMES:
                self._stores.popitem(last=False)
        if rpc.end is None or rpc.ended_by != "server":
            return
        if call.method in READS:
            if rpc.end - rpc.start < QUICK_NS:
                store.read = max(store.read, rpc.end)
            return
        store.wrote = max(store.wrote, rpc.end)
        if rpc.end - rpc.start < STALLED_NS:
            store.quick = max(store.quick, rpc.start)
        if call.method in REMOVALS and rpc.status == "OK":
            store.removals.append(rpc.end)

    @staticmethod
    def _close(store: _Store, end: int, now: int) -> None:
        calls = list(store.stalled.values())
        start = min(call.rpc.start for call in calls)
        released = sum(end - (call.rpc.end or 0) <= RELEASE_NS and call.rpc.ended_by == "server" for call in calls)
        removals = sum(start - BEFORE_NS <= time < start for time in store.removals)
        store.windows.append(_Window(start, end, len(calls), 3 * released >= 2 * len(calls), removals))
        while store.windows[0].end < now - AGAIN_NS:
            store.windows.popleft()

    # what is said

    def _verdict(self, path: str, store: _Store, now: int, *, end: int | None) -> Verdict:
        calls = tuple(store.stalled.values())
        start = min(call.rpc.start for call in calls)
        length = (now if end is None else end) - start
        windows = [window for window in store.windows if window.end >= now - AGAIN_NS]
        alone = end is not None and not any(window.together for window in windows)  # so it was not one lock
        methods = wording.several(sorted({call.method or "" for call in calls}))
        pods = wording.pods_of(calls)
        if end is None:
            summary = (
                f"Changes stall at the runtime for {wording.seconds(length)}: {len(calls)} calls ({methods}) of "
                f"{len(pods)} pods are open and none that began later has ended, while reads are answered"
            )
        else:
            summary = f"Changes stalled at the runtime for {wording.seconds(length)} ({methods}, {len(calls)} calls)"
            summary += ", all released together" if windows and windows[-1].together else ""
        if len(windows) > (end is not None):
            summary += f"; {_told(windows)}"
        if not alone:
            summary += (
                "; likely a lock for writing, as a clean-up of snapshots holds it, and not a matter of these pods"
            )
        severity: Severity = "warning" if length >= WARNING_NS and not alone else "info"
        return Verdict(
            self.kind, path, severity, min([start, *(window.start for window in windows)]), f"{summary}.",
            end=end,
            pods=pods,
            calls=calls,
            explains=frozenset(call.id for call in calls),
            evidence=[
                Evidence(
                    window.start,
                    f"{window.calls} changes stalled for {wording.seconds(window.end - window.start)}"
                    f"{', released together' if window.together else ''}; {window.removals} removals just before.",
                )
                for window in windows
            ],
            confidence="medium" if any(window.together for window in windows) else "low",
            unknown=("Who holds the lock: the runtime's own clean-up is not seen from its socket.",),
            next_steps=(
                "journalctl -u containerd around these times: garbage collection of snapshots and its duration",
                "iostat -x 1 while it lasts: a clean-up that is bound by the disk",
            ),
        )  # fmt: skip


def _common(calls: list[CriCall]) -> bool:
    """Whether they are of more than one pod and sort."""
    return (
        len(calls) >= CALLS
        and len({call.method for call in calls}) >= METHODS
        and len({call.pod.uid for call in calls if call.pod is not None}) >= PODS
    )


def _told(windows: list[_Window]) -> str:
    """`5 such stalls of 34.0 s to 58.0 s within the last hour, each after 20 removals or more`."""
    lengths = sorted(window.end - window.start for window in windows)
    told = (
        f"{len(windows)} such stalls of {wording.seconds(lengths[0])} to {wording.seconds(lengths[-1])} within an hour"
    )
    if len(windows) == 1:
        told = f"one such stall of {wording.seconds(lengths[0])} within the hour before"
    fewest = min(window.removals for window in windows)
    return f"{told}, each after {fewest} removals or more" if fewest and len(windows) > 1 else told
