"""The runtime's stage: from what shims are asked and what programs run to steps, each joined to the call behind it."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tracer.facts import Answer, CriCall, CriEvent, Done, Named
from tracer.identity import Identity
from tracer.records import Closed, Data, Exec, Exit, Opened, Record
from tracer.runtime.causes import CAUSES, SANDBOX_METHODS
from tracer.runtime.exits import Exited, Exits
from tracer.runtime.joining import Joining, JoinStats
from tracer.runtime.programs import folder_of, program
from tracer.runtime.step import Step
from tracer.shimcalls import SANDBOX, TASK, ShimCall
from tracer.ttrpc import Ttrpc, TtrpcStats

MAX_OPEN = 8192
"""Steps that did not end, remembered at once: a storm has some hundred, but ends can be lost."""

MAX_RUNTIMES = 64
"""Processes of runtimes remembered; a node has one or two, and they restart."""

MAX_SHIMS = 4096
"""Shims remembered; one a pod."""

MAX_EXITS = 4096
"""Exits kept until they are asked for."""

MAX_PINNED = 256
"""Network namespaces remembered that no plugin has been given yet; it is given them some milliseconds later."""

FORGET_NS = 10_000_000_000
"""How often what is over is forgotten."""

QUIET = frozenset({
    "State", "Connect", "Stats", "Pids", "CloseIO", "ResizePty", "SandboxStatus", "PingSandbox", "Platform",
    "SandboxMetrics",
})  # fmt: skip
"""Questions to a shim that it answers from memory. One ExecSync asks ten times for the state."""

QUIET_NS = 10_000_000
"""A question that took longer is a step to be shown like any other; most take a tenth of a millisecond."""

_IN_SHIM = {
    "create": "Create", "start": "Start", "exec": "Start", "kill": "Kill", "delete": "Delete", "update": "Update",
    "pause": "Pause", "resume": "Resume", "checkpoint": "Checkpoint", "ps": "Pids",
}  # fmt: skip
"""In which call to its shim a verb of runc runs."""


class _Process(NamedTuple):
    """A program that runs: who started it, and where it lies."""

    step: Step
    ppid: int
    folder: str | None


@dataclass(slots=True)
class RuntimeStats:
    """`steps` that began; `evicted`: those forgotten before they ended."""

    steps: int = 0
    evicted: int = 0
    ttrpc: TtrpcStats = field(default_factory=TtrpcStats)
    joining: JoinStats = field(default_factory=JoinStats)


class Runtime:
    """Feed the records of ttrpc sockets and processes, and CRI events after identity completed their calls.

    Each method returns steps that were made or changed; a step may be there twice.
    """

    def __init__(self, identity: Identity) -> None:
        self.ttrpc = Ttrpc()
        self.stats = RuntimeStats(ttrpc=self.ttrpc.stats)
        self._identity = identity
        self._joining = Joining(identity)
        self.stats.joining = self._joining.stats
        self._exits = Exits(identity)
        self._new_exits: deque[Exited] = deque(maxlen=MAX_EXITS)
        self._open: OrderedDict[str, Step] = OrderedDict()
        self._calls: dict[str, ShimCall] = {}  # of open steps of kind shim, by step id
        self._asked: dict[str, list[Step]] = {}  # they, by the id they state
        self._processes: dict[int, _Process] = {}  # open steps that are programs
        self._pinned: OrderedDict[str, Step] = OrderedDict()  # by the network namespace they made
        self._runtimes: OrderedDict[int, None] = OrderedDict()  # process ids
        self._answered: OrderedDict[int, int] = OrderedDict()  # when each shim answered last, by process id
        self._forgot = 0

    # what others ask

    def open_steps(self) -> list[Step]:
        """Every step that did not end, as far as it got."""
        for name, call in self._calls.items():
            self._open[name].received = call.received
        return list(self._open.values())

    def steps_of(self, call: CriCall) -> list[Step]:
        """The steps of a call that is open or was over less than a minute ago, those within others included."""
        return self._joining.steps_of(call)

    def exited(self, container_id: str) -> Exited | None:
        """How a container ended, if it did lately."""
        return self._exits.of(container_id)

    def answered(self, shim: int) -> int | None:
        """When the shim with this process id answered last, whatever it was asked."""
        return self._answered.get(shim)

    def take_exits(self) -> list[Exited]:
        """Exits that are new or better known than when they were taken before."""
        taken = list(dict.fromkeys(self._new_exits))
        self._new_exits.clear()
        return taken

    # feeding

    def record(self, record: Record) -> list[Step]:
        """`Exec`, `Exit`, and the `Opened`, `Data` and `Closed` of ttrpc sockets; anything else gives nothing."""
        if isinstance(record, Exec):
            return self._executed(record)
        changed: list[Step] = []
        if isinstance(record, (Data, Opened, Closed, Exit)):
            for call in self.ttrpc.feed(record):
                self._shim(call, changed)
        if isinstance(record, Exit):
            changed += self._process_ended(record)
        return changed

    def cri(self, event: CriEvent) -> list[Step]:
        """A CRI call began, was answered, ended, or got another name."""
        call = event.call
        changed: list[Step] = []
        if isinstance(event, Named) and call.method not in CAUSES:
            changed += self._joining.unnamed(call)
        elif call.cri:
            self._is_runtime(call.rpc.peer.server_pid)
            if call.method in CAUSES:
                self._call(event, changed)
            elif call.method == "Exec" and isinstance(event, Done):
                self._joining.streams(call)
        for step in changed:
            self._describe(step)
        return [step for step in changed if step.shown]

    def _call(self, event: CriEvent, changed: list[Step]) -> None:
        call = event.call
        changed += self._joining.began(call)
        if isinstance(event, (Answer, Done, Named)):
            changed += self._joining.answered(call)
        if isinstance(event, (Done, Named)):
            changed += self._joining.ended(call)

    def tick(self, now: int) -> list[Step]:
        """Small questions that turn out to be slow, and steps whose call can be told only now."""
        changed: list[Step] = []
        for step in self.open_steps():
            if not step.shown and now - step.start > QUIET_NS:
                step.shown = True
                changed.append(step)
            if step.call is None:
                for each in self._joining.again(step):
                    self._describe(each)
                    changed.append(each)
        if now - self._forgot > FORGET_NS:
            self._forgot = now
            self._joining.forget(now)
        return [step for step in changed if step.shown]

    def _is_runtime(self, pid: int | None) -> None:
        if pid and pid not in self._runtimes:
            self._runtimes[pid] = None
            if len(self._runtimes) > MAX_RUNTIMES:
                self._runtimes.popitem(last=False)

    # shims

    def _shim(self, call: ShimCall, changed: list[Step]) -> None:
        if call.end is not None:
            exited = self._exits.shim(call)
            if exited is not None:
                self._new_exits.append(exited)
        if not call.service.startswith((TASK, SANDBOX)):
            return
        if call.answered is not None and call.server_pid:
            self._answered[call.server_pid] = call.answered
            if len(self._answered) > MAX_SHIMS:
                self._answered.popitem(last=False)
        if call.method == "Wait" and call.exec_id is None:
            return  # open for as long as the container runs, whoever waits for what
        step = self._open.get(call.name)
        if step is None:
            if call.end is None:
                self._shim_asked(call, changed)
            return
        step.pid, step.received = call.server_pid, call.received
        if call.end is None:
            return
        step.end, step.status, step.error = call.end, call.status, call.error
        if call.method == "Delete" and call.exec_id is not None and call.id is not None:
            self._joining.over(call.id, call.exec_id, call.end, call.exit_status)
        self._close(step)
        if call.method == "Delete" and call.exec_id is None and call.status == "OK":
            changed += self._moot(step)
        if step.end - step.start > QUIET_NS or step.status not in ("OK", None):
            step.shown = True
        if step.shown:
            self._describe(step)
            changed.append(step)

    def _moot(self, deleted: Step) -> list[Step]:
        """What else was asked about a task that is deleted now: shims leave such questions unanswered for ever."""
        moot = [each for each in self._asked.get(deleted.subject or "", ()) if each.exec_id is None]
        for each in moot:
            each.end = max(each.start, deleted.end or each.start)
            self._close(each)
            self._describe(each)
        return [each for each in moot if each.shown]

    def _shim_asked(self, call: ShimCall, changed: list[Step]) -> None:
        self._is_runtime(call.client_pid)
        step = Step(
            call.name, "shim", call.method, call.start, pid=call.server_pid, subject=call.id, exec_id=call.exec_id,
            shown=call.method not in QUIET,
        )  # fmt: skip
        self._calls[step.id] = call
        self._began(step)
        if call.exec_id is not None:
            joined = self._joining.add_in_session(step, call.exec_id, first=call.method == "Exec")
        elif call.namespaced or call.method != "State":
            joined = self._joining.add(step)
        else:
            # Asked for by a client of containerd's own API: the CRI's questions state the namespace (1.6 to 2.1).
            joined = []
        for each in (step, *joined):
            self._describe(each)
            if each.shown:
                changed.append(each)

    # programs

    def _executed(self, record: Exec) -> list[Step]:
        before = self._processes.get(record.pid)
        if before is not None:
            if before.ppid == record.ppid:
                return []  # a wrapper that became what it wraps
            self._close(before.step)  # its end was lost, and its process id is used again
        above = self._processes.get(record.ppid)
        parent, folder = (above.step, above.folder) if above is not None else (None, None)
        found = program(record, parent, of_runtime=record.ppid in self._runtimes, folder=folder)
        if found is None:
            return []
        # The runtime waits from the fork on (CLONE_VFORK), and on a busy disk the program is long in coming.
        begin = min(record.time, record.forked or record.time)
        step = Step(
            f"{record.pid}-{record.time}", found.kind, found.name, begin, pid=record.pid, command=found.command,
            subject=found.id, exec_id=found.exec_id,
        )  # fmt: skip
        self._processes[record.pid] = _Process(step, record.ppid, folder_of(record))
        self._began(step)
        if parent is None and found.kind == "runc":
            parent = self._asked_of_shim(step, record.ppid)
        if parent is not None:
            joined = self._joining.add_child(step, parent)
        elif found.session:
            joined = self._joining.add_in_session(step, found.exec_id or step.id, first=True)
        else:
            joined = self._joining.add(step, pod_uid=found.pod_uid)
        if found.netns is not None:
            joined += self._in_namespace(step, found.netns)
        for each in (step, *joined):
            self._describe(each)
        return [step, *joined]

    def _in_namespace(self, step: Step, netns: str) -> list[Step]:
        """CRI-O's pinns makes a network namespace for a sandbox that only the plugins' environment names."""
        if step.kind != "cni":
            self._pinned[netns] = step
            if len(self._pinned) > MAX_PINNED:
                self._pinned.popitem(last=False)
            return []
        pinned = self._pinned.pop(netns, None)
        if pinned is None or step.subject is None:
            return []
        return self._joining.about(pinned, step.subject)

    def _asked_of_shim(self, step: Step, shim: int) -> Step | None:
        """The call to its shim that runc works for."""
        method = _IN_SHIM.get(step.name)
        found = [
            asked
            for asked in self._asked.get(step.subject or "", ())
            if asked.name == method and asked.exec_id == step.exec_id and asked.pid in (shim, None)
        ]
        return found[0] if len(found) == 1 else None

    def _process_ended(self, record: Exit) -> list[Step]:
        exited = self._exits.process(record)
        if exited is not None:
            self._new_exits.append(exited)
        process = self._processes.get(record.pid)
        if process is None:
            return []
        step = process.step
        step.end = max(record.time, step.start)
        step.signal = record.code & 0x7F or None
        step.exit_code = None if step.signal else record.code >> 8 & 0xFF
        if step.name == "conmon" and step.subject is not None:
            self._joining.over(step.subject, step.id, step.end, None)
        self._close(step)
        self._describe(step)
        return [step]

    # any step

    def _began(self, step: Step) -> None:
        self.stats.steps += 1
        self._open[step.id] = step
        if step.kind == "shim" and step.subject is not None:
            self._asked.setdefault(step.subject, []).append(step)
        if len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open.values())))
            self.stats.evicted += 1

    def _close(self, step: Step) -> None:
        """It is not open any longer."""
        self._open.pop(step.id, None)
        if self._calls.pop(step.id, None) is not None:
            asked = self._asked.get(step.subject or "")
            if asked is not None:
                asked.remove(step)
                if not asked:
                    del self._asked[step.subject or ""]
        elif step.pid is not None and (process := self._processes.get(step.pid)) and process.step is step:
            del self._processes[step.pid]

    def _describe(self, step: Step) -> None:
        """Whose the step is, as far as known by now."""
        subject, call = step.subject, step.call
        if subject is not None and step.container is None:
            known = self._identity.containers.get(subject)
            if known is not None:
                step.container_id, step.container, step.pod = subject, known.container, known.pod
                step.sandbox_id = known.sandbox_id or step.sandbox_id
            elif subject in self._identity.sandboxes:
                step.container_id, step.sandbox_id, step.pod = None, subject, self._identity.sandboxes[subject]
            elif step.kind == "cni" or (call is not None and call.method in SANDBOX_METHODS):
                step.container_id, step.sandbox_id = None, subject
            else:
                step.container_id = subject
        if call is not None:
            if step.pod is None:
                step.pod = call.pod
            if step.sandbox_id is None:
                step.sandbox_id = call.sandbox_id
