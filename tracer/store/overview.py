"""The overview of a window: one short line for each thing in it, from the columns alone, thinned when too many."""

import sqlite3
from dataclasses import dataclass

from tracer.rows import Kind
from tracer.store.query import REACH_NS, Window


@dataclass(frozen=True, slots=True)
class Line:
    """`start`, `end` Unix ns, `end` None while open; `name`, `status`, `activity` as the columns have them."""

    kind: Kind
    id: str
    start: int
    end: int | None
    name: str | None
    status: str | None
    activity: str | None
    pod: tuple[str, str, str] | None


@dataclass(frozen=True, slots=True)
class Overview:
    """`total`: how many there are; when that is more than were asked for, `lines` are the most telling ones."""

    lines: list[Line]
    total: int


def read_overview(
    db: sqlite3.Connection, window: Window, *, pod: str | None, namespace: str | None, limit: int
) -> Overview:
    """Lines that touch the window, in order of their start.

    Thinned to `limit`: findings, node events, what is open, relists and passes first, then the longest.
    """
    since, until = window.since or 0, window.until if window.until is not None else (1 << 63) - 1
    where = 'row.start >= ? AND row.start < ? AND (row."end" IS NULL OR row."end" >= ?)'
    parameters: list[object] = [max(0, since - REACH_NS), until, since]
    if pod is not None or namespace is not None:
        where += (
            " AND row.pod IN (SELECT key FROM pod WHERE (?4 IS NULL OR name = ?4) AND (?5 IS NULL OR namespace = ?5))"
        )
        parameters += [pod, namespace]
    (total,) = db.execute(f"SELECT count(*) FROM row WHERE {where}", parameters).fetchone()  # noqa: S608
    rank = (
        "CASE WHEN row.kind IN ('finding', 'node_event') THEN 0 WHEN row.\"end\" IS NULL THEN 1"
        " WHEN row.kind IN ('relist', 'sync_pass', 'pleg_event') THEN 2 ELSE 3 END"
    )
    order = f"ORDER BY {rank}, row.duration DESC" if total > limit else ""
    found = db.execute(
        'SELECT row.kind, row.id, row.start, row."end", row.method, row.status, row.activity, namespace, name, uid'  # noqa: S608
        f" FROM row LEFT JOIN pod ON pod.key = row.pod WHERE {where} {order} LIMIT ?",
        (*parameters, limit),
    ).fetchall()
    lines = [
        Line(kind, ident, start, end, method, status, activity, None if uid is None else (space, called, uid))
        for kind, ident, start, end, method, status, activity, space, called, uid in found
    ]
    lines.sort(key=lambda line: line.start)
    return Overview(lines, total)
