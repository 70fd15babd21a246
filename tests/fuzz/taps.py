"""Taps: numbers and pieces of bytes, drawn from a fuzzer's bytes one after the other."""


class Taps:
    """What is drawn after the end is zero or empty, so every input means something."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        """At most so many bytes."""
        piece = self._data[self._at : self._at + count]
        self._at += len(piece)
        return piece

    def full(self, count: int) -> bytes:
        """Exactly so many bytes."""
        return self.take(count).ljust(count, b"\0")

    def byte(self) -> int:
        return self.full(1)[0]

    def number(self, size: int) -> int:
        return int.from_bytes(self.full(size), "little")

    def piece(self) -> bytes:
        """Bytes behind their length: one byte, or three when that is 255."""
        length = self.byte()
        return self.take(self.number(2) if length == 255 else length)

    def rest(self) -> bytes:
        return self.take(len(self._data))


def piece(data: bytes) -> bytes:
    """What `Taps.piece` draws as `data` (at most 65,535 bytes)."""
    if len(data) < 255:
        return bytes([len(data)]) + data
    return b"\xff" + len(data).to_bytes(2, "little") + data
