"""The store's schema: which files it accepts, and the migrations that lead from an empty file to today's tables."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from tracer.errors import StoreError

# "CRIS" as a big-endian number: SQLite's header field that says which program a file belongs to.
APPLICATION_ID = 0x43524953

Migration = Callable[[sqlite3.Connection], None]
_MIGRATIONS: dict[str, Migration] = {}


def migration(step: Migration) -> Migration:
    """Register `step` under its name. Applied ones are recorded by name, so the order below is the order of history."""
    _MIGRATIONS[step.__name__] = step
    return step


@migration
def rows_and_pods(db: sqlite3.Connection) -> None:
    """`seq` is the order of arrival: with `start` it makes the total order that cursors point into.

    `packed` is the JSON object as REST shows it (packing.py); the other columns are what is filtered by. `run` keeps
    apart the ids of two runs of the tracer. `end` is null while the thing is open.
    """
    db.execute("CREATE TABLE run (number INTEGER NOT NULL) STRICT")
    db.execute("INSERT INTO run VALUES (0)")
    db.execute(
        "CREATE TABLE pod (key INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,"
        " UNIQUE (namespace, name, uid)) STRICT"
    )
    db.execute(
        "CREATE TABLE row (seq INTEGER PRIMARY KEY, run INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,"
        ' start INTEGER NOT NULL, "end" INTEGER, duration REAL, method TEXT, status TEXT, activity TEXT, pod INTEGER,'
        " packed BLOB NOT NULL) STRICT"
    )
    db.execute("CREATE UNIQUE INDEX row_by_id ON row (kind, id, run)")
    # Holds every column that is filtered by, so that a filter nothing matches reads this index and no row.
    db.execute("CREATE INDEX row_by_time ON row (kind, start, method, status, activity, pod, duration)")
    db.execute("CREATE INDEX row_by_pod ON row (pod, start) WHERE pod IS NOT NULL")
    db.execute('CREATE INDEX row_open ON row (kind) WHERE "end" IS NULL')


def is_ours(path: Path) -> bool:
    """Whether the header of the file says that it is a store, however damaged the rest (SQLite file format, 1.3)."""
    with path.open("rb") as file:
        header = file.read(72)
    return header[:16] == b"SQLite format 3\0" and header[68:] == APPLICATION_ID.to_bytes(4)


def prepare(db: sqlite3.Connection, name: str) -> None:
    """Bring the database behind `db` to today's schema; `name` is for the message.

    Raises `StoreError` for a file of another program or of a newer version, `sqlite3.Error` for what SQLite cannot do.
    """
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    (objects,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application_id != APPLICATION_ID and (application_id or objects):
        raise StoreError(f"{name}: this file belongs to another program; name another file with --store")
    # Only an empty file can be told to keep its free pages where they can be cut off.
    db.execute("PRAGMA auto_vacuum=INCREMENTAL")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("BEGIN IMMEDIATE")
    try:
        _migrate(db, name)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _migrate(db: sqlite3.Connection, name: str) -> None:
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute("CREATE TABLE IF NOT EXISTS migration (name TEXT PRIMARY KEY) STRICT")
    applied = {row[0] for row in db.execute("SELECT name FROM migration")}
    if unknown := applied - _MIGRATIONS.keys():
        raise StoreError(
            f"{name}: written by a newer criscope (it knows {', '.join(sorted(unknown))}); "
            "update criscope or name another file with --store"
        )
    for step_name, step in _MIGRATIONS.items():
        if step_name not in applied:
            step(db)
            db.execute("INSERT INTO migration VALUES (?)", (step_name,))
