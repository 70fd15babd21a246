"""Writes a kubelet's calls by hand and gives them to `Kubelet` in time order."""

from dataclasses import dataclass, field

from tracer.facts import Container, CriCall, ListedContainer, ListedSandbox, Pod, Scope
from tracer.kubelet.kubelet import Kubelet
from tracer.kubelet.telling import Changed
from tracer.rpc import Call
from tracer.streams import Peer

MS = 1_000_000
S = 1_000 * MS
PEER = Peer("c1", "/run/containerd/containerd.sock", 100, "kubelet", 200, "containerd")


def pod(name: str) -> Pod:
    return Pod("default", name, f"uid-{name}")


def sandbox(name: str, *, ready: bool = True, attempt: int = 0, created: int = 1) -> ListedSandbox:
    return ListedSandbox(f"{name}-s{attempt}", pod(name), attempt, ready, created, f"seen-{name}")


def container(name: str, state: int = 1, *, attempt: int = 0, created: int = 2, of: str = "main") -> ListedContainer:
    ident = f"{name}-{of}{attempt}"
    return ListedContainer(ident, f"{name}-s0", Container(ident, of, attempt), pod(name), state, created)


@dataclass
class Script:
    """`now` is the clock, ns; `gap` lies between an answer and the goroutine's next request."""

    fresh: bool = False
    now: int = 100 * S
    gap: int = MS // 2
    stream: int = -1
    relists: list = field(default_factory=list)
    events: list = field(default_factory=list)
    passes: dict = field(default_factory=dict)
    activity: dict = field(default_factory=dict)
    answers: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kubelet = Kubelet(lambda seen: pod(seen.removeprefix("seen-")), fresh=self.fresh)

    def _note(self, changed: Changed) -> None:
        self.relists += [r for r in changed.relists if r.end is not None]
        self.events += [(e.type, e.container_id) for e in changed.events]
        self.passes.update({p.id: p for p in changed.passes})
        self.activity.update({call.id: (kind, of) for call, kind, of in changed.calls})

    def send(self, method: str, **facts: object) -> CriCall:
        """A request at `now`; its answer is still to come."""
        self.stream += 2
        rpc = Call(PEER, self.stream, self.now)
        rpc.sent = self.now
        rpc.path = f"/runtime.v1.RuntimeService/{method}"
        rpc.request_bytes = facts.pop("size", 7)  # a list with an empty filter
        rpc.deadline_ns = facts.pop("deadline", None)
        rpc.trace = facts.pop("trace", None)
        call = CriCall(rpc, "runtime.v1.RuntimeService", method, "v1", "header")
        answer = {name: facts.pop(name) for name in ("sandboxes", "containers") if name in facts}
        for name, value in facts.items():
            setattr(call, name, value)
        self.answers[call.id] = answer
        self._note(self.kubelet.sent(call))
        return call

    def unnamed(self) -> CriCall:
        """A request at `now` whose method is not on the wire: nobody is told that it was sent."""
        self.stream += 2
        rpc = Call(PEER, self.stream, self.now)
        rpc.request_bytes = 71
        self.answers[rpc.id] = {}
        return CriCall(rpc, None, None, None, "unknown")

    def named(self, call: CriCall) -> None:
        """A call that is over got its method now."""
        self._note(self.kubelet.named(call))

    def answer(self, call: CriCall, status: str | None = "OK", ended_by: str = "server") -> None:
        """The answer is read at `now`."""
        call.rpc.status, call.rpc.ended_by, call.rpc.end = status, ended_by, self.now
        call.rpc.answered = self.now if ended_by == "server" else None
        for name, value in self.answers.pop(call.id).items():
            setattr(call, name, value)
        self._note(self.kubelet.done(call))

    def call(self, method: str, lasts: int = MS, status: str | None = "OK", **facts: object) -> CriCall:
        """One whole call, then the gap."""
        call = self.send(method, **facts)
        self.now += lasts
        self.answer(call, status)
        self.now += self.gap
        return call

    def wait(self, ns: int) -> None:
        for _ in range(max(1, ns // (50 * MS))):
            self.now += min(ns, 50 * MS)
            self._note(self.kubelet.tick(self.now))

    # what kubelets do

    def relist(self, sandboxes=(), containers=(), *, inspect: str = "", **status: str) -> None:
        """A generic relist a second after the last; `inspect`: names of pods whose status it asks for."""
        self.wait(S)
        self.call("ListPodSandbox", scope=Scope.ALL, sandboxes=tuple(sandboxes))
        self.call("ListContainers", scope=Scope.ALL, containers=tuple(containers))
        for name in inspect.split():
            self.inspect(name, sandboxes, containers, **status)

    def inspect(self, name: str, sandboxes, containers, **status: str) -> None:
        for item in sandboxes:
            if item.pod.name == name:
                self.call("PodSandboxStatus", sandbox_id=item.id, pod=pod(name))
        for item in containers:
            if item.pod.name == name:
                self.call(
                    "ContainerStatus", container_id=item.id, container=item.container, pod=pod(name),
                    status=status.get(name, "OK"),
                )  # fmt: skip

    def image(self, name: str) -> None:
        self.call("ImageStatus", image="busybox", annotated=True, seen=f"seen-{name}")
        self.call("ImageStatus", image="busybox")

    def start(self, name: str, attempt: int = 0, of: str = "main") -> None:
        """Image, create, start of one container."""
        self.image(name)
        ident = Container(f"{name}-{of}{attempt}", of, attempt)
        self.call("CreateContainer", pod=pod(name), sandbox_id=f"{name}-s0", container=ident, container_id=ident.id)
        self.call("StartContainer", pod=pod(name), container=ident, container_id=ident.id)

    def create(self, name: str, attempt: int = 0) -> None:
        """A new pod's pass."""
        self.call("RunPodSandbox", pod=pod(name), attempt=attempt, sandbox_id=f"{name}-s{attempt}")
        self.call("PodSandboxStatus", pod=pod(name), sandbox_id=f"{name}-s{attempt}")
        self.start(name)

    def pod_relist(self, name: str, sandboxes, containers, *, inspect: bool = True) -> None:
        uid = pod(name).uid
        mine = [s for s in sandboxes if s.pod.name == name], [c for c in containers if c.pod.name == name]
        self.call("ListPodSandbox", scope=Scope.POD, pod_uid=uid, pod=pod(name), sandboxes=tuple(mine[0]))
        self.call("ListContainers", scope=Scope.POD, pod_uid=uid, pod=pod(name), containers=tuple(mine[1]))
        if inspect:
            self.inspect(name, *mine)

    def pass_of(self, name: str):
        """The only pass of this pod."""
        (found,) = [p for p in self.passes.values() if p.pod.name == name]
        return found
