"""Finds where a frame starts in the middle of a direction: after a gap, and when joining late."""

from collections import deque
from dataclasses import dataclass

from tracer.heads import CANDIDATE, FIXED, FRAME_HEADER, PREFACE, SETTINGS, plausible
from tracer.streams import Chunk

CERTAIN = 3
"""Plausible heads in a row that make a start certain; one of a frame that has only one length counts as two. Among
random bytes there is one in ten million; but where frames are small (as most are) every few of them a stream's number
and a message's prefix look like one."""

WHOLE = 2
"""So many are enough when the last frame ends with the chunk its head is in; that the first begins with a chunk counts
as one then, as peers write whole frames."""

MAX_RETAINED = 64 * 1024
"""Bytes kept while nothing is certain, so that the frames which made it certain are not lost."""

MAX_CANDIDATES = 64
"""Starts considered at once; a frame seldom looks as if it had more than two."""


@dataclass(slots=True)
class _Candidate:
    start: int
    next: int  # where the next head is expected
    heads: int  # in a row
    last: int  # where the latest head begins
    border: bool  # it begins with a chunk


class Search:
    """Feed chunks of one direction without gaps, until one brings certainty."""

    __slots__ = ("_buffer", "_candidates", "_chunks", "_from", "_looked", "begun", "dropped", "here")

    def __init__(self) -> None:
        self.begun = False  # the start is the connection's
        self.dropped = False  # bytes passed in which there may have been frames
        self.here = 0  # index in the latest chunk of its first frame head (of the preface, when it starts with that)
        self._chunks: deque[Chunk] = deque()
        self._buffer = bytearray()
        self._from = 0  # offset of the buffer's first byte
        self._looked = 0  # offset before which every start was considered
        self._candidates: list[_Candidate] = []

    def feed(self, chunk: Chunk) -> list[Chunk] | None:
        """The chunks from the first certain frame on; None while there is none."""
        if not self._chunks:
            self._buffer.clear()
            self._from = self._looked = chunk.offset
        self._chunks.append(chunk)
        self._buffer += chunk.data
        if self._from == 0:
            start = self._opening(chunk)
            if start is not None:
                return self._since(start) if start >= 0 else None
        self._consider(chunk)
        certain = self._follow(chunk)
        if certain is None:
            self._drop()
            return None
        head = certain.start
        while head < chunk.offset:
            at = head - self._from
            head += FRAME_HEADER + int.from_bytes(self._buffer[at : at + 3], "big")
        self.here = head - chunk.offset
        self.dropped |= certain.start > self._from
        return self._since(certain.start)

    def _opening(self, chunk: Chunk) -> int | None:
        """Where frames begin at a connection's start; -1 while that is undecided, None when it is not seen here."""
        buffer = self._buffer
        if chunk.way == "request":
            if buffer.startswith(PREFACE):
                self.begun = True
                self.here = len(PREFACE) - chunk.offset if chunk.offset else 0
                return len(PREFACE)
            return -1 if PREFACE.startswith(buffer) else None
        if len(buffer) < FRAME_HEADER:
            return -1
        if buffer[3] == SETTINGS and not buffer[4] and plausible(buffer, 0):
            # A server's first frame (RFC 9113, section 3.4).
            self.begun = True
            return 0
        return None

    def _consider(self, chunk: Chunk) -> None:
        """Add the starts whose head is complete now."""
        buffer = self._buffer
        for found in CANDIDATE.finditer(buffer, self._looked - self._from):
            at = found.start()
            if plausible(buffer, at) and len(self._candidates) < MAX_CANDIDATES:
                start = self._from + at
                after = start + FRAME_HEADER + int.from_bytes(buffer[at : at + 3], "big")
                self._candidates.append(_Candidate(start, after, _weight(buffer, at), start, start == chunk.offset))
        self._looked = max(self._looked, self._from + len(buffer) - FRAME_HEADER + 1)

    def _follow(self, chunk: Chunk) -> _Candidate | None:
        """The first candidate that is certain now; those whose next frame is none are dropped."""
        buffer, end = self._buffer, self._from + len(self._buffer)
        left = []
        for candidate in self._candidates:
            while candidate.heads < CERTAIN and candidate.next + FRAME_HEADER <= end:
                at = candidate.next - self._from
                if not plausible(buffer, at):
                    break
                candidate.heads += _weight(buffer, at)
                candidate.last = candidate.next
                candidate.next += FRAME_HEADER + int.from_bytes(buffer[at : at + 3], "big")
            else:
                whole = candidate.next == end and candidate.last >= chunk.offset
                if candidate.heads >= CERTAIN or (whole and candidate.heads + candidate.border >= WHOLE):
                    return candidate
                left.append(candidate)
        self._candidates = left
        return None

    def _since(self, start: int) -> list[Chunk]:
        chunks = []
        for chunk in self._chunks:
            if chunk.offset >= start:
                chunks.append(chunk)
            elif chunk.offset + len(chunk.data) > start:
                data = chunk.data[start - chunk.offset :]
                chunks.append(Chunk(chunk.connection, chunk.way, chunk.time, start, data, chunk.filled))
        return chunks

    def _drop(self) -> None:
        """Forget what no start can lie in any more."""
        end = self._from + len(self._buffer)
        oldest = max(end - MAX_RETAINED, self._from)
        self._candidates = [candidate for candidate in self._candidates if candidate.start >= oldest]
        keep = min(self._candidates[0].start if self._candidates else end, self._looked, end)
        while self._chunks and self._chunks[0].offset + len(self._chunks[0].data) <= keep:
            self._chunks.popleft()
            self.dropped = True
        if not self._chunks:
            return
        first = self._chunks[0].offset
        if first > self._from:
            del self._buffer[: first - self._from]
            self._from = first


def _weight(buffer: bytearray, at: int) -> int:
    return 2 if buffer[at + 3] in FIXED else 1
