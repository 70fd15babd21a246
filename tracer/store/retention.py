"""Keeps the store within its age and its size, a small step at a time so that rows never wait long behind it."""

import sqlite3
from typing import get_args

from tracer.rows import Kind

# Two nights are seldom looked at together, and one is always whole.
AGE_SECONDS = 24 * 3600

# Of all files together. About half a million calls: a day of a quiet node, an hour and a half at 100 calls a second.
STORE_BYTES = 512 << 20

# The log and the reserve take 16 MiB of it, whatever the size.
STORE_BYTES_LEAST = 32 << 20

# One transaction of about 20 ms; more than a batch, so that deleting keeps up with writing.
STEP_ROWS = 1000

# Steps in a row at the most, then waiting rows have their turn.
STEPS = 10

# Deleting begins at this part of the largest size: below it a batch always finds room.
_FULL = 0.9

# Free pages are given back when they are more than this part of the file: giving back each at once would only make
# the file grow again.
_SLACK = 0.125
_VACUUM_PAGES = 256

_DELETE = "DELETE FROM row WHERE seq IN (SELECT seq FROM row {} LIMIT ?)"
_DELETE_OLDEST_ENDED = _DELETE.format('WHERE "end" IS NOT NULL ORDER BY seq')
_DELETE_OLDEST = _DELETE.format("ORDER BY seq")
_DELETE_BEFORE = _DELETE.format(
    'INDEXED BY row_by_time WHERE kind = ? AND start < ? AND "end" IS NOT NULL ORDER BY start'
)


def keep_within(db: sqlite3.Connection, oldest_start: int) -> int:
    """Delete rows that started before `oldest_start` (Unix ns), and the oldest ones while the file is too full.

    An open row stays whatever its age. Returns how many rows went. Raises sqlite3.Error.
    """
    deleted = 0
    for kind in get_args(Kind):
        deleted += db.execute(_DELETE_BEFORE, (kind, oldest_start, STEP_ROWS)).rowcount
    for _ in range(STEPS):
        if not _is_full(db):
            break
        deleted += _delete_step(db)
    if deleted:
        _delete_pods(db)
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free > pages * _SLACK:
        _give_back(db, _VACUUM_PAGES)
    return deleted


def make_room(db: sqlite3.Connection) -> int:
    """Delete the oldest rows of a store that cannot grow, and cut the file by what they took; how many rows went.

    Needs as much room in the log as it frees in the file. Raises sqlite3.Error.
    """
    deleted = _delete_step(db)
    _delete_pods(db)
    _give_back(db, 0)
    return deleted


def _is_full(db: sqlite3.Connection) -> bool:
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    (most,) = db.execute("PRAGMA max_page_count").fetchone()
    return bool(pages - free > most * _FULL)


def _delete_step(db: sqlite3.Connection) -> int:
    # Only when everything is open does an open row go.
    deleted = db.execute(_DELETE_OLDEST_ENDED, (STEP_ROWS,)).rowcount
    return deleted or db.execute(_DELETE_OLDEST, (STEP_ROWS,)).rowcount


def _delete_pods(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM pod WHERE NOT EXISTS (SELECT 1 FROM row WHERE row.pod = pod.key)")


def _give_back(db: sqlite3.Connection, pages: int) -> None:
    """Cut up to `pages` free pages off the file; 0 is all."""
    # The pragma frees one page a step and has no columns: `execute` would stop after the first.
    db.executescript(f"PRAGMA incremental_vacuum({pages})")
