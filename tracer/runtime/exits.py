"""Exits: when a container's own process ended, and when the runtime knew."""

from collections import OrderedDict
from dataclasses import dataclass

from tracer.facts import Container, Pod
from tracer.identity import Identity
from tracer.records import Exit
from tracer.shimcalls import ShimCall

MAX_RUNNING = 16_384
"""Containers' processes remembered; nodes run some hundreds."""

MAX_EXITS = 1024
"""Exits remembered; a crash loop adds one a minute at most after its first ones."""


@dataclass(slots=True, eq=False)
class Exited:
    """A container (or a sandbox) whose process ended. Times are monotonic ns, None where not seen.

    `died_at`: the process ended; `noticed_at`: the runtime had read the shim's word of it; `handled_at`: the runtime
    had deleted the task, and from then on its lists show the container as exited. `exit_status` is as the runtime
    tells it: 128 + signal where a signal ended the process. `oom`: the shim told of a kill for want of memory.
    """

    container_id: str
    pid: int | None
    exit_status: int | None = None
    died_at: int | None = None
    noticed_at: int | None = None
    handled_at: int | None = None
    oom: bool = False
    pod: Pod | None = None
    container: Container | None = None


class Exits:
    """Feed the calls of shims and the ends of processes; each returns the exit that is new or better known."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._running: OrderedDict[int, str] = OrderedDict()  # container id by process id
        self._killed: OrderedDict[str, None] = OrderedDict()  # containers with a kill for want of memory
        self._exits: OrderedDict[str, Exited] = OrderedDict()

    def of(self, container_id: str) -> Exited | None:
        """How the container ended, if it did lately."""
        return self._exits.get(container_id)

    def shim(self, call: ShimCall) -> Exited | None:
        """A call to or from a shim was answered."""
        if call.id is None or call.exec_id is not None:
            return None
        if call.topic is not None:
            return self._event(call, call.id)
        if call.method == "Delete" and call.status == "OK":
            return self._deleted(call, call.id)
        if call.method in ("Create", "Connect", "State") and call.pid:
            self._runs(call.pid, call.id)
        return None

    def process(self, record: Exit) -> Exited | None:
        """A process ended."""
        container_id = self._running.pop(record.pid, None)
        if container_id is None:
            return None
        exited = self._exit(container_id, record.pid)
        exited.died_at = record.time
        if exited.exit_status is None:
            signal = record.code & 0x7F
            exited.exit_status = 128 + signal if signal else record.code >> 8 & 0xFF
        return exited

    def _runs(self, pid: int, container_id: str) -> None:
        if container_id in self._exits:
            return  # what a list of questions still says of it
        self._running[pid] = container_id
        if len(self._running) > MAX_RUNNING:
            self._running.popitem(last=False)

    def _event(self, call: ShimCall, container_id: str) -> Exited | None:
        if call.topic in ("/tasks/create", "/tasks/start") and call.pid:
            self._runs(call.pid, container_id)
        elif call.topic == "/tasks/oom":
            self._killed[container_id] = None
            if len(self._killed) > MAX_EXITS:
                self._killed.popitem(last=False)
            exited = self._exits.get(container_id)
            if exited is not None:
                exited.oom = True
            return exited
        elif call.topic == "/tasks/exit":
            exited = self._exit(container_id, call.pid)
            exited.exit_status = call.exit_status
            exited.noticed_at = call.received if call.received is not None else call.answered
            return exited
        return None

    def _deleted(self, call: ShimCall, container_id: str) -> Exited:
        exited = self._exit(container_id, call.pid)
        if exited.handled_at is None:
            exited.handled_at = call.end
        if exited.exit_status is None:
            exited.exit_status = call.exit_status
        return exited

    def _exit(self, container_id: str, pid: int | None) -> Exited:
        exited = self._exits.get(container_id)
        if exited is None:
            exited = self._exits[container_id] = Exited(container_id, pid, oom=container_id in self._killed)
            if len(self._exits) > MAX_EXITS:
                self._exits.popitem(last=False)
        if exited.pod is None:
            known = self._identity.containers.get(container_id)
            if known is not None:
                exited.pod, exited.container = known.pod, known.container
            else:
                exited.pod = self._identity.sandboxes.get(container_id)
        return exited
