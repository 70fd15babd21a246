"""The thread that writes rows to the database, and keeps going whatever the disk does."""

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from tracer.errors import StoreError
from tracer.rows import Row
from tracer.store.columns import Columns, Pod, columns
from tracer.store.file import File
from tracer.store.queue import Key, Queue
from tracer.store.retention import AGE_SECONDS, keep_within, make_room, shrink

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

# Of JSON in one transaction: with the indexes less than twice that, for which the log and the file have room.
_TRANSACTION_BYTES = 1 << 19

# Deleting in a row at the most, then waiting rows have their turn: enough to outrun the fastest writing.
_STEPS = 4

# Looked through for the last thing a killed run saw.
_LAST_ROWS = 1000

# What a row, not the disk, can do wrong: a value of a type that its column has not.
_ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)

_UPSERT = (
    'INSERT INTO row (run, kind, id, start, "end", duration, method, status, activity, pod, fields)'
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, id, run) DO UPDATE SET"
    ' "end" = excluded."end", duration = excluded.duration, method = excluded.method, status = excluded.status,'
    " activity = excluded.activity, pod = excluded.pod, fields = excluded.fields"
)

# What is known of a thing whose end was never written: that it began, and nothing else.
_CLOSE = (
    "UPDATE row SET \"end\" = max(start, ?), status = 'unknown', fields ="
    " json_set(fields, iif(kind = 'call', '$.ended_by', '$.outcome'), 'unknown') WHERE \"end\" IS NULL AND "
)

_log = logging.getLogger(__name__)


class Writer:
    """Takes batches off `queue` until that is closed and empty. Any thread may read its counters."""

    def __init__(self, file: File, queue: Queue, *, age_limit: bool, on_replaced: Callable[[], None]) -> None:
        """`on_replaced` is called when the database had to be replaced: whoever reads must open it anew."""
        self._file = file
        self._queue = queue
        self._age_limit = age_limit
        self._on_replaced = on_replaced
        self._stopping = threading.Event()
        self._run: int | None = None
        self._pods: dict[Pod, int] = {}
        self._lost_ends: dict[Key, int] = {}
        self._reserved = False
        self._damaged = False
        self._failure: State | None = None
        self._failed_at = 0.0
        self._failures_in_a_row = 0
        self.rows = 0
        self.written = 0
        self.rejected = 0
        self.deleted = 0
        self.failures = 0
        self._thread = threading.Thread(target=self._work, name="criscope-store", daemon=True)
        self._thread.start()

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
            if self._damaged or not self._file.is_there():
                self._reopen()
            if self._run is None:
                self._run = self._begin_run()
            try:
                for part in _parts(encoded):
                    self._write(part)
                    self._keep_limits()
            except _ROW_ERRORS:
                bad = self._write_each(encoded)
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

    def _begin_run(self) -> int:
        """A new number for this run's ids. What a killed run left open ends, unknown how, when it last saw anything."""
        with self._transaction():
            (number,) = self._file.writer.execute("UPDATE run SET number = number + 1 RETURNING number").fetchone()
            query = 'SELECT max(coalesce("end", start)) FROM row WHERE seq > (SELECT max(seq) FROM row) - ?'
            (last,) = self._file.writer.execute(query, (_LAST_ROWS,)).fetchone()
            self._file.writer.execute(_CLOSE + "true", (last or 0,))
        (self.rows,) = self._file.writer.execute("SELECT count(*) FROM row").fetchone()
        self._reserved = self._file.restore_reserve()
        return int(number)

    def _write(self, encoded: Sequence[Columns]) -> None:
        self._lost_ends |= self._queue.take_lost_ends()
        with self._transaction():
            before = self._last_seq()
            self._file.writer.executemany(_UPSERT, [self._parameters(row) for row in encoded])
            inserted = self._last_seq() - before
            ends = [(end, *key, self._run) for key, end in self._lost_ends.items()]
            self._file.writer.executemany(_CLOSE + "kind = ? AND id = ? AND run = ?", ends)
        self._lost_ends.clear()
        self.rows += inserted
        self.written += len(encoded)
        self._file.tend_log()

    def _write_each(self, encoded: Sequence[Columns]) -> set[int]:
        """Write the rows one by one, so that a bad one takes no other with it; the places of the bad ones."""
        bad = set()
        for index, row in enumerate(encoded):
            try:
                self._write([row])
            except _ROW_ERRORS:
                bad.add(index)
        return bad

    def _parameters(self, row: Columns) -> tuple[object, ...]:
        return (self._run, *row[:8], None if row.pod is None else self._pod_key(row.pod), row.fields)

    def _pod_key(self, pod: Pod) -> int:
        key = self._pods.get(pod)
        if key is None:
            self._file.writer.execute(
                "INSERT INTO pod (namespace, name, uid) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", pod
            )
            query = "SELECT key FROM pod WHERE namespace = ? AND name = ? AND uid = ?"
            (key,) = self._file.writer.execute(query, pod).fetchone()
            self._pods[pod] = key
        return key

    def _last_seq(self) -> int:
        (last,) = self._file.writer.execute("SELECT coalesce(max(seq), 0) FROM row").fetchone()
        return int(last)

    def _keep_limits(self) -> None:
        oldest_start = time.time_ns() - AGE_SECONDS * 1_000_000_000 if self._age_limit else 0
        for _ in range(_STEPS):
            deleted = keep_within(self._file.writer, oldest_start)
            if not deleted:
                break
            self._pods.clear()  # some pods may have gone with their last row
            self.rows -= deleted
            self.deleted += deleted
            self._file.tend_log()
        if shrink(self._file.writer):
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
        if state == "full" or (state == "io_error" and self._failures_in_a_row > 1):
            return self._make_room()
        return False

    def _note(self, state: State) -> None:
        self._failure = state
        self._failed_at = time.monotonic()
        self._failures_in_a_row += 1
        self.failures += 1

    def _make_room(self) -> bool:
        self._file.take_reserve()
        try:
            deleted = make_room(self._file.writer, self._file.lacking())
            self._file.cut_log()
        except (sqlite3.Error, OSError):
            return False
        finally:
            self._pods.clear()
            self._reserved = self._file.restore_reserve()
        self.rows -= deleted
        self.deleted += deleted
        return deleted > 0

    def _reopen(self) -> None:
        if not self._damaged:
            _log.warning("store %s: the file was removed or replaced; it is opened anew", self._file.path)
            self._note("removed")
        self._file.reopen(damaged=self._damaged)
        self._damaged = False
        self._run = None
        self._pods.clear()
        self.deleted += self.rows
        self.rows = 0
        self._on_replaced()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._file.writer.execute("COMMIT")
        except BaseException:
            self._pods.clear()  # those made within it are gone
            if self._file.writer.in_transaction:
                self._file.writer.execute("ROLLBACK")
            raise


def _parts(rows: Sequence[Columns]) -> Iterator[Sequence[Columns]]:
    """The rows in transactions' worth."""
    begin = size = 0
    for end, row in enumerate(rows):
        size += len(row.fields)
        if size > _TRANSACTION_BYTES:
            yield rows[begin:end]
            begin, size = end, len(row.fields)
    yield rows[begin:]
