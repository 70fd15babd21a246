"""Calls between the runtime and its shims, and what their messages state (containerd's `api/runtime/task/v2`, `v3`).

The fields read here have the same numbers in both versions. Everything else of a message is left alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tracer import protowire
from tracer.metadata import STATUS
from tracer.protowire import LENGTH, VARINT, Cut, Malformed, varint

TASK = "containerd.task."
SANDBOX = "containerd.runtime.sandbox."
EVENTS = "containerd.services.events.ttrpc."

_UINT32 = 0xFFFFFFFF  # what protobuf keeps of a longer number

_WITH_EXEC_ID = frozenset({"State", "Start", "Delete", "Exec", "Kill", "ResizePty", "CloseIO", "Wait"})
"""Task methods whose request's field 2 is `exec_id`."""

_NAMESPACE_KEY = b"containerd-namespace-ttrpc"


class Message(NamedTuple):
    """A whole message: its direction's stream id, type and flags; `body` may be cut (`whole` false)."""

    stream: int
    type: int
    body: bytes
    whole: bool


@dataclass(slots=True, eq=False)
class ShimCall:
    """One ttrpc call, growing until `end` is set. Times are monotonic ns, None where not seen.

    `sent`: the client had sent its request, `received`: the server had read it, `answered`: the server had sent its
    answer, `read_answer`: the client had read it. `end`: the latest of these, or when the connection was lost.
    `id`: the container's or sandbox's. `pid`: of the process that Create, Start, Connect or an event tells of.
    """

    connection: str
    path: str
    stream: int
    start: int
    sent: int
    client_pid: int | None
    client_comm: str | None
    server_pid: int | None
    server_comm: str | None
    service: str
    method: str
    timeout: int | None = None  # ns
    namespaced: bool = False  # the client gave containerd's namespace in this call's own metadata
    received: int | None = None
    answered: int | None = None
    read_answer: int | None = None
    end: int | None = None
    lost: bool = False  # the connection ended, or it was forgotten, before its answer
    status: str | None = None
    error: str | None = None
    id: str | None = None
    exec_id: str | None = None
    signal: int | None = None
    pid: int | None = None
    exit_status: int | None = None  # 128 + signal where a signal ended the process, as the runtime tells it
    topic: str | None = None  # of an event: "/tasks/exit" ...

    @property
    def name(self) -> str:
        """Unique in the life of a source."""
        return f"{self.connection}-{self.stream}"


Field = tuple[int, int, bytes]
"""Tag (number << 3 | wire type), the number of a VARINT, the bytes of a LENGTH."""


def fields(data: bytes, *, whole: bool = True) -> Iterator[Field]:
    """Every field of a message. Raises `Malformed`; a message that is not `whole` may end within a field."""
    try:
        for tag, begin, until in protowire.fields(data, 0, len(data)):
            wire = tag & 7
            if wire == LENGTH:
                yield tag, 0, data[begin:until]
            elif wire == VARINT:
                yield tag, data[begin] if until - begin == 1 else varint(data, begin, until)[0], b""
    except Cut as cut:
        if whole:
            raise
        if cut.begin:
            yield cut.tag, 0, data[cut.begin :]


@lru_cache(maxsize=1024)
def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Malformed from None


class Request(NamedTuple):
    """The head of a request."""

    service: str
    method: str
    payload: bytes
    timeout: int | None
    namespaced: bool


def read_request(message: Message) -> Request:
    """Raises `Malformed`: also when it names no service or no method."""
    service = method = ""
    payload, timeout, namespaced = b"", None, False
    for tag, number, raw in fields(message.body, whole=message.whole):
        if tag == 1 << 3 | LENGTH:
            service = _text(raw)
        elif tag == 2 << 3 | LENGTH:
            method = _text(raw)
        elif tag == 3 << 3 | LENGTH:
            payload = raw
        elif tag == 4 << 3 | VARINT:
            timeout = number or None
        elif tag == 5 << 3 | LENGTH:
            namespaced = namespaced or _NAMESPACE_KEY in raw
    if not service or not method:
        raise Malformed
    return Request(service, method, payload, timeout, namespaced)


def read_response(message: Message) -> tuple[str | None, str, bytes]:
    """(status, its text, payload); the status of an answer that states none is OK."""
    status, text, payload = "OK", "", b""
    for tag, _, raw in fields(message.body, whole=message.whole):
        if tag == 1 << 3 | LENGTH:
            status, text = _read_status(raw)
        elif tag == 2 << 3 | LENGTH:
            payload = raw
    return status, text, payload


def _read_status(raw: bytes) -> tuple[str, str]:
    code, text = 0, ""
    for tag, number, value in fields(raw):
        if tag == 1 << 3 | VARINT:
            code = number
        elif tag == 2 << 3 | LENGTH:
            text = value.decode(errors="replace")
    return (STATUS[code] if code < len(STATUS) else "UNKNOWN"), text


def state_request(call: ShimCall, payload: bytes, *, whole: bool) -> None:
    """Add to `call` what its request states. Raises `Malformed`."""
    if call.service.startswith(EVENTS):
        if whole:
            _state_event(call, payload)
        return
    task = call.service.startswith(TASK)
    if not task and not call.service.startswith(SANDBOX):
        return
    with_exec_id = task and call.method in _WITH_EXEC_ID
    for tag, number, raw in fields(payload, whole=whole):
        if tag == 1 << 3 | LENGTH:
            call.id = _text(raw) or None
        elif tag == 2 << 3 | LENGTH and with_exec_id:
            call.exec_id = _text(raw) or None
        elif tag == 3 << 3 | VARINT and call.method == "Kill":
            call.signal = number & _UINT32


_ANSWERS = {"Create": (1, 0), "Start": (1, 0), "Connect": (2, 0), "State": (3, 0), "Delete": (1, 2), "Wait": (0, 1)}
"""Numbers of the pid and of the exit status in the answers of task methods; 0 where an answer has none."""


def state_answer(call: ShimCall, payload: bytes) -> None:
    """Add to `call` what its answer states. Raises `Malformed`."""
    if call.status != "OK" or not call.service.startswith(TASK):
        return
    numbers = _ANSWERS.get(call.method)
    if numbers is None:
        return
    pid, status = numbers
    if status:
        call.exit_status = 0  # proto3 leaves a zero out
    for tag, number, _ in fields(payload):
        if tag == pid << 3 | VARINT:
            call.pid = number & _UINT32
            if not status:
                return
        elif tag == status << 3 | VARINT:
            call.exit_status = number & _UINT32


# containerd's api/events/task.proto: numbers of the container's id, of an exec's id (or the process's own), of the pid
# and of the exit status; 0 where an event has none.
_EVENTS: dict[str, tuple[int, int, int, int]] = {
    "/tasks/create": (1, 0, 6, 0),
    "/tasks/start": (1, 0, 2, 0),
    "/tasks/delete": (1, 5, 2, 3),
    "/tasks/exit": (1, 2, 3, 4),
    "/tasks/oom": (1, 0, 0, 0),
    "/tasks/exec-added": (1, 2, 0, 0),
    "/tasks/exec-started": (1, 2, 3, 0),
    "/tasks/paused": (1, 0, 0, 0),
    "/tasks/resumed": (1, 0, 0, 0),
}


def _state_event(call: ShimCall, payload: bytes) -> None:
    """ForwardRequest.envelope{topic = 3, event = 4 (Any.value = 2)}."""
    envelope = _inner(payload, 1)
    topic = _text(_inner(envelope, 3))
    call.topic = topic or None
    numbers = _EVENTS.get(topic)
    if numbers is None:
        return
    container, process, pid, status = numbers
    if status:
        call.exit_status = 0
    for tag, number, raw in fields(_inner(_inner(envelope, 4), 2)):
        which = tag >> 3
        if tag & 7 == LENGTH and which == container:
            call.id = _text(raw) or None
        elif tag & 7 == LENGTH and which == process:
            call.exec_id = _text(raw) or None
        elif tag & 7 == VARINT and which == pid:
            call.pid = number & _UINT32
        elif tag & 7 == VARINT and which == status:
            call.exit_status = number & _UINT32
    if call.exec_id == call.id:
        call.exec_id = None  # the container's own process


def _inner(data: bytes, number: int) -> bytes:
    found = b""
    for tag, _, raw in fields(data):
        if tag == number << 3 | LENGTH:
            found = raw
    return found
