"""Reading: when the reader of one direction passed an offset that someone waits for."""

from collections import deque
from typing import Generic, TypeVar

from tracer.streams import Read

MAX_AHEAD = 256
"""Reads remembered that are ahead of the sender's records (which are some microseconds late at most)."""

MAX_WAITING = 4096
"""Who waits for a reader whose records stopped coming; above the open calls of any connection."""

T = TypeVar("T")


class Reading(Generic[T]):
    """Offsets are the sender's. A reader that was never seen is not waited for."""

    __slots__ = ("_ahead", "_sent_to", "_waiting", "read_to", "seen")

    def __init__(self) -> None:
        self.seen = False
        self.read_to = -1
        self._sent_to = 0
        self._ahead: deque[Read] = deque(maxlen=MAX_AHEAD)
        self._waiting: deque[tuple[int, T]] = deque(maxlen=MAX_WAITING)

    def sent(self, until: int) -> None:
        """Everything before `until` was looked at; who waits for an offset before it has said so."""
        self._sent_to = until
        while self._ahead and self._ahead[0].offset <= until:
            self._ahead.popleft()

    def passed(self, until: int) -> int | None:
        """When the reader passed `until`, if that is known; `read_to` tells whether it has."""
        for read in self._ahead:
            if read.offset >= until:
                return read.time if read.begin < until else None
        return None

    def wait(self, until: int, who: T) -> None:
        self._waiting.append((until, who))

    def read(self, read: Read) -> list[tuple[T, int | None]]:
        """Who need not wait any longer, with the time if it is known: a read that was lost may have come before."""
        self.seen = True
        self.read_to = max(self.read_to, read.offset)
        if read.offset > self._sent_to:
            self._ahead.append(read)
        done: list[tuple[T, int | None]] = []
        waiting = self._waiting
        while waiting and waiting[0][0] <= read.offset:
            until, who = waiting.popleft()
            done.append((who, read.time if read.begin < until else None))
        return done
