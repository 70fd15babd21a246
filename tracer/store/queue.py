"""The rows that wait to be written: bounded, the newest state of each, and never a reason to wait for the caller."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from tracer.rows import Kind, Row

Key = tuple[Kind, str]

# About 2 kB a row in memory, so 8 MB at most; at 100 calls a second the disk may stall for forty seconds.
QUEUE_ROWS = 4000

# Taken at once; about 15 ms of writing.
BATCH_ROWS = 500

# How long a row waits for company. Most calls end within it, so their open state is never written; and what a write
# costs is mostly by the batch.
FLUSH_SECONDS = 1.0


# Rows remembered as open. The pipeline has fewer, unless it forgets some without an end.
OPEN_MOST = 50_000


class Queue:
    """Rows by kind and id, in the order they first came. All methods may be called from any thread."""

    def __init__(self, *, patient: bool) -> None:
        """A `patient` queue that is full makes `feed` wait; any other drops its oldest rows."""
        self._patient = patient
        self._changed = threading.Condition()
        self._rows: OrderedDict[Key, Row] = OrderedDict()
        self._taken = 0  # rows handed out by `take` and not yet settled
        self._waiters = 0
        self._open: set[Key] = set()  # written while open: their end must reach the database
        self._lost_ends: dict[Key, int] = {}
        self.closed = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._rows) + self._taken

    def feed(self, rows: Iterable[Row]) -> None:
        with self._changed:
            for row in rows:
                if len(self._rows) >= QUEUE_ROWS and self._patient:
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: len(self._rows) < QUEUE_ROWS or self.closed)
                self._rows[row.kind, row.id] = row
                if len(self._rows) > QUEUE_ROWS:
                    self._drop()
            if len(self._rows) >= BATCH_ROWS:
                self._changed.notify_all()

    def take(self) -> list[Row]:
        """The oldest rows, at most a batch; waits FLUSH_SECONDS for a whole one. Each `take` needs one `settle`."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._rows) >= BATCH_ROWS or self._waiters or self.closed, timeout=FLUSH_SECONDS
            )
            batch = [self._rows.popitem(last=False)[1] for _ in range(min(BATCH_ROWS, len(self._rows)))]
            self._taken = len(batch)
            return batch

    def settle(
        self, *, written: Sequence[Row] = (), unwritten: Sequence[Row] = (), unwritable: Sequence[Row] = ()
    ) -> None:
        """Say what became of a batch. The `unwritten` come again, unless a newer state of them waits already."""
        with self._changed:
            self._taken = 0
            for row in unwritable:
                self._give_up(row)
            for row in written:
                if row.end is None:
                    self._open.add((row.kind, row.id))
                else:
                    self._open.discard((row.kind, row.id))
            if len(self._open) > OPEN_MOST:
                self._open.clear()
            for row in reversed(unwritten):
                key = row.kind, row.id
                if key not in self._rows:
                    self._rows[key] = row
                    self._rows.move_to_end(key, last=False)
            # Here even a patient queue drops, or a disk that stays full would stop its caller for ever.
            while len(self._rows) > QUEUE_ROWS:
                self._drop()
            self._changed.notify_all()

    def _drop(self) -> None:
        self._give_up(self._rows.popitem(last=False)[1])
        self.dropped += 1

    def _give_up(self, row: Row) -> None:
        key = row.kind, row.id
        if row.end is not None and key in self._open:
            self._open.discard(key)
            self._lost_ends[key] = row.end

    def take_lost_ends(self) -> dict[Key, int]:
        """The ends (Unix ns) of rows that were written while open and whose last state never will be; each once."""
        with self._changed:
            ends, self._lost_ends = self._lost_ends, {}
            return ends

    def wait_written(self, timeout: float) -> bool:
        """Wait until nothing waits any more; False when that takes more than `timeout` seconds."""
        with self._changed:
            self._waiters += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._rows and not self._taken, timeout)
            finally:
                self._waiters -= 1

    def close(self) -> None:
        """Let every waiting thread go; what waits can still be taken."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
