"""The node's own events: kubelets that start, runtimes that stop and start, processes killed for want of memory."""

from dataclasses import dataclass
from typing import Literal

from tracer.facts import Container, Pod
from tracer.records import OomKill
from tracer.streams import Peer

NodeEventKind = Literal["kubelet_started", "runtime_stopped", "runtime_started", "oom_kill", "clock_step"]

MAX_PATHS = 256
"""Sockets of runtimes remembered; a node has one or two."""


@dataclass(slots=True, eq=False)
class NodeEvent:
    """`text` is the event in a sentence; `pid`, `comm`: the kubelet, the runtime, or the killed process."""

    id: str
    time: int
    kind: NodeEventKind
    text: str
    runtime: str | None = None
    pid: int | None = None
    comm: str | None = None
    pod: Pod | None = None
    container_id: str | None = None


@dataclass(slots=True)
class _Runtime:
    pid: int = 0
    comm: str = ""
    open: int = 0  # connections
    stopped: int | None = None  # since when
    started: int | None = None  # when it answered first after it had been another, or stopped


class Servers:
    """Which process serves each runtime's socket. Feed connections as they are met, used and left."""

    def __init__(self) -> None:
        self._runtimes: dict[str, _Runtime] = {}

    def joined(self, peer: Peer) -> None:
        runtime = self._runtimes.get(peer.path)
        if runtime is None:
            if len(self._runtimes) >= MAX_PATHS:
                del self._runtimes[next(iter(self._runtimes))]
            runtime = self._runtimes[peer.path] = _Runtime()
        runtime.open += 1

    def served(self, peer: Peer, time: int) -> list[NodeEvent]:
        """A server answered on this connection at `time`."""
        runtime = self._runtimes.get(peer.path)
        if runtime is None or not peer.server_pid or (runtime.pid == peer.server_pid and runtime.stopped is None):
            return []
        before = runtime.pid
        if runtime.stopped is not None and time < runtime.stopped:
            return []  # its last answers, told late
        runtime.pid, runtime.comm, runtime.stopped = peer.server_pid, peer.server_comm, None
        if not before:
            return []  # the first one we meet
        runtime.started = time
        name = peer.server_comm or "the runtime"
        again = "again" if before == peer.server_pid else f"instead of process {before}"
        text = f"{name} (process {peer.server_pid}) serves {peer.path} {again}."
        return [
            NodeEvent(
                f"runtime_started-{peer.server_pid}-{time}", time, "runtime_started", text, peer.path,
                peer.server_pid, peer.server_comm or None,
            )
        ]  # fmt: skip

    def left(self, peer: Peer, time: int, *, by_server: bool) -> list[NodeEvent]:
        """A connection ended; a runtime has stopped when the last is ended by the server's side."""
        runtime = self._runtimes.get(peer.path)
        if runtime is None:
            return []
        runtime.open = max(0, runtime.open - 1)
        if runtime.open or not by_server or not runtime.pid or runtime.stopped is not None:
            return []
        return [_stopped(peer.path, runtime, time, f"closed its last connection on {peer.path}")]

    def exited(self, pid: int, time: int) -> list[NodeEvent]:
        """A process ended; it may have been a runtime."""
        return [
            _stopped(path, runtime, time, f"ended; nobody serves {path}")
            for path, runtime in self._runtimes.items()
            if runtime.pid == pid and runtime.stopped is None
        ]

    def down(self, path: str) -> int | None:
        """Since when nobody serves `path`; None when somebody does, or nobody is known to have."""
        runtime = self._runtimes.get(path)
        return None if runtime is None else runtime.stopped

    def changed(self, path: str, since: int) -> bool:
        """Whether the runtime at `path` is down, or came back at or after `since`."""
        runtime = self._runtimes.get(path)
        if runtime is None:
            return False
        return runtime.stopped is not None or (runtime.started is not None and runtime.started >= since)


def _stopped(path: str, runtime: _Runtime, time: int, what: str) -> NodeEvent:
    runtime.stopped = time
    text = f"{runtime.comm or 'The runtime'} (process {runtime.pid}) {what}."
    ident = f"runtime_stopped-{runtime.pid}-{time}"
    return NodeEvent(ident, time, "runtime_stopped", text, path, runtime.pid, runtime.comm or None)


def kubelet_started(peer: Peer, time: int) -> NodeEvent:
    """A kubelet process makes its first call, on a connection seen from its first byte."""
    return NodeEvent(
        f"kubelet_started-{peer.client_pid}-{time}", time, "kubelet_started",
        f"{peer.client_comm} (process {peer.client_pid}) makes its first call to {peer.path}.",
        peer.path, peer.client_pid, peer.client_comm,
    )  # fmt: skip


def oom_kill(record: OomKill, pod: Pod | None, container: Container | None) -> NodeEvent:
    """A process was killed for want of memory; `pod`, `container`: whose it was, None where that is not certain."""
    whose = f" of container {container.name}" if container else ""
    whose += f" in pod {pod.namespace}/{pod.name}" if pod else ""
    resident = sum(each or 0 for each in (record.anon_bytes, record.file_bytes, record.shmem_bytes))
    size = f", {resident >> 20} MiB resident," if record.anon_bytes is not None else ""
    text = f"{record.comm or 'A process'} (process {record.pid}){whose}{size} was killed for want of memory."
    return NodeEvent(
        f"oom_kill-{record.pid}-{record.time}", record.time, "oom_kill", text, None, record.pid, record.comm or None,
        pod, container.id if container else None,
    )  # fmt: skip


def clock_step(time: int, step_ns: int) -> NodeEvent:
    """The wall clock was set: `step_ns` is by how much, negative backwards."""
    text = f"The wall clock was set {'forward' if step_ns > 0 else 'back'} by {abs(step_ns) / 1e9:.3f} s."
    return NodeEvent(f"clock_step-{time}", time, "clock_step", text)
