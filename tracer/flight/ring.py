"""The ring: the latest segments in a directory, bounded by age and size, and what is kept of them."""

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from tracer.flight.directory import UNFINISHED_NOTE, Directory
from tracer.flight.recordings import MAX_REASON, Frozen, Recordings, identity, moment, segment_name
from tracer.flight.segment import Segment
from tracer.records import Lost, Record

log = logging.getLogger(__name__)

AGE_NS = 300_000_000_000
"""How far back the ring reaches: a relist hangs for three minutes before the node is called NotReady."""

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of the ring. A quiet node of a hundred pods writes 10 kB/s, 3 MB in five minutes."""

SEGMENT_NS = 15_000_000_000
"""Time of a segment: the ring's age is kept to so much, and what repeats is written once in so much."""

SEGMENTS = 16
"""A segment ends early at this part of the ring's bytes."""

FLUSH_NS = 1_000_000_000
"""A process that is killed loses the records of so much time."""

FLUSH_BYTES = 512 * 1024
"""Bytes of lines kept for a flush at most."""

AFTER_NS = 10_000_000_000
"""What is recorded after a freeze: the finding is a few seconds old, and the runtime's restart may follow."""

RETRY_NS = 5_000_000_000
"""How long a disk that refused is left alone."""

LEFT = "left by an earlier run"
"""The reason of what is found at the start. A run that ends, however it does, leaves its ring behind."""

LEFT_SEGMENTS = 4
"""A run of fewer segments does not take the place of an earlier one's recording: of one that is killed again and again
the first is worth most."""

MAX_REASONS = 16
"""Reasons of one recording: there are fewer rules than that which are critical."""

PROGRAM = "flight"
"""What `Lost` records of the recorder name."""

_NAME = re.compile(r"ring\.\d{10}\.gz")


@dataclass(slots=True)
class _Kept:
    """A segment in the ring. `begin`, `end`: times of its first and latest record."""

    name: str
    number: int
    begin: int
    end: int
    bytes: int = 0


class Ring:
    """One thread at a time. Times are of the records; `realtime_offset` gives what makes them Unix time.

    A disk that refuses ends the segment: `trouble` says why, records are counted as `unwritten` and the file will say
    how many were lost; after a while a new one is tried.
    """

    def __init__(
        self, directory: Directory, realtime_offset: Callable[[], int], *, most_bytes: int = MOST_BYTES
    ) -> None:
        self.recordings = Recordings(directory)
        self.pending: Frozen | None = None
        self.trouble: str | None = None
        self.written = 0
        self.unwritten = 0
        self._until = 0  # of records that are added to the pending recording
        self._directory = directory
        self._realtime_offset = realtime_offset
        self._most_bytes = most_bytes
        self._segments: deque[_Kept] = deque()  # the latest may still be open
        self._open: Segment | None = None
        self._number = 0
        self._waiting = 0  # records since the last flush
        self._flush_at = 0
        self._retry_at = 0
        self._lost = 0  # records lost since the latest that was written
        self._keep_left()

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self._segments)

    @property
    def segments(self) -> int:
        return len(self._segments)

    @property
    def begin(self) -> int | None:
        """Unix ns of its oldest record."""
        return self._segments[0].begin + self._realtime_offset() if self._segments else None

    def _keep_left(self) -> None:
        """What an earlier run left becomes a recording; a run that was too short for that leaves the one before."""
        files = [name for name, _ in self._directory.files()]
        for name in files:
            if name.endswith(UNFINISHED_NOTE):
                self._directory.remove(name)
        names = sorted(name for name in files if _NAME.fullmatch(name))
        before = [each for each in self.recordings.every() if LEFT in each.reasons]
        if len(names) < LEFT_SEGMENTS and before:
            for name in names:
                self._directory.remove(name)
        elif names:
            frozen = Frozen(identity(time.time_ns()), 0, (LEFT,))
            for name in names:
                self._directory.rename(name, segment_name(frozen.id, int(name[5:-3])))
            self.recordings.note(frozen)
            for each in before:
                self.recordings.remove(each.id)
            self.recordings.trim()

    def write(self, record: Record) -> None:
        now = record.time
        if self._open is not None and self._is_full(now):
            self._finish(now)
        if self._open is None and not self._begin(now):
            self.unwritten += 1
            self._lost += 1
            return
        assert self._open is not None
        self._open.write(record)
        self._waiting += 1
        kept = self._segments[-1]
        kept.end = max(kept.end, now)
        if self._open.waiting >= FLUSH_BYTES:
            self._flush(now)

    def tick(self, now: int, settled: int) -> None:
        """To be called a few times a second; every record before `settled` was given to `write`."""
        if self._open is not None and now >= self._flush_at:
            self._flush(now)
        if self.pending is not None and settled >= self._until:
            self._complete(now)
        if self.trouble is None:
            self._prune()

    def freeze(self, id_: str, reason: str, now: int) -> None:
        """Keep what there is and what comes soon as recording `id_`; add the reason to one that is under way.

        Raises OSError when not even that much fits on the disk.
        """
        if self.pending is None:
            self._finish(now)
            self.pending = Frozen(id_, moment(id_), (reason[:MAX_REASON],), self.begin)
            self._until = now + AFTER_NS
            for kept in self._segments:
                self.recordings.keep(id_, kept.name, kept.number)
        elif reason not in self.pending.reasons and len(self.pending.reasons) < MAX_REASONS:
            self.pending = replace(self.pending, reasons=(*self.pending.reasons, reason[:MAX_REASON]))
        self.recordings.note(self.pending)

    def close(self, now: int) -> None:
        """Everything on the disk; it is found there at the next start."""
        self._finish(now)
        if self.pending is not None:
            self._complete(now)

    def _complete(self, now: int) -> None:
        self._finish(now)
        pending, self.pending = self.pending, None
        assert pending is not None
        end = self._segments[-1].end + self._realtime_offset() if self._segments else None
        try:
            self.recordings.note(replace(pending, end=end))
            self.recordings.trim()
        except OSError as error:
            self._refused(error, now)

    def _is_full(self, now: int) -> bool:
        kept = self._segments[-1]
        return now - kept.begin >= SEGMENT_NS or kept.bytes >= self._most_bytes // SEGMENTS

    def _begin(self, now: int) -> bool:
        if self.trouble is not None and now < self._retry_at:
            return False
        name = f"ring.{self._number:010}.gz"
        try:
            fd = self._directory.create(name)
            if self.pending is not None:
                self.recordings.keep(self.pending.id, name, self._number)
        except OSError as error:
            self._refused(error, now)
            return False
        self._segments.append(_Kept(name, self._number, now, now))
        self._number += 1
        self._flush_at = now + FLUSH_NS
        self._open = Segment(fd, self._realtime_offset())
        if self._lost:
            self._open.write(Lost(now, PROGRAM, self._lost))
        return True

    def _flush(self, now: int) -> None:
        segment, kept = self._open, self._segments[-1]
        assert segment is not None
        self._flush_at = now + FLUSH_NS
        try:
            segment.flush()
        except OSError as error:
            self._refused(error, now)
            self.unwritten += self._waiting
            self._lost += self._waiting
            self._close(now)
        else:
            self.written += self._waiting
            self._lost = 0
            self.trouble = None
        self._waiting = 0
        kept.bytes = segment.bytes

    def _finish(self, now: int) -> None:
        if self._open is not None and (self._waiting or self._lost):
            self._flush(now)
        if self._open is not None:
            self._close(now)

    def _close(self, now: int) -> None:
        segment, self._open = self._open, None
        assert segment is not None
        try:
            segment.close()
        except OSError as error:
            self._refused(error, now)
        kept = self._segments[-1]
        kept.bytes = segment.bytes
        if not kept.bytes:
            self._segments.pop()
            self._directory.remove(kept.name)

    def _refused(self, error: OSError, now: int) -> None:
        if self.trouble is None:
            log.warning("the flight recorder stops: %s", error.strerror)
        self.trouble = error.strerror or str(error)
        self._retry_at = now + RETRY_NS

    def _prune(self) -> None:
        """Of what has no records for long the latest stay: the ring's age is counted from its latest record."""
        total = self.bytes
        oldest = self._segments[-1].end - AGE_NS if self._segments else 0
        while len(self._segments) > 1 and (total > self._most_bytes or self._segments[0].end < oldest):
            gone = self._segments.popleft()
            self._directory.remove(gone.name)
            total -= gone.bytes
