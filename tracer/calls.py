"""gRPC calls, and what happens to them."""

from dataclasses import dataclass
from typing import Literal

from tracer.headers import Old
from tracer.messages import Message
from tracer.streams import Peer

EndedBy = Literal["server", "client_cancel", "deadline", "connection", "unknown"]


@dataclass(slots=True, eq=False)
class Call:
    """One gRPC call, growing until `ended_by` is set. Times are monotonic ns, None where not seen.

    `sent` (t1): the client had sent its request; `received` (t2): the server had read it; `answered` (t3): the server
    had sent the end of its answer; `read_answer` (t4): the client had read it. `end`: the latest of these, or when the
    client gave up or the connection was lost. `start`: the client had sent the first byte; when only the server's
    record of that is there, the server had read it (`sent` is None then).
    """

    peer: Peer
    stream: int
    start: int
    path: str | None = None  # "/runtime.v1.RuntimeService/Status"; None when the header was only an old entry
    old_path: Old | None = None
    deadline_ns: int | None = None
    hidden_deadline: bool = False  # an old entry may be the deadline, so None is not "no deadline"
    trace: str | None = None  # trace id of a `traceparent` header
    span: str | None = None  # its span id: of the client's own span around the call
    sent: int | None = None
    received: int | None = None
    answered: int | None = None
    read_answer: int | None = None
    end: int | None = None
    status: str | None = None
    error: str | None = None
    ended_by: EndedBy | None = None
    request: Message | None = None
    responses: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    complete: bool = True  # false when bytes of it were missing

    @property
    def id(self) -> str:
        return f"{self.peer.connection}-{self.stream}"


@dataclass(slots=True)
class Opened:
    """The request's headers were sent."""

    call: Call
    time: int


@dataclass(slots=True)
class Requested:
    """The request is complete; `call.request` is its message."""

    call: Call
    time: int


@dataclass(slots=True)
class Responded:
    """The server sent one message; unary calls have one, streams any number."""

    call: Call
    time: int
    message: Message


@dataclass(slots=True)
class Finished:
    """The call is over: `call.end` and `call.ended_by` are set."""

    call: Call
    time: int


@dataclass(slots=True)
class Joined:
    """A connection's first request headers; `whole`: seen from its first byte."""

    peer: Peer
    time: int
    whole: bool


@dataclass(slots=True)
class Left:
    """A connection ended, after the `Finished` of its open calls; `by_server`: the server's side ended it."""

    peer: Peer
    time: int
    by_server: bool = False


Event = Opened | Requested | Responded | Finished | Joined | Left
