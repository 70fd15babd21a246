"""Another client than the kubelet asks the runtime much."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import STREAMS, CriCall
from tracer.findings import wording
from tracer.findings.client_errors import other
from tracer.findings.finding import Verdict
from tracer.findings.scene import NS, Scene

HEAVY_RATE = 10
"""Calls a second. A kubelet makes two to five, without its probes."""

HEAVY_TIME = 0.25
"""Of the time that passed, in calls of one client."""

WINDOW_NS = 60 * NS

MAX_CLIENTS = 256
"""Clients counted in one window."""

WAITS = frozenset({"PullImage", "StopContainer", "ExecSync", "RunPodSandbox"}) | STREAMS
"""Calls that wait for others than the runtime: their time is not its work."""


@dataclass(slots=True)
class _Client:
    busy: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    pids: set[int] = field(default_factory=set)
    last: CriCall | None = None


class ClientHeavy:
    """One finding for each client program that asks the runtime much, by its share of the time and its rate."""

    kind = "client_heavy"

    def __init__(self) -> None:
        self._since = 0
        self._clients: dict[tuple[str, str], _Client] = {}
        self._heavy: dict[tuple[str, str], Verdict] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        self._since = self._since or scene.now
        for call in scene.ended:
            if not call.cri or call.method in WAITS or scene.kubelet_of(call) is not None:
                continue
            key = (call.rpc.peer.path, call.rpc.peer.client_comm)
            client = self._clients.get(key)
            if client is None:
                if len(self._clients) >= MAX_CLIENTS:
                    continue
                client = self._clients[key] = _Client()
            client.calls[call.method or "unknown"] += 1
            client.pids.add(call.rpc.peer.client_pid)
            client.last = call
            if call.rpc.received is not None and call.rpc.answered is not None:
                client.busy += call.rpc.answered - call.rpc.received
        length = scene.now - self._since
        if length >= WINDOW_NS:
            heavy = {}
            for key, client in self._clients.items():
                rate = client.calls.total() * NS / length
                if client.last is None or not other(client.last, scene):
                    continue
                if rate >= HEAVY_RATE or client.busy >= HEAVY_TIME * length:
                    heavy[key] = self._verdict(key, client, rate, length)
            self._heavy, self._clients, self._since = heavy, {}, scene.now
        yield from self._heavy.values()

    def _verdict(self, key: tuple[str, str], client: _Client, rate: float, length: int) -> Verdict:
        path, comm = key
        before = self._heavy.get(key)
        methods = wording.several(f"{name} ({times})" for name, times in client.calls.most_common())
        who = f"process {next(iter(client.pids))}" if len(client.pids) == 1 else f"{len(client.pids)} processes"
        return Verdict(
            self.kind, key, "info", before.start if before else self._since,
            f"Client {comm or 'unknown'} ({who}) asks the runtime at {path} {rate:.1f} times a second and takes"
            f" {client.busy / length:.0%} of the time: {methods}.",
            calls=(client.last,) if client.last else (),
            next_steps=(f"ps -o pid,ppid,args -C {comm or 'NAME'}: what it is, and how often it is meant to ask",),
        )  # fmt: skip
