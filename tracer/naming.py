"""Naming: methods of calls on connections older than the tracer.

Go's encoder indexes `:path` once, so on an old connection a method is only "entry -7 of the header table", for good.
But each such entry stands for one method: what one call proves (`tracer.proofs`), or what a call did to the runtime's
lists, names all calls of its entry, also those seen before. Evidence against takes the name back.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from tracer.facts import CREATED, EXITED, RUNNING, CriCall, Scope
from tracer.headers import Old
from tracer.proofs import Evidence, by_elimination, contradicts, only_id, proven

MAX_ENTRIES = 4096
"""Entries remembered: a connection refers to about twenty."""

MAX_HELD = 512
"""Calls of one entry remembered, to be named (or un-named) afterwards."""

MAX_KNOWN = 32_768
"""Ids of one runtime remembered."""

MAX_CHANGES = 8
"""Calls of one id remembered until the next list; two, when all goes well."""

_CHANGING = frozenset({"StartContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"})

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of a message looked at for a proof; a list of 2,000 pods."""

READY, NOT_READY = 0, 1  # runtime.v1.PodSandboxState

Slot = tuple[str, Old]
"""A connection and one of its old entries."""


@dataclass(slots=True)
class Entry:
    """What is known of one old entry. `method` None while unproven; `spoiled`: proofs contradicted each other."""

    method: str | None = None
    spoiled: bool = False
    calls: deque[CriCall] = field(default_factory=lambda: deque(maxlen=MAX_HELD))
    idents: deque[tuple[CriCall, str]] = field(default_factory=lambda: deque(maxlen=MAX_HELD))  # asked for one id only


@dataclass(slots=True)
class _Change:
    """A call that asked for one id and got an empty answer; what it did shows in the next lists.

    `method` None while its entry (`slot`) is unproven; `slot` None when it was named by its header.
    """

    slot: Slot | None
    method: str | None
    begun: int
    ended: int


class _Runtime:
    """One runtime's sandboxes and containers as lists showed them, and the calls that changed them."""

    def __init__(self) -> None:
        self.containers: OrderedDict[str, tuple[int, int]] = OrderedDict()  # id -> (state, when the list was asked for)
        self.sandboxes: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self.changes: OrderedDict[str, list[_Change]] = OrderedDict()  # by id
        self.known: OrderedDict[str, None] = OrderedDict()  # container ids ever seen
        self.old = False  # some connection to it is older than the tracer

    def know(self, ident: str) -> None:
        self.known[ident] = None
        if len(self.known) > MAX_KNOWN:
            self.known.popitem(last=False)

    def note(self, ident: str, change: _Change) -> None:
        changes = self.changes.setdefault(ident, [])
        changes.append(change)
        del changes[:-MAX_CHANGES]
        if len(self.changes) > MAX_KNOWN:
            self.changes.popitem(last=False)


@dataclass(slots=True)
class NamingStats:
    """`proven`: entries named; `withdrawn`: names taken back."""

    proven: int = 0
    withdrawn: int = 0


class Naming:
    """Tell it every finished call; it says which entries got a name, or lost it."""

    def __init__(self) -> None:
        self.stats = NamingStats()
        self._entries: OrderedDict[Slot, Entry] = OrderedDict()
        self._runtimes: dict[str, _Runtime] = {}
        self._deadlines: OrderedDict[tuple[str, int], dict[int, int]] = OrderedDict()
        self._named: dict[tuple[str, int, str], Slot] = {}  # (connection, epoch, method) -> the entry that is it

    def method(self, connection: str, old: Old) -> str | None:
        """The method an old entry stands for, if proven."""
        entry = self._entries.get((connection, old))
        return entry.method if entry else None

    def calls(self, slot: Slot) -> list[CriCall]:
        """The calls of an entry, oldest first."""
        return list(self._entries[slot].calls)

    def finished(self, call: CriCall, request: bytes | None, response: bytes | None) -> list[Slot]:
        """Entries whose method changed by what this call shows; the messages are None when not seen whole."""
        changed: list[Slot] = []
        old = call.rpc.old_path
        runtime = self._runtimes.setdefault(call.rpc.peer.path, _Runtime())
        if old is not None:
            runtime.old = True
        elif not runtime.old:
            return changed  # every connection is known from its start: nothing to infer
        if call.rpc.deadline_ns is not None:
            self._note_deadline(call)
        if old is not None:
            slot = (call.rpc.peer.connection, old)
            entry = self._entry(slot)
            entry.calls.append(call)
            ident = only_id(request) if request is not None and entry.method is None else None
            if ident is not None:
                entry.idents.append((call, ident))
            if request is not None and not entry.spoiled:
                if entry.method is None:
                    self._look(call, slot, entry, runtime, request, response, ident, changed)
                elif contradicts(entry.method, request):
                    self._withdraw(slot, entry, changed)
        return changed

    def learn(self, call: CriCall) -> list[Slot]:
        """Entries whose method shows in what a named, finished call did or listed."""
        changed: list[Slot] = []
        runtime = self._runtimes.get(call.rpc.peer.path)
        if runtime is not None and runtime.old:
            self._learn(call, runtime, changed)
        return changed

    def _entry(self, slot: Slot) -> Entry:
        entry = self._entries.get(slot)
        if entry is None:
            entry = self._entries[slot] = Entry()
            if len(self._entries) > MAX_ENTRIES:
                gone, _ = self._entries.popitem(last=False)
                self._named = {key: named for key, named in self._named.items() if named != gone}
        return entry

    # one call's own evidence

    def _look(
        self,
        call: CriCall,
        slot: Slot,
        entry: Entry,
        runtime: _Runtime,
        request: bytes,
        response: bytes | None,
        ident: str | None,
        changed: list[Slot],
    ) -> None:
        if response is None or len(response) > MAX_MESSAGE:
            return
        evidence = Evidence(
            request,
            response,
            _succeeded(call),
            call.rpc.deadline_ns,
            self._usual_deadline(call),
            runtime.known,
            runtime.sandboxes,
        )
        method = proven(evidence) or by_elimination(request, self._taken(slot))
        if method is not None:
            self._name(slot, entry, method, changed)
            return
        if ident is not None and not response and _succeeded(call) and call.rpc.end is not None:
            runtime.note(ident, _Change(slot, None, call.rpc.start, call.rpc.end))

    def _name(self, slot: Slot, entry: Entry, method: str, changed: list[Slot]) -> None:
        connection, old = slot
        key = (connection, old.epoch, method)
        other = self._named.get(key)
        if other is not None and other != slot:
            # Two entries of one table cannot be one path: one proof is wrong, and nothing says which.
            entry.spoiled = True
            self._withdraw(other, self._entries[other], changed)
            return
        self._named[key] = slot
        entry.method = method
        for call, ident in entry.idents:
            _state(call, method, ident)
        self.stats.proven += 1
        changed.append(slot)

    def _taken(self, slot: Slot) -> set[str]:
        """Methods that other entries of the same table stand for."""
        connection, old = slot
        return {method for name, epoch, method in self._named if name == connection and epoch == old.epoch}

    def _withdraw(self, slot: Slot, entry: Entry, changed: list[Slot]) -> None:
        connection, old = slot
        self._named.pop((connection, old.epoch, entry.method or ""), None)
        entry.method = None
        for call, _ in entry.idents:
            _state(call, None, None)
        entry.idents.clear()
        entry.spoiled = True
        self.stats.withdrawn += 1
        changed.append(slot)

    def _note_deadline(self, call: CriCall) -> None:
        client = (call.rpc.peer.path, call.rpc.peer.client_pid)
        counts = self._deadlines.setdefault(client, {})
        deadline = round((call.rpc.deadline_ns or 0) / 1e9)
        if deadline in counts or len(counts) < 64:
            counts[deadline] = counts.get(deadline, 0) + 1
        if len(self._deadlines) > MAX_ENTRIES:
            self._deadlines.popitem(last=False)

    def _usual_deadline(self, call: CriCall) -> int | None:
        """The deadline most calls of this client have (`runtimeRequestTimeout`), ns."""
        counts = self._deadlines.get((call.rpc.peer.path, call.rpc.peer.client_pid))
        return max(counts, key=lambda seconds: counts[seconds]) * 1_000_000_000 if counts else None

    # what lists show of calls before them

    def _learn(self, call: CriCall, runtime: _Runtime, changed: list[Slot]) -> None:
        if call.rpc.status != "OK":
            return
        ident = call.container_id or call.sandbox_id
        if call.method in _CHANGING and ident and call.rpc.end is not None:
            runtime.note(ident, _Change(None, call.method, call.rpc.start, call.rpc.end))
        if call.method == "CreateContainer" and call.container_id:
            runtime.know(call.container_id)
            runtime.containers[call.container_id] = (CREATED, call.rpc.end or call.rpc.start)
        elif call.method == "RunPodSandbox" and call.sandbox_id:
            runtime.sandboxes[call.sandbox_id] = (READY, call.rpc.end or call.rpc.start)
        elif call.method == "ListContainers" and call.scope is Scope.ALL and call.containers is not None:
            states = {item.id: item.state for item in call.containers}
            for ident in states:
                runtime.know(ident)
            self._compare(call, runtime, runtime.containers, states, changed)
        elif call.method == "ListPodSandbox" and call.scope is Scope.ALL and call.sandboxes is not None:
            ready = {item.id: READY if item.ready else NOT_READY for item in call.sandboxes}
            self._compare(call, runtime, runtime.sandboxes, ready, changed)

    def _compare(
        self,
        call: CriCall,
        runtime: _Runtime,
        before: OrderedDict[str, tuple[int, int]],
        after: dict[str, int],
        changed: list[Slot],
    ) -> None:
        """What changed from the list before to this one, and the calls in between that did it."""
        asked = call.rpc.start
        methods_of = _container_methods if before is runtime.containers else _sandbox_methods
        for ident, (state, when) in list(before.items()):
            now = after.get(ident)
            if now != state:
                between = [c for c in runtime.changes.get(ident, ()) if c.begun > when and c.ended < asked]
                for change, method in methods_of(state, now, between):
                    entry = self._entries.get(change.slot) if change.slot else None
                    if change.slot and entry is not None and entry.method is None and not entry.spoiled:
                        self._name(change.slot, entry, method, changed)
            if now is None:
                del before[ident]
                runtime.changes.pop(ident, None)
        for ident, state in after.items():
            before[ident] = (state, asked)
            if len(before) > MAX_KNOWN:
                before.popitem(last=False)


_OF_CONTAINERS = frozenset({"StartContainer", "RemoveContainer", "ContainerStatus"})
_OF_SANDBOXES = frozenset({"StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus"})


def _state(call: CriCall, method: str | None, ident: str | None) -> None:
    """What the id means that a call asked for, whose method is known only now (or no more)."""
    call.container_id = ident if method in _OF_CONTAINERS else None
    call.sandbox_id = ident if method in _OF_SANDBOXES else None
    if method is None:
        call.pod = call.container = None


def _succeeded(call: CriCall) -> bool:
    """Every method that is asked about here is unary: with a message in the answer there was no error."""
    grpc = call.rpc
    return grpc.status == "OK" or (grpc.status is None and grpc.ended_by == "server" and grpc.responses == 1)


Named = list[tuple[_Change, str]]


def _container_methods(state: int, now: int | None, changes: list[_Change]) -> Named:
    if len(changes) != 1 or changes[0].method is not None:
        return []
    if state == EXITED and now is None:
        # All that is done to an exited container; a running one's log may be reopened, for example.
        return [(changes[0], "RemoveContainer")]
    if state == CREATED and now in (RUNNING, EXITED):
        return [(changes[0], "StartContainer")]
    return []


def _sandbox_methods(state: int, now: int | None, changes: list[_Change]) -> Named:
    """The kubelet removes no sandbox that it did not stop just before (`kuberuntime_gc.go:removeSandbox`)."""
    if now == NOT_READY and state == READY and len(changes) == 1 and changes[0].method is None:
        return [(changes[0], "StopPodSandbox")]
    if now is None and len(changes) == len(_STOP_AND_REMOVE):
        pairs = list(zip(changes, _STOP_AND_REMOVE, strict=True))
        distinct = changes[0].slot is None or changes[0].slot != changes[1].slot
        if distinct and all(change.method in (None, method) for change, method in pairs):
            return [pair for pair in pairs if pair[0].method is None]
    return []


_STOP_AND_REMOVE = ("StopPodSandbox", "RemovePodSandbox")
