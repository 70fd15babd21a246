"""Reading: when the reader of one direction passed an offset that someone waits for."""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from tracer.streams import Read

MAX_AHEAD = 256
"""Reads remembered that are ahead of the sender's records (which are some microseconds late at most)."""

MAX_WAITING = 4096
"""Who waits for a reader whose records stopped coming; above the open calls of any connection."""

T = TypeVar("T")


class Reading(Generic[T]):
    """Offsets are the sender's. A reader that was never seen is not waited for."""

    __slots__ = ("_ahead", "read_to", "seen", "sent_to", "waiting")

    def __init__(self) -> None:
        self.seen = False
        self.read_to = -1
        self.sent_to = 0  # everything before it was looked at: who waits for an offset before it has said so
        self._ahead: deque[Read] = deque(maxlen=MAX_AHEAD)
        self.waiting: deque[tuple[int, T]] = deque(maxlen=MAX_WAITING)  # (offset, who), in order

    def passed(self, until: int) -> int | None:
        """When the reader passed `until`, if that is known; `read_to` tells whether it has."""
        for read in self._ahead:
            if read.offset >= until:
                return read.time if read.begin < until else None
        return None

    def read(self, read: Read) -> Sequence[tuple[T, int | None]]:
        """Who need not wait any longer, with the time if it is known: a read that was lost may have come before."""
        self.seen = True
        if read.offset > self.read_to:  # noqa: PLR1730  (asked for each read: no call)
            self.read_to = read.offset
        if read.offset > self.sent_to:
            self._ahead.append(read)
        elif self._ahead:
            self._ahead.clear()
        waiting = self.waiting
        if not waiting or waiting[0][0] > read.offset:
            return ()
        done: list[tuple[T, int | None]] = []
        while waiting and waiting[0][0] <= read.offset:
            until, who = waiting.popleft()
            done.append((who, read.time if read.begin < until else None))
        return done
