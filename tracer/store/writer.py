"""The thread that writes rows to the database, and keeps going whatever the disk does."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from tracer.errors import StoreError
from tracer.rows import Row
from tracer.store.columns import Columns, columns
from tracer.store.file import File
from tracer.store.queue import Key, Queue
from tracer.store.retention import AGE_SECONDS, shrink
from tracer.store.table import Table

State = Literal["ok", "full", "read_only", "io_error", "damaged", "removed", "locked", "failed"]

_STATES: dict[int, State] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_IOERR: "io_error",
    sqlite3.SQLITE_CANTOPEN: "io_error",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
}

# After a failure: long enough not to burden a sick disk, short against the forty seconds the queue holds.
RETRY_SECONDS = 1.0

# A full disk lets a batch through now and then; the state says so until it has let all through for this long.
CALM_SECONDS = 60.0

# Of packed rows in one transaction: with the indexes less than twice that, for which the log and the file have room.
_TRANSACTION_BYTES = 1 << 19

# Age, size and reserve are looked after this often, and whenever so much was written: a tenth of the headroom that
# retention keeps. To do it with every batch would double what the store costs a quiet node.
_LIMITS_SECONDS = 5.0
_LIMITS_BYTES = 1 << 18

# Deleting in a row at the most, then waiting rows have their turn: enough to outrun the fastest writing.
_STEPS = 4

# What a row, not the disk, can do wrong: a value of a type that its column has not.
_ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)

_log = logging.getLogger(__name__)


class Writer:
    """Takes batches off `queue` until that is closed and empty. Any thread may read its counters."""

    def __init__(self, file: File, queue: Queue, *, age_limit: bool, on_reopened: Callable[[], None]) -> None:
        """`on_reopened` is called when the database was opened anew: whoever reads must do so, too."""
        self._file = file
        self._queue = queue
        self._age_limit = age_limit
        self._on_reopened = on_reopened
        self._stopping = threading.Event()
        self._table: Table | None = None
        self._lost_ends: dict[Key, int] = {}
        self._unchecked_bytes = 0
        self._checked_at = 0.0
        self._reserved = False
        self._damaged = False
        self._failure: State | None = None
        self._failed_at = 0.0
        self._failures_in_a_row = 0
        self.written = 0
        self.rejected = 0
        self.deleted = 0
        self.failures = 0
        self._thread = threading.Thread(target=self._work, name="criscope-store", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Rows in the database; 0 until it was first written to."""
        table = self._table
        return table.rows if table else 0

    @property
    def state(self) -> State:
        """`ok`, or why the last attempt that failed did so, unless that is CALM_SECONDS ago."""
        failure = self._failure
        return failure if failure and time.monotonic() - self._failed_at < CALM_SECONDS else "ok"

    def close(self) -> None:
        """Write what the queue still holds (it is closed before), as far as the disk lets, and end the thread."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            batch = self._queue.take()
            try:
                going = self._attempt(batch)
            except Exception:  # noqa: BLE001 (a fault of ours costs this batch, never all that come after it)
                _log.exception("store %s: a batch of %d rows is lost", self._file.path, len(batch))
                self._note("failed")
                self.rejected += len(batch)
                self._queue.settle(unwritable=batch)
                going = False
            if self._stopping.is_set() and not (going and len(self._queue)):
                break
            if not going:
                self._stopping.wait(RETRY_SECONDS)
        self._file.writer.close()

    def _attempt(self, batch: list[Row]) -> bool:
        """Write a batch and keep the limits; False when the disk refuses and should be left alone for a while."""
        writable, encoded, unwritable = [], [], []
        for row in batch:
            try:
                encoded.append(columns(row))
                writable.append(row)
            except (ValueError, TypeError, AttributeError):
                unwritable.append(row)
        try:
            table = self._open_table()
            try:
                for part in _parts(encoded):
                    self._write(table, part)
                    if self._unchecked_bytes > _LIMITS_BYTES or time.monotonic() - self._checked_at > _LIMITS_SECONDS:
                        self._keep_limits(table)
            except _ROW_ERRORS:
                bad = self._write_each(table, encoded)
                unwritable += [writable[index] for index in bad]
                writable = [row for index, row in enumerate(writable) if index not in bad]
        except (sqlite3.Error, OSError, StoreError) as error:
            self._queue.settle(unwritten=writable, unwritable=unwritable)
            return self._recover(error)
        finally:
            self.rejected += len(unwritable)
        self._queue.settle(written=writable, unwritable=unwritable)
        self._failures_in_a_row = 0
        return True

    def _open_table(self) -> Table:
        there = self._file.is_there()
        if self._damaged or not there:
            if there:
                _log.warning("store %s: the database is damaged; it is set aside as *-damaged", self._file.path)
            else:
                _log.warning("store %s: the file was removed or replaced; it is opened anew", self._file.path)
                self._note("removed")
            self._file.reopen(damaged=self._damaged)
            self._damaged = False
            self.deleted += self.rows
            self._table = None
            self._on_reopened()
        if self._table is None:
            self._table = Table(self._file.writer)
            self._reserved = self._file.restore_reserve()
        return self._table

    def _write(self, table: Table, rows: Sequence[Columns]) -> None:
        self._lost_ends |= self._queue.take_lost_ends()
        if not rows and not self._lost_ends:
            return
        table.write(rows, self._lost_ends)
        self._lost_ends.clear()
        self.written += len(rows)
        self._unchecked_bytes += sum(len(row.packed) for row in rows)
        self._file.tend_log()

    def _write_each(self, table: Table, rows: Sequence[Columns]) -> set[int]:
        """Write the rows one by one, so that a bad one takes no other with it; the places of the bad ones."""
        bad = set()
        for index, row in enumerate(rows):
            try:
                self._write(table, [row])
            except _ROW_ERRORS:
                bad.add(index)
        return bad

    def _keep_limits(self, table: Table) -> None:
        self._unchecked_bytes = 0
        self._checked_at = time.monotonic()
        oldest_start = time.time_ns() - AGE_SECONDS * 1_000_000_000 if self._age_limit else 0
        for _ in range(_STEPS):
            deleted = table.delete_step(oldest_start)
            if not deleted:
                break
            self.deleted += deleted
            self._file.tend_log()
        while shrink(self._file.writer):
            self._file.cut_log()  # only this cuts the file
        if not self._reserved:
            self._reserved = self._file.restore_reserve()

    def _recover(self, error: sqlite3.Error | OSError | StoreError) -> bool:
        """Note the failure and do what may help; True when it is worth trying again at once."""
        code = error.sqlite_errorcode if isinstance(error, sqlite3.Error) else sqlite3.SQLITE_IOERR
        state = _STATES.get(code & 0xFF, "failed")
        if state != self.state:
            _log.warning("store %s: %s; tracing goes on", self._file.path, error)
        self._note(state)
        if state == "damaged":
            self._damaged = True
            return self._failures_in_a_row == 1
        # A file size limit or a quota comes as an I/O error; so does a passing fault, for which nothing should go.
        if self._table and (state == "full" or (state == "io_error" and self._failures_in_a_row > 1)):
            return self._make_room(self._table)
        return False

    def _note(self, state: State) -> None:
        self._failure = state
        self._failed_at = time.monotonic()
        self._failures_in_a_row += 1
        self.failures += 1

    def _make_room(self, table: Table) -> bool:
        self._file.take_reserve()
        try:
            deleted = table.make_room(self._file.lacking())
            self.deleted += deleted
            self._file.cut_log()
        except (sqlite3.Error, OSError):
            return False
        finally:
            self._reserved = self._file.restore_reserve()
        return deleted > 0


def _parts(rows: Sequence[Columns]) -> Iterator[Sequence[Columns]]:
    """The rows in transactions' worth; one part, though empty, at least."""
    begin = size = 0
    for end, row in enumerate(rows):
        size += len(row.packed)
        if size > _TRANSACTION_BYTES:
            yield rows[begin:end]
            begin, size = end, len(row.packed)
    yield rows[begin:]
