"""gRPC's length-prefixed messages (PROTOCOL-HTTP2.md of gRPC), from the DATA frames of one direction of a call."""

import zlib
from dataclasses import dataclass
from struct import Struct

from tracer.kept import Kept

MAX_MESSAGE = 16 * 1024 * 1024 + 64 * 1024
"""Bytes of one message kept for parsing: the kubelet's receive limit (`maxMsgSize`, 16 MiB) and some room."""

PREFIX = 5
"""Bytes before a message: whether it is compressed, and its length."""

_PREFIX = Struct(">BI").unpack_from
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


@dataclass(slots=True)
class Message:
    """One gRPC message. `data` is None when it is not whole (a gap), too large to keep or cannot be decompressed."""

    data: bytes | None
    length: int
    time: int


def only(payload: bytes, time: int) -> Message | None:
    """The message when the payload is exactly one and not compressed, as most are."""
    if len(payload) >= PREFIX:
        compressed, length = _PREFIX(payload)
        if length == len(payload) - PREFIX and not compressed:
            return Message(payload[PREFIX:], length, time)
    return None


class Body:
    """Feed the payloads of DATA frames, get messages; `close` gives up what was kept.

    `lost`: where messages begin is not known any more, `malformed` because a prefix cannot be one.
    """

    __slots__ = ("_have", "_kept", "_length", "_parts", "_skip", "encoding", "lost", "malformed")

    def __init__(self, kept: Kept, encoding: str = "") -> None:
        self.encoding = encoding
        self.lost = False
        self.malformed = False
        self._kept = kept
        self._parts: list[bytes] = []
        self._have = 0  # bytes in _parts
        self._length = -1  # of the message begun, once its prefix is whole
        self._skip = 0  # bytes still to come of a message that is not kept

    def feed(self, data: bytes, time: int, missing: int = 0) -> list[Message]:
        """`missing` bytes of the payload are not in `data`, and where they lay is not known."""
        out: list[Message] = []
        if self.lost:
            return out
        if missing:
            self._miss(len(data) + missing, time, out)
            return out
        if self._skip:
            passed = min(self._skip, len(data))
            self._pass(passed, time, out)
            data = data[passed:]
        if not data:
            return out
        if self._parts:
            if self._have + len(data) < PREFIX + max(self._length, 0):
                if not self._keep(data):
                    self._overflow(data, time, out)
                return out
            data = b"".join((*self._parts, data))
            self._drop()
        self._cut(data, time, out)
        return out

    def lose(self) -> None:
        """Frames may be missing."""
        self._drop()
        self._length = -1
        self._skip = 0
        self.lost = True

    def close(self) -> None:
        """No more is fed."""
        self._drop()

    def _cut(self, data: bytes, time: int, out: list[Message]) -> None:
        at, size = 0, len(data)
        while size - at >= PREFIX:
            if data[at] > 1:
                self.malformed = True
                self.lose()
                return
            self._length = length = int.from_bytes(data[at + 1 : at + PREFIX], "big")
            end = at + PREFIX + length
            if end > size:
                if length > MAX_MESSAGE or not self._keep(data[at:]):
                    self._skip = end - size
                return
            body = data[at + PREFIX : end]
            out.append(Message(self._plain(body) if data[at] else body, length, time))
            self._length = -1
            at = end
        if at < size and not self._keep(data[at:]):
            self.lose()

    def _keep(self, data: bytes) -> bool:
        if not self._kept.take(len(data)):
            return False
        self._parts.append(data)
        self._have += len(data)
        return True

    def _overflow(self, data: bytes, time: int, out: list[Message]) -> None:
        """No room for more of the message begun: let it pass."""
        if self._length < 0:
            self.lose()
            return
        self._skip = PREFIX + self._length - self._have
        self._drop()
        self._pass(len(data), time, out)

    def _pass(self, count: int, time: int, out: list[Message]) -> None:
        self._skip -= count
        if not self._skip:
            out.append(Message(None, self._length, time))
            self._length = -1

    def _miss(self, count: int, time: int, out: list[Message]) -> None:
        """Of a message that is longer than what is missing only that one is lost."""
        left = self._skip or PREFIX + self._length - self._have
        if self._length < 0 or left < count:
            self.lose()
            return
        self._drop()
        self._skip = left
        self._pass(count, time, out)

    def _drop(self) -> None:
        self._kept.give(self._have)
        self._parts = []
        self._have = 0

    def _plain(self, body: bytes) -> bytes | None:
        """Decompressed, or None (PROTOCOL-HTTP2.md: gzip and deflate are the named encodings)."""
        if self.encoding not in ("gzip", "deflate"):
            return None
        engine = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            data = engine.decompress(body, MAX_MESSAGE)
        except zlib.error:
            return None
        return data if engine.eof and not engine.unused_data else None
