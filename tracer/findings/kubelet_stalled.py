"""The kubelet itself stands still: answers lie unread in its sockets, or it asks for nothing though nothing is open."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer import stamps
from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene
from tracer.kubelet.kubelet import Kubelet
from tracer.kubelet.relists import RELIST_PERIOD_NS

SHOWN_NS = 3 * NS // 2
WARNING_NS = 5 * NS // 2


@dataclass(slots=True)
class _Stall:
    """`unread`: answers that waited, ns. `silent`: no relist began for this long though one was due, ns."""

    start: int
    until: int
    unread: dict[str, tuple[CriCall, int]] = field(default_factory=dict)
    silent: int = 0
    relist_end: int | None = None


class KubeletStalled:
    """One finding for each time a kubelet process stood still."""

    kind = "kubelet_stalled"

    def __init__(self) -> None:
        self._stalls: dict[tuple[str, int], _Stall] = {}
        self._called: dict[tuple[str, int], int] = {}  # start of each kubelet's latest call
        self._relist_end: dict[tuple[str, int], int] = {}  # as of the look before

    def look(self, scene: Scene) -> Iterator[Verdict]:
        going: set[tuple[str, int]] = set()
        for call in (*scene.ended, *scene.open):
            self._unread(call, scene, going)
        for path, pid, kubelet in scene.kubelets:
            self._silent((path, pid), kubelet, scene, going)
        for call in (*scene.ended, *scene.open):
            key = _key(call)
            self._called[key] = max(self._called.get(key, 0), call.rpc.start)
        known = {(path, pid) for path, pid, _ in scene.kubelets}
        for key in [key for key in self._called if key not in known]:
            del self._called[key]
        for key, stall in list(self._stalls.items()):
            over = key not in going
            yield self._verdict(key, stall, end=stall.until if over else None)
            if over:
                del self._stalls[key]

    def _unread(self, call: CriCall, scene: Scene, going: set[tuple[str, int]]) -> None:
        wait = stamps.response_wait(call.rpc, scene.now)
        key = _key(call)
        if wait is None or wait < SHOWN_NS or call.rpc.answered is None or not _is_kubelet(scene, key):
            return
        end = call.rpc.read_answer
        stall = self._stall(key, call.rpc.answered, scene.now if end is None else end)
        stall.unread[call.id] = (call, wait)
        if end is None:
            going.add(key)

    def _silent(self, key: tuple[str, int], kubelet: Kubelet, scene: Scene, going: set[tuple[str, int]]) -> None:
        """No relist is under way, the next one is overdue, and the kubelet has not asked for anything else either."""
        run = kubelet.relist
        before, self._relist_end[key] = self._relist_end.get(key), kubelet.relist_end or 0
        if run is None or kubelet.evented or before is None:
            return
        if run.over:
            ended, until = kubelet.relist_end or 0, scene.now
        else:
            ended, until = before, run.relist.start  # it has just begun; how long was it due?
            if ended > until:
                return
        due = ended + RELIST_PERIOD_NS
        silence = until - due
        if silence < SHOWN_NS or (scene.lost_at is not None and scene.lost_at >= ended):
            return
        if scene.servers.changed(key[0], since=ended):
            return  # there was nobody to ask
        called = self._called.get(key, 0)
        mine = [call for call in (*scene.ended, *scene.open) if _key(call) == key]
        others = [called, *(call.rpc.start for call in mine if call.rpc.start < until)]
        waits = [call for call in scene.open if _key(call) == key and stamps.stage(call.rpc) == "response_wait"]
        if max(others) > due or any(call.rpc.start < due and call not in waits for call in self._held(mine, until)):
            return
        stall = self._stall(key, due, until)
        stall.silent, stall.relist_end = max(stall.silent, silence), ended
        if run.over:
            going.add(key)

    @staticmethod
    def _held(calls: list[CriCall], until: int) -> list[CriCall]:
        """Of them those that were open, and not answered, all through to `until`: the kubelet may wait for them."""
        return [
            call for call in calls
            if call.rpc.answered is None and (call.rpc.end is None or call.rpc.end >= until)
            and call.method in ("ListPodSandbox", "ListContainers", None)
        ]  # fmt: skip

    def _stall(self, key: tuple[str, int], start: int, until: int) -> _Stall:
        stall = self._stalls.get(key)
        if stall is None:
            stall = self._stalls[key] = _Stall(start, until)
        stall.start = min(stall.start, start)
        stall.until = max(stall.until, until)
        return stall

    def _verdict(self, key: tuple[str, int], stall: _Stall, *, end: int | None) -> Verdict:
        _path, pid = key
        length = stall.until - stall.start
        lasted = wording.seconds(length)
        calls = tuple(call for call, _ in stall.unread.values())
        evidence = [
            Evidence(
                call.rpc.answered,
                f"The answer to {wording.call(call)} lay {wording.seconds(wait)} in the kubelet's socket.",
                call.id,
            )
            for call, wait in stall.unread.values()
        ]
        if stall.silent:
            evidence.append(
                Evidence(
                    stall.relist_end,
                    f"The last relist ended; the next was due a second later and is {wording.seconds(stall.silent)} "
                    "late, with no list open that it could wait for.",
                )
            )
        if calls:
            what = (
                f"did not read its answers for {lasted}" if end is not None else f"does not read its answers ({lasted})"
            )
            fault = "so neither the runtime nor the pods of these calls are slow"
        else:
            what = (
                f"made no relist for {lasted} though nothing was open"
                if end is not None
                else f"makes no relist ({lasted} overdue) though nothing is open"
            )
            fault = "so it waits for nothing at the runtime"
        return Verdict(
            self.kind, key, severity_of(length, WARNING_NS), stall.start,
            f"The kubelet itself (process {pid}) {what}, {fault}: it was stopped, starved of CPU, or blocked inside.",
            end=end,
            pods=wording.pods_of(calls),
            calls=calls,
            explains=frozenset(call.id for call in calls),
            evidence=evidence,
            processes={pid: "The kubelet"},
            unknown_process=("Whether the kubelet was stopped, had no CPU, or waits for something inside itself.",),
            next_steps=(
                f"grep -E 'State|ctxt' /proc/{pid}/status",
                f"cat /proc/{pid}/cgroup, then cpu.stat and cpu.pressure there: throttled?",
                ("journalctl -u kubelet around this time; a goroutine dump of it (debug endpoint, or SIGQUIT as a last "
                "resort, which ends it)."),
            ),
        )  # fmt: skip


def _key(call: CriCall) -> tuple[str, int]:
    return call.rpc.peer.path, call.rpc.peer.client_pid


def _is_kubelet(scene: Scene, key: tuple[str, int]) -> bool:
    return any((path, pid) == key for path, pid, _ in scene.kubelets)
