"""CRI calls: names gRPC calls, takes the facts of their messages, and lets the messages go."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from google.protobuf.message import DecodeError

from tracer import plugins, rpc
from tracer.facts import STREAMS, Answer, CriCall, CriEvent, Done, Named, Scope, Sent
from tracer.naming import Naming, NamingStats, Slot
from tracer.paths import is_plugin
from tracer.rpc import Call, Event, Message
from tracer.schema import METHODS, NOTHING, command, read_containers, read_request, read_response, read_sandboxes, unary
from tracer.texts import redact

MAX_HELD_BYTES = 16 * 1024 * 1024
"""Of answers of calls that have no name yet, all together; beyond it they are named without their answers' facts."""


@dataclass(slots=True)
class CriStats:
    """`named`, `inferred`, `unnamed`: calls by how their method is known; `unparsed`: messages that are not it."""

    named: int = 0
    inferred: int = 0
    unnamed: int = 0
    foreign: int = 0
    unparsed: int = 0
    naming: NamingStats = field(default_factory=NamingStats)


class Cri:
    """Feed gRPC events, get CRI events; calls of other services pass with their names and sizes only."""

    def __init__(self) -> None:
        self.naming = Naming()
        self.stats = CriStats(naming=self.naming.stats)
        self._calls: dict[int, CriCall] = {}  # open ones, by id() of their gRPC call
        self._lists: dict[tuple[str, str, Scope | None], tuple[bytes, Any]] = {}
        self._items: dict[tuple[str, str], Mapping[str, Any]] = {}  # of the latest whole list, by id
        self._answers: dict[int, bytes] = {}  # first answers of open calls without a name
        self._answer_bytes = 0

    def open_calls(self) -> list[CriCall]:
        """Every call that has not ended."""
        return list(self._calls.values())

    def feed(self, event: Event) -> list[CriEvent]:
        if isinstance(event, rpc.Opened):
            self._calls[id(event.call)] = self._name(event.call)
            return []
        if isinstance(event, (rpc.Joined, rpc.Left)):
            return []
        call = self._calls.get(id(event.call))
        if call is None:
            return []
        if isinstance(event, rpc.Requested):
            if call.method is None:
                return []
            self._request(call)
            return [Sent(call, event.time)]
        if isinstance(event, rpc.Responded):
            return self._answer(call, event.message, event.time)
        del self._calls[id(event.call)]
        return self._finished(call, event.time)

    # names

    def _name(self, call: Call) -> CriCall:
        if call.path is None:
            named = call.old_path is not None and not is_plugin(call.peer.path)
            method = self.naming.method(call.peer.connection, call.old_path) if named and call.old_path else None
            if method is None:
                self.stats.unnamed += 1
                return CriCall(call, None, None, None, "unknown")
            self.stats.inferred += 1
            return CriCall(call, None, method, None, "inferred")
        service, _, method = call.path[1:].rpartition("/")
        api: Literal["v1", "v1alpha2"] | None = None
        if service.startswith("runtime.v1."):
            api = "v1"
        elif service.startswith("runtime.v1alpha2."):
            api = "v1alpha2"
        if api is None:
            self.stats.foreign += 1
        else:
            self.stats.named += 1
        return CriCall(call, service, method, api, "header")

    def _finished(self, call: CriCall, time: int) -> list[CriEvent]:
        request = call.rpc.request
        answer = self._answers.pop(id(call), None)
        if answer is not None:
            self._answer_bytes -= len(answer)
        changed: list[Slot] = []
        if call.method is not None:
            _prove_status(call)
            changed += self.naming.learn(call)
        if (call.rpc.complete or call.rpc.old_path is None) and not is_plugin(call.rpc.peer.path):
            changed += self.naming.finished(call, request.data if request else None, answer)
        events: list[CriEvent] = []
        if call.method_source != "header":
            method = self.naming.method(call.rpc.peer.connection, call.rpc.old_path) if call.rpc.old_path else None
            if method is None:
                self._rename(call, None)  # this very call contradicted the name it had
            elif call.method is None:
                # Named by its own end: all of it is told now.
                self._rename(call, method)
                self._request(call)
                events.append(Sent(call, call.rpc.start))
                if answer is not None:
                    self._response(call, answer)
                    events.append(Answer(call, time))
                _prove_status(call)
                changed += self.naming.learn(call)
        events.append(Done(call, time))
        for slot in changed:
            events += self._told_later(slot, call, time)
        if call.rpc.error:
            call.rpc.error = redact(call.rpc.error, command(call, request.data) if request and request.data else ())
        call.rpc.request = None  # its facts are taken; the bytes may hold secrets
        return events

    def _rename(self, call: CriCall, method: str | None) -> None:
        call.method = method
        call.method_source = "inferred" if method else "unknown"

    def _told_later(self, slot: Slot, now: CriCall, time: int) -> list[CriEvent]:
        """Calls that ended before their entry got its name, or that had one which was taken back."""
        method = self.naming.method(*slot)
        events: list[CriEvent] = []
        for call in self.naming.calls(slot):
            if call is not now and call.rpc.end is not None and call.method != method:
                self._rename(call, method)
                _prove_status(call)
                events.append(Named(call, time))
        return events

    # messages

    def _request(self, call: CriCall) -> None:
        message = call.rpc.request
        if message is None or message.data is None:
            return
        if not call.cri:
            call.pod_uid = plugins.pod_uid(call.service, call.method, message.data)
            return
        try:
            read_request(call, message.data)
        except DecodeError:
            self.stats.unparsed += 1

    def _answer(self, call: CriCall, message: Message, time: int) -> list[CriEvent]:
        if call.method is not None:
            if call.cri and message.data is not None:
                self._response(call, message.data)
            return [Answer(call, time)]
        data = message.data
        if data is not None and id(call) not in self._answers and self._answer_bytes + len(data) <= MAX_HELD_BYTES:
            self._answers[id(call)] = data
            self._answer_bytes += len(data)
        return []

    def _response(self, call: CriCall, data: bytes) -> None:
        name = unary(call.method)
        try:
            if name == "ListPodSandbox":
                listed = self._listed(call, name, data, read_sandboxes)
                call.sandboxes = (*call.sandboxes, *listed) if call.sandboxes else listed
                call.items = len(call.sandboxes)
            elif name == "ListContainers":
                listed = self._listed(call, name, data, read_containers)
                call.containers = (*call.containers, *listed) if call.containers else listed
                call.items = len(call.containers)
            else:
                read_response(call, data)
        except DecodeError:
            self.stats.unparsed += 1

    def _listed(self, call: CriCall, name: str, data: bytes, parse: Callable[..., Any]) -> Any:
        """A quiet node answers the same bytes each second: parse them once."""
        key = (call.rpc.peer.path, name, call.scope)
        known = self._lists.get(key)
        if known is not None and known[0] == data:
            return known[1]
        listed = parse(data, self._items.get((key[0], name), NOTHING))
        self._lists[key] = (data, listed)
        if call.scope is Scope.ALL:
            self._items[key[0], name] = {item.id: item for item in listed}
        return listed


def _prove_status(call: CriCall) -> None:
    """A status that is only an old header entry: a unary call that was answered with a message succeeded.

    A gRPC server sends no message with an error (grpc-go `processUnaryRPC`).
    """
    grpc = call.rpc
    answered = grpc.status is None and grpc.ended_by == "server" and grpc.complete and grpc.responses == 1
    if answered and call.cri and call.method in METHODS and call.method not in STREAMS:
        grpc.status = "OK"
