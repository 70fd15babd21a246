"""How much is executed in containers: by probes, which cost the runtime most, and on request."""

from collections import Counter, deque
from collections.abc import Iterator

from tracer.findings import wording
from tracer.findings.finding import Verdict
from tracer.findings.scene import NS, Scene

WINDOW_NS = 60 * NS

LEAST_RATE = 5
"""Probe runs a second. Each starts runc and a process in the container: 20 to 50 ms of a CPU."""

LEAST_SHARE = 0.5
"""Of the runtime's calls."""

HOUR_NS = 3600 * NS
LEAST_REQUESTS = 60
"""In an hour: more than people ask for by hand."""

MAX_REQUESTS = 8192
"""Exec requests remembered; with more in an hour, the time that they cover is shorter."""


class ProbeLoad:
    """One finding for each runtime most of whose calls are exec probes."""

    kind = "probe_load"

    def __init__(self) -> None:
        self._since = 0
        self._calls: Counter[str] = Counter()  # by runtime, in this window
        self._probes: Counter[str] = Counter()
        self._containers: dict[str, set[str]] = {}
        self._busy: dict[str, tuple[int, Verdict]] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        self._since = self._since or scene.now
        for call in scene.ended:
            path = call.rpc.peer.path
            if not call.cri:
                continue
            self._calls[path] += 1
            if call.method == "ExecSync" and call.timeout and scene.kubelet_of(call) is not None:
                self._probes[path] += 1
                self._containers.setdefault(path, set()).add(call.container_id or "")
        if scene.now - self._since >= WINDOW_NS:
            self._turn(scene.now)
        for _, verdict in self._busy.values():
            yield verdict

    def _turn(self, now: int) -> None:
        length = now - self._since
        busy = {}
        for path, probes in self._probes.items():
            rate, share = probes * NS / length, probes / self._calls[path]
            if rate >= LEAST_RATE and share >= LEAST_SHARE:
                start = self._busy[path][0] if path in self._busy else self._since
                busy[path] = start, Verdict(
                    self.kind, path, "info", start,
                    f"Exec probes are {share:.0%} of the calls to {path}: {rate:.1f} a second in"
                    f" {len(self._containers[path])} containers, each of which starts processes.",
                    next_steps=("Longer periodSeconds, or probes over HTTP, TCP or gRPC, which start none.",),
                )  # fmt: skip
        self._busy = busy
        self._since = now
        self._calls.clear()
        self._probes.clear()
        self._containers.clear()


class ExecRequests:
    """One finding for each runtime that is often asked for exec sessions."""

    kind = "exec_requests"

    def __init__(self) -> None:
        self._asked: deque[tuple[int, str, str, bool]] = deque(maxlen=MAX_REQUESTS)  # time, path, container, OK

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method == "Exec":
                ok = call.rpc.status == "OK"
                self._asked.append((call.rpc.start, call.rpc.peer.path, call.container_id or "", ok))
        while self._asked and scene.now - self._asked[0][0] > HOUR_NS:
            self._asked.popleft()
        if len(self._asked) < LEAST_REQUESTS:
            return
        for path in sorted({path for _, path, _, _ in self._asked}):
            mine = [(time, container, ok) for time, at, container, ok in self._asked if at == path]
            if len(mine) >= LEAST_REQUESTS:
                yield self._verdict(path, mine, scene.now)

    def _verdict(self, path: str, asked: list[tuple[int, str, bool]], now: int) -> Verdict:
        bad = sum(not ok for _, _, ok in asked)
        how = "all OK" if not bad else f"{bad} failed"
        start = asked[0][0]
        containers = len({container for _, container, _ in asked})
        return Verdict(
            self.kind, path, "info", start,
            f"{len(asked)} exec requests within {wording.seconds(now - start)} to {containers} container"
            f"{'s' * (containers != 1)}, {how}; the sessions themselves do not run over {path}, so what they do or"
            " leave behind is not seen.",
            unknown=("Whether sessions end, and whether the runtime keeps anything of them.",),
            next_steps=("The runtime's memory and goroutines over time; who runs kubectl exec regularly.",),
        )  # fmt: skip
