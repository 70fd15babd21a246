"""Messages with a length before them, whose bytes may lie in pieces: gRPC's in DATA frames, ttrpc's in writes."""

from collections.abc import Callable

from tracer.redact.cover import Cover

MAX_MESSAGE = 16 * 1024 * 1024 + 64 * 1024
"""Bytes of one message looked into: the kubelet's receive limit (cri-client `maxMsgSize`, 16 MiB) and some room."""


class Messages:
    """Collects the pieces of one message after the other and shows each, cleaned, when it is whole.

    `length_of(head)` is the length of the body behind `head` (of `size` bytes), None when that cannot be one's head;
    `clean(head, body)` is the whole message as it may be seen.
    """

    __slots__ = ("_clean", "_head", "_length_of", "_need", "_parts", "_size", "_skip", "broken")

    def __init__(
        self, head: int, length_of: Callable[[bytes], int | None], clean: Callable[[bytes, bytes], bytes]
    ) -> None:
        self.broken = False  # where messages begin is lost: nothing more is shown
        self._head = head
        self._length_of = length_of
        self._clean = clean
        self._parts: list[tuple[int, bytes]] = []
        self._size = 0
        self._need = head
        self._skip = 0  # bytes of the current message that stay overwritten

    @property
    def first(self) -> int | None:
        """Offset of the first byte that is not decided."""
        return self._parts[0][0] if self._parts else None

    def feed(self, offset: int, data: bytes, cover: Cover) -> None:
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            offset, data = offset + skipped, data[skipped:]
        if self.broken or not data:
            return
        self._parts.append((offset, data))
        self._size += len(data)
        if self._size >= self._need:
            self._cut(cover)

    def gap(self, length: int, cover: Cover) -> None:
        """Bytes are missing: when they are all of the message begun, the next one is understood again."""
        self.give_up(cover)
        if length <= self._skip:
            self._skip -= length
        else:
            self.lose()

    def lose(self) -> None:
        """Where messages begin is lost: what is not decided stays overwritten, and all that follows."""
        self.broken = True
        self._parts = []
        self._size = self._skip = 0

    def give_up(self, cover: Cover) -> None:
        """Decide now: the message begun stays overwritten but for its head."""
        if not self._parts:
            return
        whole = self._joined()
        length = self._length_of(whole[: self._head]) if len(whole) >= self._head else None
        if length is None:
            self.lose()
        else:
            self._pass(whole, 0, length, [], cover)

    def _joined(self) -> bytes:
        return self._parts[0][1] if len(self._parts) == 1 else b"".join([data for _, data in self._parts])

    def _cut(self, cover: Cover) -> None:
        whole = self._joined()
        at, head = 0, self._head
        shown: list[bytes] = []
        while len(whole) - at >= head:
            length = self._length_of(whole[at : at + head])
            if length is None:
                self._show(b"".join(shown), cover)
                self.lose()
                return
            if length > MAX_MESSAGE:
                self._pass(whole, at, length, shown, cover)
                return
            end = at + head + length
            if len(whole) < end:
                break
            shown.append(self._clean(whole[at : at + head], whole[at + head : end]))
            at = end
        self._show(b"".join(shown), cover)
        self._drop(at)
        self._need = head
        if self._size >= head:
            self._need += self._length_of(whole[at : at + head]) or 0

    def _pass(self, whole: bytes, at: int, length: int, shown: list[bytes], cover: Cover) -> None:
        """Show no more of the message at `at` than its head."""
        shown.append(whole[at : at + self._head])
        self._show(b"".join(shown), cover)
        self._skip = at + self._head + length - len(whole)
        self._parts = []
        self._size = 0
        self._need = self._head

    def _show(self, data: bytes, cover: Cover) -> None:
        at = 0
        for offset, part in self._parts:
            if at >= len(data):
                return
            cover.show(offset, data[at : at + len(part)])
            at += len(part)

    def _drop(self, count: int) -> None:
        self._size -= count
        if not self._size:
            self._parts = []
            return
        while count >= len(self._parts[0][1]):
            count -= len(self._parts.pop(0)[1])
        if count:
            offset, part = self._parts[0]
            self._parts[0] = (offset + count, part[count:])
