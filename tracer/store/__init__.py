"""The store: the rows of the last day in one SQLite file, written by a thread of its own, read by any others.

`feed` takes rows and never waits for the disk. What a full, read-only, broken or damaged disk costs is counted and
shown by `status`, and never stops the tracer.
"""

import contextlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tracer.errors import StoreError
from tracer.rows import Kind, Row
from tracer.store.cursor import CursorError
from tracer.store.file import File
from tracer.store.overview import Overview, read_overview
from tracer.store.query import (
    Filter,
    Page,
    Pod,
    PodRow,
    Window,
    read_page,
    read_pods,
    read_row,
    read_rows,
    read_timeline,
)
from tracer.store.queue import Queue
from tracer.store.readers import Readers
from tracer.store.retention import STORE_BYTES, STORE_BYTES_LEAST
from tracer.store.writer import State, Writer

__all__ = [
    "EXPORT_MOST",
    "LIMIT",
    "LIMIT_MOST",
    "OVERVIEW",
    "OVERVIEW_MOST",
    "STORE_BYTES",
    "CursorError",
    "Filter",
    "Overview",
    "Page",
    "Pod",
    "PodRow",
    "Status",
    "Store",
    "Window",
]

# Rows of a page when nothing is said, and at most: the JSON of a thousand calls is about 750 kB.
LIMIT = 100
LIMIT_MOST = 1000

# Lines of an overview when nothing is said, and at most: a page draws as many in one frame.
OVERVIEW = 5000
OVERVIEW_MOST = 20_000

# Rows of an export at most; in memory they take some 3 KB each while it is made.
EXPORT_MOST = 20_000

# How long `flush` waits for the disk.
_PATIENCE_SECONDS = 30.0

_ALWAYS = Window()
_ALL = Filter()


@dataclass(frozen=True, slots=True)
class Status:
    """How the store is; the counters began at 0 with this process.

    `queued`, `written`, `rejected` (too large or no JSON), `dropped` (the queue was full), `deleted` (age, size, or
    damage) count rows; `bytes` are of all files; `failures` counts what the disk refused.
    """

    state: State
    rows: int
    bytes: int
    queued: int
    written: int
    rejected: int
    dropped: int
    deleted: int
    failures: int


class Store:
    """The rows of one node. Every method may be called from any thread."""

    def __init__(self, path: Path | None, *, max_bytes: int = STORE_BYTES, patient: bool = False) -> None:
        """Open or make the store at `path`, all its files together no larger than `max_bytes`.

        A `patient` store is for a replay: `feed` waits when the disk is slow rather than drop rows, and no row is too
        old. Without a path it is patient, private and temporary. Raises StoreError when the file is another
        program's, of a newer version, in use, or cannot be written.
        """
        if max_bytes < STORE_BYTES_LEAST:
            raise StoreError(f"a store of {max_bytes} bytes is too small; give it at least {STORE_BYTES_LEAST}")
        patient = patient or path is None
        with contextlib.ExitStack() as made:
            self.path = path or Path(made.enter_context(tempfile.TemporaryDirectory(prefix="criscope-")), "store.db")
            self._file = File(self.path, max_bytes, durable=path is not None)
            made.callback(self._file.close)
            self._queue = Queue(patient=patient)
            self._readers = Readers(self._file.connect_reader)
            self._writer = Writer(self._file, self._queue, age_limit=not patient, on_reopened=self._readers.renew)
            made.callback(self._writer.close)
            made.callback(self._readers.renew)
            made.callback(self._queue.close)
            self._made = made.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def feed(self, rows: Iterable[Row]) -> None:
        """Hand over rows. They can be read about a second later, or after `flush`."""
        self._queue.feed(rows)

    def flush(self, timeout: float = _PATIENCE_SECONDS) -> bool:
        """Wait until every row handed over is written, rejected or dropped; False when that takes too long (s)."""
        return self._queue.wait_written(timeout)

    def close(self) -> None:
        """Write what waits and let go of the files. Nothing may be fed or read afterwards."""
        self._made.close()

    def page(
        self,
        kind: Kind,
        window: Window = _ALWAYS,
        where: Filter = _ALL,
        *,
        limit: int = LIMIT,
        cursor: str | None = None,
        now: int = 0,
    ) -> Page:
        """The rows of `kind` that match, newest start first; `now` in Unix ns is where open rows have got to.

        A page may hold fewer than `limit` rows, when they are large, and yet have a next one. Raises CursorError, and
        StoreError when the file cannot be read, as every method below does.
        """
        with self._readers.lend() as db:
            return read_page(db, kind, window, where, limit=limit, cursor=cursor, now=now)

    def row(self, kind: Kind, id_: str) -> str | None:
        """The JSON of one row, or None. Of several runs that used the id, the newest."""
        with self._readers.lend() as db:
            return read_row(db, kind, id_)

    def pods(
        self,
        *,
        namespace: str | None = None,
        name: str | None = None,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> tuple[list[Pod], str | None]:
        """The pods that rows name, last met first, and the next cursor. Raises CursorError."""
        with self._readers.lend() as db:
            return read_pods(db, namespace=namespace, name=name, limit=limit, cursor=cursor)

    def timeline(
        self, namespace: str, name: str, window: Window = _ALWAYS, *, limit: int = LIMIT, cursor: str | None = None
    ) -> tuple[list[PodRow], str | None]:
        """The rows of every pod of that name, of all kinds, newest first, and the next cursor. Raises CursorError."""
        with self._readers.lend() as db:
            return read_timeline(db, namespace, name, window, limit=limit, cursor=cursor)

    def overview(
        self, window: Window, *, pod: str | None = None, namespace: str | None = None, limit: int = OVERVIEW
    ) -> Overview:
        """One line for each thing that touches the window, thinned to `limit`."""
        with self._readers.lend() as db:
            return read_overview(db, window, pod=pod, namespace=namespace, limit=limit)

    def rows(self, window: Window, limit: int = EXPORT_MOST) -> list[Row]:
        """The rows of every kind that touch the window, the newest first."""
        with self._readers.lend() as db:
            return read_rows(db, window, limit)

    def status(self) -> Status:
        """How the store is now; asks no disk but for the sizes of the files."""
        writer = self._writer
        return Status(
            state=writer.state,
            rows=writer.rows,
            bytes=self._file.size(),
            queued=len(self._queue),
            written=writer.written,
            rejected=writer.rejected,
            dropped=self._queue.dropped,
            deleted=writer.deleted,
            failures=writer.failures,
        )
