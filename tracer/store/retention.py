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

# One transaction of about 10 ms, and at worst half of what the log has room for.
STEP_ROWS = 500

# Deleting begins this far below the largest size, so that every transaction finds room.
_HEADROOM_BYTES = 4 << 20

# Free pages are given back when they are more than this part of the file: giving back each at once would only make
# the file grow again.
_SLACK = 0.125
_VACUUM_PAGES = 512

_DELETE = "DELETE FROM row WHERE seq IN (SELECT seq FROM row {} LIMIT ?)"
_DELETE_OLDEST_ENDED = _DELETE.format('WHERE "end" IS NOT NULL ORDER BY seq')
_DELETE_OLDEST = _DELETE.format("ORDER BY seq")
_DELETE_BEFORE = _DELETE.format(
    'INDEXED BY row_by_time WHERE kind = ? AND start < ? AND "end" IS NOT NULL ORDER BY start'
)


def delete_step(db: sqlite3.Connection, oldest_start: int) -> int:
    """Delete a step of the rows that started before `oldest_start` (Unix ns), or of the oldest of a file too full.

    An open row stays whatever its age. Returns how many rows went: when any did, ask again. Raises sqlite3.Error.
    """
    deleted = 0
    for kind in get_args(Kind):
        deleted += db.execute(_DELETE_BEFORE, (kind, oldest_start, STEP_ROWS)).rowcount
    if not deleted and _is_full(db):
        deleted = _delete_oldest(db)
    if deleted:
        _delete_pods(db)
    return deleted


def shrink(db: sqlite3.Connection) -> bool:
    """Give some free pages back to the file system if many are free; whether any were. Raises sqlite3.Error."""
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free <= pages * _SLACK:
        return False
    _give_back(db, _VACUUM_PAGES)
    return True


def make_room(db: sqlite3.Connection, lacking_bytes: int) -> int:
    """Delete the oldest rows of a store that cannot grow, and cut `lacking_bytes` off its end; how many rows went.

    The log takes two and a half times the bytes that are freed, a little more than lack. Raises sqlite3.Error.
    """
    deleted = _delete_oldest(db)
    while _free_bytes(db) < lacking_bytes and (count := _delete_oldest(db)):
        deleted += count
    _delete_pods(db)
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    _give_back(db, lacking_bytes // page_bytes + 1)
    return deleted


def _free_bytes(db: sqlite3.Connection) -> int:
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    return int(free * page_bytes)


def _is_full(db: sqlite3.Connection) -> bool:
    (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    (most,) = db.execute("PRAGMA max_page_count").fetchone()
    return bool((most - pages) * page_bytes + _free_bytes(db) < _HEADROOM_BYTES)


def _delete_oldest(db: sqlite3.Connection) -> int:
    # Only when everything is open does an open row go.
    deleted = db.execute(_DELETE_OLDEST_ENDED, (STEP_ROWS,)).rowcount
    return deleted or db.execute(_DELETE_OLDEST, (STEP_ROWS,)).rowcount


def _delete_pods(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM pod WHERE NOT EXISTS (SELECT 1 FROM row WHERE row.pod = pod.key)")


def _give_back(db: sqlite3.Connection, pages: int) -> None:
    """Cut up to `pages` free pages off the file."""
    # The pragma frees one page a step and has no columns: `execute` would stop after the first.
    db.executescript(f"PRAGMA incremental_vacuum({pages})")
