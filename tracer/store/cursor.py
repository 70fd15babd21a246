"""Cursors: a place in the total order of rows, opaque outside.

Rows are ordered by (`start`, order of arrival), and a row that is replaced keeps its place. A cursor is a place in that
order together with the time window of its first page: however many rows come or change meanwhile, a walk from page to
page meets each row at most once and leaves out none that was there when it began.
"""

import base64
import binascii
import struct
import zlib
from dataclasses import dataclass

from tracer.store.columns import INTEGER_MAX

_NONE = "not a cursor of this program; take it from `next` of the page before"
_LAYOUT = struct.Struct(">qqqqI")


class CursorError(ValueError):
    """The text is no cursor, or it belongs to a query with other filters."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """What comes next is older than the row `seq` that started at `start`, and lies in [`since`, `until`); Unix ns."""

    since: int
    until: int
    start: int
    seq: int

    def encode(self, words: object) -> str:
        """As text that only a query with the same `words` accepts: whatever it asks for beside the time window."""
        packed = _LAYOUT.pack(self.since, self.until, self.start, self.seq, _digest(words))
        return base64.urlsafe_b64encode(packed).decode()

    @classmethod
    def decode(cls, text: str, words: object) -> "Cursor":
        """The cursor that `encode` made into `text`. Raises CursorError."""
        try:
            *numbers, digest = _LAYOUT.unpack(base64.b64decode(text, altchars=b"-_", validate=True))
        except (binascii.Error, struct.error, ValueError) as error:
            raise CursorError(_NONE) from error
        if min(numbers) < 0:
            raise CursorError(_NONE)
        if digest != _digest(words):
            raise CursorError("the cursor belongs to other filters; repeat those of the first page with it")
        return cls(*numbers)


def begin(since: int | None, until: int | None) -> Cursor:
    """The place before the newest row of a window whose ends may be open."""
    return Cursor(since or 0, INTEGER_MAX if until is None else until, INTEGER_MAX, INTEGER_MAX)


def _digest(words: object) -> int:
    return zlib.crc32(repr(words).encode("utf-8", "surrogatepass"))
