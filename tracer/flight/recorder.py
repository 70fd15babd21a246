"""The flight recorder: a thread of its own that redacts records and writes them to the ring."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tracer.flight.directory import Directory
from tracer.flight.recordings import Download, Frozen, identity, moment
from tracer.flight.ring import PROGRAM, Ring
from tracer.records import Data, Lost, Record
from tracer.redact import Redactor
from tracer.redact.redactor import MAX_HELD_NS

log = logging.getLogger(__name__)

QUEUE_BYTES = 16 * 1024 * 1024
"""Bytes of records that wait: the largest answer the kubelet accepts, or a second of a node that is very busy."""

RECORD_BYTES = 600
"""What a record that waits costs besides its data."""

WAKE_BYTES = 1024 * 1024
"""So much is not left waiting for the next time."""

WAKE_SECONDS = 0.5
"""How long records wait for company: waking for each would cost more than what is done for it."""

HELD_AT_FREEZE_NS = 2_000_000_000
"""At a freeze, records that wait for longer for the rest of a message are written without it: they are the
evidence, and what is not on the disk may be gone the next moment."""

MAX_TRACEBACKS = 3
"""Mistakes of ours logged in full; after so many they are only counted."""


class FlightRecorder:
    """Records from construction to `close`; every method may be called by any thread, and only `close` waits.

    `realtime_offset`: wall clock minus monotonic clock now, ns. Raises FlightError when the directory cannot be had.
    """

    def __init__(self, path: Path, realtime_offset: Callable[[], int]) -> None:
        self._directory = Directory(path)
        try:
            self._ring = Ring(self._directory, realtime_offset)
            self._frozen_id = max((each.id for each in self._ring.recordings.every()), default="")
        except BaseException:
            self._directory.close()
            raise
        self._redactor = Redactor(orderly=True)
        self._changed = threading.Condition()
        self._batches: list[Sequence[Record]] = []
        self._bytes = 0
        self._freezes: list[tuple[str, str]] = []
        self._pending: str | None = None
        self._closed = False
        self._may_work = threading.Event()
        self._may_work.set()
        self._dropped = 0
        self._untold = 0  # of them, since the last batch that was taken
        self._errors = 0
        self._cpu_ns = 0
        self._thread = threading.Thread(target=self._run, name="flight", daemon=True)
        self._thread.start()

    def feed(self, records: Sequence[Record]) -> None:
        """Take records, or drop them when too many wait. The sequence must not be changed afterwards."""
        size = sum([len(each.data) for each in records if type(each) is Data]) + RECORD_BYTES * len(records)
        with self._changed:
            if self._closed or not records:
                return
            if self._bytes + size > QUEUE_BYTES:
                self._dropped += len(records)
                self._untold += len(records)
                return
            if self._untold:
                self._batches.append([Lost(records[0].time, PROGRAM, self._untold)])
                self._untold = 0
            self._batches.append(records)
            self._bytes += size
            if self._bytes >= WAKE_BYTES:
                self._changed.notify()

    def give_way(self, *, needed: bool) -> None:
        """While `needed` records are only queued, and dropped when the queue is full.

        The two threads share an interpreter, and a tracer that falls behind loses records for good.
        """
        if needed:
            self._may_work.clear()
        else:
            self._may_work.set()

    def freeze(self, reason: str) -> Frozen:
        """Keep the ring and the next seconds as a recording; a recording that is under way takes the reason as well."""
        with self._changed:
            if self._pending is None:
                now = time.time_ns()
                id_ = identity(now)
                if id_ <= self._frozen_id:
                    id_ = identity(moment(self._frozen_id) + 1_000_000)
                self._pending = self._frozen_id = id_
            self._freezes.append((self._pending, reason))
            self._changed.notify()
            return Frozen(self._pending, moment(self._pending), (reason,))

    def recordings(self) -> list[Frozen]:
        """Every recording, the newest first. Raises OSError."""
        return self._ring.recordings.every()

    def open(self, id_: str) -> Download:
        """A recording as one capture. Raises FlightError when there is none of that id, OSError."""
        return self._ring.recordings.open(id_)

    def status(self) -> dict[str, Any]:
        """How it is. `trouble`: why the disk does not take records, null while it does; times are Unix ns."""
        ring = self._ring
        return {
            "recording": self._thread.is_alive() and ring.trouble is None,
            "trouble": ring.trouble,
            "directory": str(self._directory.path),
            "begin": ring.begin,
            "bytes": ring.bytes,
            "written": ring.written,
            "unwritten": ring.unwritten,
            "dropped": self._dropped,
            "waiting_bytes": self._bytes,
            "errors": self._errors,
            "cpu_seconds": self._cpu_ns / 1e9,
        }

    def close(self) -> None:
        """Write what waits, and stop."""
        with self._changed:
            self._closed = True
            self._may_work.set()
            self._changed.notify()
        self._thread.join()
        self._directory.close()

    def _run(self) -> None:
        while not self._closed or self._batches:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._freezes or self._bytes >= WAKE_BYTES, timeout=WAKE_SECONDS
                )
                batches, self._batches, self._bytes = self._batches, [], 0
                freezes, self._freezes = self._freezes, []
            for batch in batches:
                for record in batch:
                    self._may_work.wait()
                    with self._guarded():
                        self._write(self._redactor.feed(record))
            with self._guarded():
                self._tick(freezes)
            self._cpu_ns = time.thread_time_ns()
        with self._guarded():
            self._end()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A mistake of ours must not end the recording of what comes next."""
        try:
            yield
        except Exception as error:
            self._errors += 1
            if isinstance(error, OSError):
                log.warning("flight recorder: %s", error)
            elif self._errors <= MAX_TRACEBACKS:
                log.exception("flight recorder: a mistake; please report this")

    def _write(self, records: list[Record]) -> None:
        for record in records:
            self._ring.write(record)

    def _tick(self, freezes: Sequence[tuple[str, str]]) -> None:
        now = time.monotonic_ns()
        later = MAX_HELD_NS - HELD_AT_FREEZE_NS if freezes else 0
        self._write(self._redactor.expire(now + later))
        for id_, reason in freezes:
            self._ring.freeze(id_, reason, now)
        oldest = self._redactor.waiting_since
        self._ring.tick(now, now if oldest is None else oldest)
        with self._changed:
            if self._ring.pending is None and not self._freezes:
                self._pending = None

    def _end(self) -> None:
        self._write(self._redactor.flush())
        self._ring.close(time.monotonic_ns())
