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

    __slots__ = (
        "_dropped", "_have", "_kept", "_length", "_packed", "_parts", "_prefix", "encoding", "lost", "malformed",
    )  # fmt: skip

    def __init__(self, kept: Kept, encoding: str = "") -> None:
        self.encoding = encoding
        self.lost = False
        self.malformed = False
        self._kept = kept
        self._prefix = b""  # as much of it as is there
        self._length = -1  # of the message begun, once its prefix is whole
        self._packed = 0
        self._have = 0  # bytes of it that came
        self._parts: list[bytes] = []  # ... and are kept
        self._dropped = False  # it is not kept

    def feed(self, data: bytes, time: int, missing: int = 0) -> list[Message]:
        """`missing` bytes of the payload are not in `data`, and where they lay is not known."""
        out: list[Message] = []
        if self.lost:
            return out
        if missing:
            self._miss(len(data) + missing, time, out)
            return out
        if self._prefix:
            data, self._prefix = self._prefix + data, b""
        at, size = 0, len(data)
        while True:
            if self._length < 0:
                if size - at < PREFIX:
                    self._prefix = data[at:]
                    return out
                self._packed, self._length = _PREFIX(data, at)
                at += PREFIX
                if self._packed > 1:
                    self.malformed = True
                    self.lose()
                    return out
                self._dropped = self._length > MAX_MESSAGE
            left = self._length - self._have
            if size - at < left:
                if at < size:
                    self._keep(data[at:])
                return out
            self._end(data[at : at + left], time, out)
            at += left

    def lose(self) -> None:
        """Frames may be missing."""
        self._drop()
        self.lost = True

    def close(self) -> None:
        """No more is fed."""
        self._drop()

    def _keep(self, data: bytes) -> None:
        if not self._dropped:
            if self._kept.take(len(data)):
                self._parts.append(data)
            else:
                self._drop()
        self._have += len(data)

    def _drop(self) -> None:
        """The message begun passes without being kept."""
        if not self._dropped:
            self._kept.give(self._have)
            self._parts = []
            self._dropped = True

    def _end(self, last: bytes, time: int, out: list[Message]) -> None:
        data: bytes | None = None
        if not self._dropped:
            self._kept.give(self._have)
            data = b"".join((*self._parts, last)) if self._parts else last
            if self._packed:
                data = self._plain(data)
        out.append(Message(data, self._length, time))
        self._parts = []
        self._length, self._have, self._dropped = -1, 0, False

    def _miss(self, count: int, time: int, out: list[Message]) -> None:
        """Of a message that is at least as long as what is missing only that one is lost."""
        left = self._length - self._have
        if self._length < 0 or left < count:
            self.lose()
            return
        self._drop()
        if left == count:
            self._end(b"", time, out)
        else:
            self._have += count

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
