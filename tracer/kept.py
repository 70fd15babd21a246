"""Kept: one limit for all bytes that wait for the rest of their frame or message."""

MAX_KEPT = 64 * 1024 * 1024
"""Bytes kept at once, of all connections: four answers of the size the kubelet accepts (16 MiB)."""


class Kept:
    """How many bytes are kept; who keeps some takes them from the limit and gives them back."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def take(self, count: int) -> bool:
        """False when that would be too many: the bytes must be dropped."""
        if self.bytes + count > MAX_KEPT:
            return False
        self.bytes += count
        return True

    def give(self, count: int) -> None:
        self.bytes -= count
