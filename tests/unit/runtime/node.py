"""A node by hand: a kubelet's calls, shims' bytes and programs, given to `Runtime` in the order they happen in."""

from dataclasses import dataclass, field

from tests.unit.wire.shim import Shim
from tracer.calls import Call
from tracer.facts import Answer, Container, CriCall, Done, Named, Pod, Sent
from tracer.identity import Identity
from tracer.records import Exec, Exit
from tracer.runtime.exits import Exited
from tracer.runtime.runtime import Runtime
from tracer.runtime.step import Step
from tracer.streams import Peer

MS = 1_000_000
S = 1_000 * MS
KUBELET, CONTAINERD, SHIM = 100, 200, 8413
PEER = Peer("c1", "/run/containerd/containerd.sock", KUBELET, "kubelet", CONTAINERD, "containerd")
EVENTS_SOCKET = "/run/containerd/containerd.sock.ttrpc"


def pod(name: str) -> Pod:
    return Pod("default", name, f"uid-{name}")


@dataclass
class Node:
    """Every operation takes a millisecond. `steps`: what was shown, by id."""

    now: int = 100 * S
    stream: int = -1
    pid: int = 20_000
    identity: Identity = field(default_factory=Identity)
    steps: dict[str, Step] = field(default_factory=dict)
    exits: dict[str, Exited] = field(default_factory=dict)
    shims: dict[int, Shim] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runtime = Runtime(self.identity)

    def _note(self, steps: list[Step]) -> None:
        self.steps.update((step.id, step) for step in steps)
        self.exits.update((each.container_id, each) for each in self.runtime.take_exits())

    def wait(self, ns: int) -> None:
        self.now += ns
        self._note(self.runtime.tick(self.now))

    # the kubelet

    def ask(self, method: str, *, read: bool = True, name: str | None = None, **facts: object) -> CriCall:
        """A request the runtime reads at once. `name` None: named by its header."""
        self.stream += 2
        self.now += MS
        rpc = Call(PEER, self.stream, self.now, f"/runtime.v1.RuntimeService/{method}", sent=self.now)
        rpc.received = self.now if read else None
        call = CriCall(rpc, "runtime.v1.RuntimeService", method, "v1", "header")
        for fact, value in facts.items():
            setattr(call, fact, value)
        if name != "late":
            self._cri(Sent(call, self.now))
        return call

    def answer(self, call: CriCall, status: str = "OK", **facts: object) -> None:
        self.now += MS
        call.rpc.answered = call.rpc.end = self.now
        call.rpc.status, call.rpc.ended_by = status, "server"
        for fact, value in facts.items():
            setattr(call, fact, value)
        if status == "OK":
            self._cri(Answer(call, self.now))
        self._cri(Done(call, self.now))

    def renamed(self, call: CriCall, method: str | None) -> None:
        call.method = method
        self._cri(Named(call, self.now))

    def _cri(self, event) -> None:
        self.identity.feed(event)
        self._note(self.runtime.cri(event))

    def knows(self, sandbox_id: str, name: str, *container_ids: str) -> None:
        """Lists have shown a sandbox and containers of it."""
        call = self.ask("PodSandboxStatus", sandbox_id=sandbox_id, pod=pod(name))
        self.answer(call)
        for ident in container_ids:
            made = self.ask(
                "ContainerStatus", sandbox_id=sandbox_id, pod=pod(name), container_id=ident,
                container=Container(ident, "main", 0),
            )  # fmt: skip
            self.answer(made)

    # the shims

    def shim(self, pid: int = SHIM) -> Shim:
        if pid not in self.shims:
            self.shims[pid] = Shim(
                connection=f"t{pid}", path=f"/run/containerd/s/{pid}", server=(pid, "containerd-shim")
            )
        return self.shims[pid]

    def events(self) -> Shim:
        if 0 not in self.shims:
            self.shims[0] = Shim(
                connection="events", path=EVENTS_SOCKET, client=(SHIM, "containerd-shim"),
                server=(CONTAINERD, "containerd"),
            )  # fmt: skip
        return self.shims[0]

    def _told(self, shim: Shim) -> None:
        for record in shim.records:
            self._note(self.runtime.record(record))
        shim.records.clear()

    def shim_ask(self, method: str, *ids: str, shim: int = SHIM, **options: object) -> tuple[Shim, int]:
        self.now += MS
        one = self.shim(shim)
        one.time = self.now
        stream = one.ask(method, *ids, **options)
        self._told(one)
        return one, stream

    def shim_answer(self, asked: tuple[Shim, int], payload: bytes = b"", **options: object) -> None:
        self.now += MS
        one, stream = asked
        one.time = self.now
        one.answer(stream, payload, **options)
        self._told(one)
        self.now = one.time

    def shim_call(self, method: str, *ids: str, shim: int = SHIM, payload: bytes = b"", **options: object) -> str:
        """A whole call; returns its step's id."""
        asked = self.shim_ask(method, *ids, shim=shim, **options)
        self.shim_answer(asked, payload)
        return f"{asked[0].connection}-{asked[1]}"

    def tell(self, topic: str, *fields: tuple[int, int | str]) -> int:
        """A shim's event; returns when the runtime had read it."""
        self.now += MS
        one = self.events()
        one.time = self.now
        one.tell(topic, *fields)
        read = one.records[1].time
        self._told(one)
        self.now = one.time
        return read

    # programs

    def run(self, *argv: str, ppid: int = CONTAINERD, comm: str | None = None, **env: str) -> int:
        """A program begins; returns its process id."""
        self.pid += 1
        self.again(self.pid, *argv, ppid=ppid, comm=comm, **env)
        return self.pid

    def again(
        self,
        pid: int,
        *argv: str,
        ppid: int = CONTAINERD,
        comm: str | None = None,
        forked: int | None = None,
        **env: str,
    ) -> None:
        """A process executes a program (once more)."""
        self.now += MS
        name = argv[0].rpartition("/")[2][:15] if comm is None else comm
        self._note(self.runtime.record(Exec(self.now, pid, ppid, name, list(argv), env, forked)))

    def exit(self, pid: int, code: int = 0) -> None:
        self.now += MS
        self._note(self.runtime.record(Exit(self.now, pid, CONTAINERD, "x", code)))

    def program(self, pid: int) -> Step:
        """The step of a process."""
        (found,) = [step for step in self.steps.values() if step.pid == pid and step.kind != "shim"]
        return found

    # what is there

    def of(self, call: CriCall) -> list[tuple[str, str]]:
        """(kind, name) of the call's steps, in the order of their beginning."""
        return [(s.kind, s.name) for s in sorted(self.runtime.steps_of(call), key=lambda step: step.start)]


def runc(verb: str, *rest: str) -> list[str]:
    return [
        "runc",
        "--root",
        "/run/containerd/runc/k8s.io",
        "--log",
        "/x/log.json",
        "--log-format",
        "json",
        verb,
        *rest,
    ]


def shim_start(ident: str) -> list[str]:
    return [
        "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", "/run/containerd/containerd.sock",
        "-publish-binary", "/usr/bin/containerd", "-id", ident, "start",
    ]  # fmt: skip


def cni(command: str, sandbox_id: str, name: str, netns: str = "/var/run/netns/cni-1") -> dict[str, str]:
    return {
        "CNI_COMMAND": command, "CNI_CONTAINERID": sandbox_id, "CNI_NETNS": netns, "CNI_IFNAME": "eth0",
        "CNI_ARGS": f"K8S_POD_NAME={name};IgnoreUnknown=1;K8S_POD_UID=uid-{name};K8S_POD_NAMESPACE=default",
    }  # fmt: skip
