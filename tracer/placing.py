"""Placing: where a reader stands in its sender's count of bytes, when both began before the tracer did."""

from collections import deque

from tracer.heads import FRAME_HEADER, HEADERS, PREFACE, SETTINGS, plausible
from tracer.records import Data

MAX_PLACING_BYTES = 64 * 1024
"""Sent bytes kept to find a reader in; a reader is rarely further behind."""

MAX_OPENING = 1024
"""First bytes read that are kept: the preface, or a server's SETTINGS."""

MAX_MARKS = 4
"""Pieces of what was read that are looked for in what is sent later; a sender's record is microseconds late at most."""

MAX_READS = 64
"""Reads remembered until the reader is placed; older ones give no time to anything."""


class Placing:
    """Feed what one end sent and the other read, until one of them returns `reader's offset + delta = sender's`.

    Two counts that both start with the connection's first bytes (the client's preface, the server's SETTINGS) agree
    from the start. Else a HEADERS frame is certain: no two of one direction are alike (stream ids never repeat, and
    of a stream's blocks only the last has END_STREAM), so its bytes occur once.
    """

    __slots__ = ("_marks", "_opening", "_window", "_window_from", "reads")

    def __init__(self) -> None:
        self.reads: deque[Data] = deque(maxlen=MAX_READS)
        self._window = bytearray()  # latest bytes sent
        self._window_from = 0
        self._opening = bytearray()  # first bytes read
        self._marks: deque[tuple[bytes, int]] = deque(maxlen=MAX_MARKS)  # (bytes read, the reader's offset of them)

    def sent(self, offset: int, data: bytes) -> int | None:
        if self._window_from + len(self._window) != offset:
            self._window.clear()
            self._window_from = offset
        searched = len(self._window)
        self._window += data
        delta = self._from_start()
        for mark, at in self._marks:
            if delta is not None:
                break
            delta = self._find(mark, at, max(0, searched - len(mark)))
        if len(self._window) > MAX_PLACING_BYTES:
            cut = len(self._window) - MAX_PLACING_BYTES // 2
            del self._window[:cut]
            self._window_from += cut
        return delta

    def read(self, record: Data) -> int | None:
        self.reads.append(record)
        if record.offset == len(self._opening) < MAX_OPENING:
            self._opening += record.data
            delta = self._from_start()
            if delta is not None:
                return delta
        mark = _up_to_headers(record.data)
        if mark is None:
            return None
        self._marks.append((mark, record.offset))
        return self._find(mark, record.offset, 0)

    def _from_start(self) -> int | None:
        """0 when both counts are seen to begin with the connection."""
        if self._window_from or not self._opening:
            return None
        sent, read = self._window, self._opening
        if sent.startswith(PREFACE):
            length = len(PREFACE)
        elif len(sent) >= FRAME_HEADER and sent[3] == SETTINGS and plausible(sent, 0):
            length = FRAME_HEADER + int.from_bytes(sent[:3], "big")
        else:
            return None
        return 0 if len(read) >= length and sent[:length] == read[:length] else None

    def _find(self, mark: bytes, read_at: int, start: int) -> int | None:
        at = self._window.find(mark, start)
        if at < 0 or self._window.find(mark, at + 1) >= 0:
            return None
        return self._window_from + at - read_at


def _up_to_headers(data: bytes) -> bytes | None:
    """The bytes up to the end of the first HEADERS frame in them, when they start with frames (reads mostly do)."""
    at = 0
    while at + FRAME_HEADER <= len(data) and plausible(data, at):
        end = at + FRAME_HEADER + int.from_bytes(data[at : at + 3], "big")
        if data[at + 3] == HEADERS:
            return data[:end] if end <= len(data) else None
        at = end
    return None
