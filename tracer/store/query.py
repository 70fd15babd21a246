"""What is read from the store: pages of rows, newest first, one row, a pod's timeline, and the pods."""

import sqlite3
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from tracer.rows import Kind, Row
from tracer.store.cursor import Cursor, begin
from tracer.store.packing import unpack

# Of the JSON of one page. A browser shows that at once, and no answer grows with the calls a relist made.
PAGE_BYTES = 1 << 20

# What began before a window and reaches into it is looked for as far back as this.
REACH_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Starts at or after `since` and before `until` (Unix ns; None is open)."""

    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What rows must be equal to, None matching all. `min_duration` is in seconds; an open row has lasted till now."""

    pod: str | None = None
    namespace: str | None = None
    method: str | None = None
    status: str | None = None
    min_duration: float | None = None
    activity: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """JSON objects as text, and the cursor of the page that follows: None when this is the last."""

    items: list[str]
    next: str | None


@dataclass(frozen=True, slots=True)
class PodRow:
    """One row of a pod's timeline; `uid` is empty when unknown."""

    uid: str
    kind: Kind
    fields: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that rows name, by the first and the last start (Unix ns) among them; an unknown part is empty."""

    namespace: str
    name: str
    uid: str
    first: int
    last: int


class _Query:
    """Conditions on the table `row`, read a page at a time."""

    def __init__(self, window: Window, words: object, cursor: str | None) -> None:
        self._words = words
        self._from = begin(window.since, window.until) if cursor is None else Cursor.decode(cursor, words)
        place = self._from
        # One upper bound on `start`, or the planner might begin each page at the window's end.
        self._terms = ["start >= ?", "start <= ?", "(start < ? OR seq < ?)"]
        self._parameters: list[object] = [place.since, min(place.until - 1, place.start), place.start, place.seq]

    def add(self, term: str, *parameters: object) -> None:
        self._terms.append(term)
        self._parameters += parameters

    def add_pod(self, namespace: str | None, name: str | None) -> None:
        terms = {"namespace = ?": namespace, "name = ?": name}
        given = {term: value for term, value in terms.items() if value is not None}
        self.add(f"pod IN (SELECT key FROM pod WHERE {' AND '.join(given)})", *given.values())  # noqa: S608

    def run(self, db: sqlite3.Connection, index: str, columns: str, limit: int) -> tuple[list[Any], str | None]:
        """Rows of `columns` and, last, their JSON; and the next cursor."""
        # The inner query stays within the index; the rows of the page alone are read. The index is named
        # because the planner has no statistics: of one pod there are few rows, of one namespace or method many.
        sql = (
            f"SELECT row.seq, row.start, row.packed{columns} FROM"  # noqa: S608 (only texts of this module)
            f" (SELECT seq, start FROM row INDEXED BY {index} WHERE {' AND '.join(self._terms)}"
            "   ORDER BY start DESC, seq DESC LIMIT ?) AS page"
            " CROSS JOIN row ON row.seq = page.seq ORDER BY page.start DESC, page.seq DESC"
        )
        found: list[Any] = []
        size = 0
        last = self._from
        for seq, start, packed, *rest in db.execute(sql, (*self._parameters, limit + 1)):
            json = unpack(packed)
            size += len(json)
            if found and (len(found) == limit or size > PAGE_BYTES):
                return found, last.encode(self._words)
            found.append((*rest, json.decode()))
            last = Cursor(self._from.since, self._from.until, start, seq)
        return found, None


def read_page(
    db: sqlite3.Connection, kind: Kind, window: Window, where: Filter, *, limit: int, cursor: str | None, now: int
) -> Page:
    """The rows of `kind` that match, from the cursor on, newest first; `now` in Unix ns. Raises CursorError."""
    query = _Query(window, (kind, where), cursor)
    query.add("kind = ?", kind)
    for column, value in (("method", where.method), ("status", where.status), ("activity", where.activity)):
        if value is not None:
            query.add(f"{column} = ?", value)
    if where.min_duration is not None:
        # Most rows fail at the first comparison; an OR of the two cases takes a quarter longer.
        query.add(
            'coalesce(duration, 9e999) >= ? AND (duration IS NOT NULL OR ("end" IS NULL AND start <= ?))',
            where.min_duration,
            now - int(where.min_duration * 1_000_000_000),
        )
    if where.pod is not None or where.namespace is not None:
        query.add_pod(where.namespace, where.pod)
    found, following = query.run(db, "row_by_time" if where.pod is None else "row_by_pod", "", limit)
    return Page([fields for (fields,) in found], following)


def read_timeline(
    db: sqlite3.Connection, namespace: str, name: str, window: Window, *, limit: int, cursor: str | None
) -> tuple[list[PodRow], str | None]:
    """Rows of every kind and every pod of that name, newest first, and the next cursor. Raises CursorError."""
    query = _Query(window, ("timeline", namespace, name), cursor)
    query.add_pod(namespace, name)
    uid = "(SELECT uid FROM pod WHERE key = row.pod)"
    found, following = query.run(db, "row_by_pod", f", {uid}, kind", limit)
    return [PodRow(*row) for row in found], following


def read_rows(db: sqlite3.Connection, window: Window, limit: int) -> list[Row]:
    """The rows of every kind that touch the window, the `limit` newest of them, newest start first."""
    since, until = window.since or 0, window.until if window.until is not None else (1 << 63) - 1
    found = db.execute(
        'SELECT kind, id, start, "end", packed FROM row WHERE start >= ? AND start < ?'
        ' AND ("end" IS NULL OR "end" >= ?) ORDER BY start DESC LIMIT ?',
        (max(0, since - REACH_NS), until, since, limit),
    )
    return [Row(kind, ident, start, end, from_json(unpack(packed))) for kind, ident, start, end, packed in found]


def read_row(db: sqlite3.Connection, kind: Kind, id_: str) -> str | None:
    """The JSON of one row, of the newest run when several runs used that id."""
    query = "SELECT packed FROM row WHERE kind = ? AND id = ? ORDER BY run DESC LIMIT 1"
    found = db.execute(query, (kind, id_)).fetchone()
    return None if found is None else unpack(found[0]).decode()


def read_pods(
    db: sqlite3.Connection, *, namespace: str | None, name: str | None, limit: int, cursor: str | None
) -> tuple[list[Pod], str | None]:
    """The pods, last met first, and the next cursor. Raises CursorError."""
    words = ("pods", namespace, name)
    place = begin(None, None) if cursor is None else Cursor.decode(cursor, words)
    # Not ordered by a time: that changes with every row, and a walk from page to page would meet a pod twice.
    found = db.execute(
        "SELECT key, namespace, name, uid, (SELECT min(start) FROM row WHERE pod = key),"
        " (SELECT max(start) FROM row WHERE pod = key) FROM pod"
        " WHERE key < ? AND (?2 IS NULL OR namespace = ?2) AND (?3 IS NULL OR name = ?3) ORDER BY key DESC LIMIT ?4",
        (place.seq, namespace, name, limit + 1),
    ).fetchall()
    following = None
    if len(found) > limit:
        found.pop()
        following = Cursor(place.since, place.until, place.start, found[-1][0]).encode(words)
    # A pod outlives its last row by a moment.
    return [Pod(*row[1:]) for row in found if row[-1] is not None], following
