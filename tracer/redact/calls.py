"""The open calls of a gRPC connection, as far as it takes to know what their messages are."""

from functools import partial

from tracer.headers import Old
from tracer.redact.content import Contents
from tracer.redact.cover import Cover
from tracer.redact.messages import Messages
from tracer.redact.schema import Plan, request_of
from tracer.streams import Way

MAX_CALLS = 4096
"""Open calls remembered a connection; runtimes allow far fewer in practice, so only leaks reach it."""

MAX_NAMES = 256
"""Old header entries named a connection; the CRI has about forty methods."""

PREFIX = 5
"""Bytes before a message: whether it is compressed, and its length (PROTOCOL-HTTP2.md of gRPC)."""


_EXECS = ("/ExecSync", "/Exec")


class _Names:
    """Requests that old header entries stand for, learnt from messages that prove it.

    A proof holds for the one message; what is concluded for others must fit strictly, or the name is taken back.
    """

    def __init__(self) -> None:
        self._plans: dict[Old, Plan | None] = {}  # None: contradicted

    def learn(self, old: Old, plan: Plan) -> None:
        if len(self._plans) < MAX_NAMES and self._plans.setdefault(old, plan) is not plan:
            self._plans[old] = None

    def request(self, old: Old) -> Plan | None:
        return self._plans.get(old)

    def withdraw(self, old: Old) -> None:
        self._plans[old] = None


class _Call:
    __slots__ = ("_contents", "_names", "_old", "path", "proven", "request", "response")

    def __init__(self, path: str | None, old: Old | None, contents: Contents, names: _Names) -> None:
        self.path = path
        self.proven = False  # by its request: to be no exec, as none proves that
        self._old = old
        self._contents = contents
        self._names = names
        self.request = Messages(PREFIX, _length, partial(self._whole, "request"))
        self.response = Messages(PREFIX, _length, partial(self._whole, "response"))

    def messages(self, way: Way) -> Messages:
        return self.request if way == "request" else self.response

    def _whole(self, way: Way, head: bytes, body: bytes) -> bytes:
        if not head[0]:
            return head + self._clean(way, body)
        packed = self._contents.repacked(body, partial(self._clean, way))
        if packed is not None:
            return head + packed
        # Of the length it had, but no longer called compressed: bytes that no decompressor could read.
        return b"\x00" + head[1:] + bytes(len(body))

    def _clean(self, way: Way, body: bytes) -> bytes:
        if self.path is not None:
            return self._contents.clean(self.path, way, body)
        named = self._names.request(self._old) if self._old is not None and way == "request" else None
        if named is not None and self._old is not None:
            clean = self._contents.strictly(named, body)
            if clean is not None:
                self.proven = True
                return clean
            self._names.withdraw(self._old)
        clean, proven = self._contents.prove(way, body)
        if proven is not None and self._old is not None:
            self._names.learn(self._old, request_of(proven))
        if way == "request":
            self.proven = proven is not None
        return clean


class Calls:
    """`waiting`: messages of which the rest is still to come, by way and stream."""

    def __init__(self, contents: Contents) -> None:
        self.waiting: dict[Way, dict[int, Messages]] = {"request": {}, "response": {}}
        self._contents = contents
        self._names = _Names()
        self._calls: dict[int, _Call] = {}

    def open(self, stream: int, path: str | None, old: Old | None) -> None:
        """A request's headers: its method, or the old entry that stands for it."""
        if len(self._calls) >= MAX_CALLS:
            self.close(next(iter(self._calls)))
        self._calls[stream] = _Call(path, old, self._contents, self._names)

    def runs_command(self, stream: int) -> bool:
        """Whether the call's errors may repeat a command line: an exec's, or those of a call that is not known."""
        call = self._calls.get(stream)
        if call is None or call.path is None:
            return call is None or not call.proven
        return call.path.endswith(_EXECS)

    def known(self, stream: int) -> bool:
        return stream in self._calls

    def data(self, stream: int, way: Way, offset: int, data: bytes, cover: Cover) -> None:
        """Bytes of a stream's messages; those of a call that is not known stay overwritten."""
        call = self._calls.get(stream)
        if call is None:
            return
        messages = call.messages(way)
        messages.feed(offset, data, cover)
        if messages.first is None:
            self.waiting[way].pop(stream, None)
        else:
            self.waiting[way][stream] = messages

    def gap(self, stream: int, way: Way, length: int, cover: Cover) -> None:
        """Bytes of a stream's messages are missing."""
        call = self._calls.get(stream)
        self.waiting[way].pop(stream, None)
        if call is not None:
            call.messages(way).gap(length, cover)

    def lose(self, stream: int, way: Way) -> None:
        """No more of a stream's bytes can be understood: half a message stays overwritten."""
        call = self._calls.get(stream)
        self.waiting[way].pop(stream, None)
        if call is not None:
            call.messages(way).lose()

    def lose_all(self, way: Way) -> None:
        for stream in self._calls:
            self.lose(stream, way)

    def close(self, stream: int) -> None:
        """The call is over in both directions."""
        for way in self.waiting:
            self.lose(stream, way)
        self._calls.pop(stream, None)


def _length(head: bytes) -> int | None:
    return int.from_bytes(head[1:], "big") if head[0] <= 1 else None
