"""One direction of a connection as it may be written: overwritten everywhere, until a decoder says what may be seen."""

COVER = b"x"
"""What secrets are overwritten with: a letter keeps text text, and never begins a frame (http2 `plausible`)."""


class Cover:
    """Bytes from offset `base` on. `decided`: everything before it is final.

    What leaves the redactor is taken from here and never from a record, so a byte that no decoder vouched for cannot.
    """

    __slots__ = ("_bytes", "base", "decided", "ended", "placed", "read", "sent")

    def __init__(self, base: int) -> None:
        self.base = base
        self.decided = base
        self.ended = False
        self.sent = base  # everything before it left as the sender's record
        self.read = base  # ... and as the reader's, if `placed`
        self.placed = False
        self._bytes = bytearray()

    @property
    def end(self) -> int:
        return self.base + len(self._bytes)

    def extend(self, length: int) -> None:
        """`length` more bytes were sent."""
        self._bytes += COVER * length

    def show(self, offset: int, data: bytes) -> None:
        """These bytes hold no secret. What is final already stays as it is."""
        if offset < self.decided:
            data = data[self.decided - offset :]
            offset = self.decided
        at = offset - self.base
        self._bytes[at : at + len(data)] = data

    def settled(self, until: int) -> bool:
        """Whether the bytes before `until` are final."""
        return until <= self.decided or self.ended

    def take(self, start: int, length: int) -> bytes:
        """Bytes to write for a record; b"" when they are not all here (any more)."""
        at = start - self.base
        if at < 0 or at + length > len(self._bytes):
            return b""
        return bytes(self._bytes[at : at + length])

    def forget(self, until: int) -> int:
        """Drop bytes before `until`; returns how many."""
        count = min(max(0, until - self.base), len(self._bytes))
        del self._bytes[:count]
        self.base += count
        return count
