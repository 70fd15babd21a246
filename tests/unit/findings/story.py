"""Writes what happens on a node by hand, call by call, and shows what the rules find.

A story runs through the real pipeline from the CRI call on; only the bytes are left out. Times are seconds.
"""

from collections.abc import Callable
from typing import Any

from tests.unit.kubelet.script import container, pod, sandbox
from tracer.calls import Call
from tracer.facts import Answer, CriCall, Done, Pod, Scope, Sent
from tracer.node import NodeEvent
from tracer.pipeline import Pipeline
from tracer.rows import Row
from tracer.streams import Peer

__all__ = ["KUBELET", "NS", "OTHER", "Story", "container", "pod", "sandbox"]

NS = 1_000_000_000
MS = 1_000_000
TICK = NS // 4
PATH = "/run/containerd/containerd.sock"
KUBELET = Peer("c1", PATH, 100, "kubelet", 200, "containerd")
OTHER = Peer("c2", PATH, 300, "agent-x", 200, "containerd")
GAP = MS // 2
"""Between an answer and the same goroutine's next request."""


class Story:
    """`pods`: (sandboxes, containers) that lists show; change it as the story goes."""

    def __init__(self, *, fresh: bool = False, pods: int = 2) -> None:
        self.pipeline = Pipeline(0)
        self.now = 1000 * NS
        self.rows: dict[tuple[str, str], Row] = {}
        self.sandboxes = [sandbox(f"p{n}") for n in range(pods)]
        self.containers = [container(f"p{n}") for n in range(pods)]
        self._answers: dict[str, dict[str, Any]] = {}
        self._stream: dict[str, int] = {}
        self._ticked = self.now
        self._relist_due: int | None = None
        self._joined: set[str] = set()
        if fresh:
            self.call("Version")

    # time

    def wait(self, seconds: float) -> None:
        """Nothing but the time passes (see `live`)."""
        self._until(self.now + int(seconds * NS))

    def live(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """The kubelet's rhythm goes on: a relist each second; `each` is done after every relist."""
        end = self.now + int(seconds * NS)
        while self.now < end:
            self.relist()
            each()
            self.wait(min(1.0, (end - self.now) / NS) if self.now < end else 0)

    def _until(self, time: int) -> None:
        while self._ticked + TICK <= time:
            self._ticked += TICK
            self.now = max(self.now, self._ticked)
            self._take(self.pipeline.tick(self._ticked))
        self.now = max(self.now, time)

    def _take(self, rows: list[Row]) -> None:
        self.rows.update({(row.kind, row.id): row for row in rows})

    # calls

    def send(self, method: str, peer: Peer = KUBELET, *, read: bool = True, **facts: Any) -> CriCall:
        """A request; `read`: the runtime reads it at once. What the answer says is given as well."""
        if peer.connection not in self._joined:
            self._joined.add(peer.connection)
            self.pipeline._servers.joined(peer)
        stream = self._stream[peer.connection] = self._stream.get(peer.connection, -1) + 2
        rpc = Call(peer, stream, self.now, path=f"/runtime.v1.RuntimeService/{method}", sent=self.now)
        rpc.deadline_ns = facts.pop("deadline_ns", None)
        call = CriCall(rpc, "runtime.v1.RuntimeService", method, "v1", "header")
        answer = ("sandboxes", "containers", "exit_code", "items", "bytes", "error")
        self._answers[call.id] = {name: facts.pop(name) for name in answer if name in facts}
        if "sandbox_id" in facts and method == "RunPodSandbox":
            self._answers[call.id]["sandbox_id"] = facts.pop("sandbox_id")
        for name, value in facts.items():
            setattr(call, name, value)
        out: list[Row] = []
        self.pipeline.now = max(self.pipeline.now, self.now)
        self.pipeline.take(Sent(call, self.now), out)
        self._take(out)
        if read:
            self.read(call)
        return call

    def read(self, call: CriCall) -> None:
        """The runtime reads the request now."""
        call.rpc.received = self.now

    def answer(self, call: CriCall, status: str | None = "OK", *, taken: bool = True) -> None:
        """The runtime answers now; `taken`: the kubelet reads it at once."""
        if call.rpc.received is None:
            self.read(call)
        rpc = call.rpc
        rpc.answered, rpc.status = self.now, status
        facts = self._answers.pop(call.id)
        rpc.error = facts.pop("error", None)
        rpc.response_bytes = facts.pop("bytes", 0)
        out: list[Row] = []
        if status == "OK":
            rpc.responses = 1
            for name, value in facts.items():
                setattr(call, name, value)
            self.pipeline.take(Answer(call, self.now), out)
        self._take(out)
        if taken:
            self.taken(call)

    def taken(self, call: CriCall) -> None:
        """The kubelet reads the answer now."""
        call.rpc.read_answer = self.now
        self.end(call, "server")

    def end(self, call: CriCall, by: str) -> None:
        """The call is over: `deadline`, `client_cancel`, `connection`, `server`."""
        call.rpc.end, call.rpc.ended_by = self.now, by
        self._answers.pop(call.id, None)
        out: list[Row] = []
        self.pipeline.now = max(self.pipeline.now, self.now)
        self.pipeline.take(Done(call, self.now), out)
        self._take(out)

    def call(
        self, method: str, seconds: float = 0.001, status: str | None = "OK", *, by: str = "server", **facts: Any
    ) -> CriCall:
        """One whole call; with `by` other than server it is ended by that instead of an answer."""
        call = self.send(method, **facts)
        self.wait(seconds)
        if by == "server":
            self.answer(call, status)
        else:
            self.end(call, by)
        self.now += GAP
        return call

    # what kubelets do

    def relist(self, seconds: float = 0.001, *, inspect: str = "", inspecting: float = 0.001) -> None:
        """Both lists; `inspect`: names of pods whose status it then asks for."""
        self.call("ListPodSandbox", seconds, scope=Scope.ALL, sandboxes=tuple(self.sandboxes))
        self.call("ListContainers", seconds, scope=Scope.ALL, containers=tuple(self.containers))
        for name in inspect.split():
            self.inspect(name, inspecting)

    def inspect(self, name: str, seconds: float = 0.001) -> None:
        for item in self.sandboxes:
            if item.pod.name == name:
                self.call("PodSandboxStatus", seconds, sandbox_id=item.id, pod=pod(name))
        for one in self.containers:
            if one.pod is not None and one.pod.name == name:
                self.call(
                    "ContainerStatus", seconds, container_id=one.id, container=one.container, pod=pod(name)
                )  # fmt: skip

    def node_event(self, event: NodeEvent) -> None:
        out: list[Row] = []
        self.pipeline._node([event], out)
        self._take(out)

    # what is found

    def findings(self, *severities: str) -> list[dict[str, Any]]:
        """Fields of the findings in order of their start; of these severities, warning and critical if none is said."""
        wanted = severities or ("warning", "critical")
        found = [row for (kind, _), row in self.rows.items() if kind == "finding"]
        return [row.fields for row in sorted(found, key=lambda row: row.start) if row.fields["severity"] in wanted]

    def kinds(self, *severities: str) -> list[str]:
        return [finding["kind"] for finding in self.findings(*severities)]

    def only(self) -> dict[str, Any]:
        """The one finding there is at warning or above."""
        (finding,) = self.findings()
        return finding


def pods(finding: dict[str, Any]) -> set[str]:
    return {each["name"] for each in finding["pods"]}


def name_of(value: Pod) -> str:
    return f"{value.namespace}/{value.name}"
