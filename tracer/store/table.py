"""The rows in the database, as one run of the tracer writes them."""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

from pydantic_core import from_json, to_json

from tracer.store.columns import Columns, Pod
from tracer.store.packing import PackingError, pack, unpack
from tracer.store.queue import OPEN_MOST, Key
from tracer.store.retention import delete_step, make_room

# Looked through for the last thing a killed run saw.
_LAST_ROWS = 1000

_UPSERT = (
    'INSERT INTO row (run, kind, id, start, "end", duration, method, status, activity, pod, packed)'
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, id, run) DO UPDATE SET"
    ' "end" = excluded."end", duration = excluded.duration, method = excluded.method, status = excluded.status,'
    " activity = excluded.activity, pod = excluded.pod, packed = excluded.packed"
)


class Table:
    """Begins a new run when made. Every method may raise sqlite3.Error, and has then changed nothing."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """What a killed run left open ends here, unknown how, when that run last saw anything."""
        self._db = db
        self._pods: dict[Pod, int] = {}
        self._open: dict[tuple[str, str], int] = {}  # hashes of what is in the database and open
        with self._transaction():
            (self._run,) = db.execute("UPDATE run SET number = number + 1 RETURNING number").fetchone()
            query = 'SELECT max(coalesce("end", start)) FROM row WHERE seq > (SELECT max(seq) FROM row) - ?'
            (last,) = db.execute(query, (_LAST_ROWS,)).fetchone()
            self._close(last or 0, "true", ())
        (self.rows,) = db.execute("SELECT count(*) FROM row").fetchone()

    def write(self, rows: Sequence[Columns], lost_ends: Mapping[Key, int]) -> None:
        """Write rows, and end those (Unix ns) whose last state never came; all or nothing.

        An open row that says nothing new is left: it is handed out four times a second.
        """
        news = [row for row in rows if self._open.get((row.kind, row.id)) != hash(row.packed)]
        with self._transaction():
            before = self._last_seq()
            self._db.executemany(_UPSERT, [self._parameters(row) for row in news])
            inserted = self._last_seq() - before
            for key, end in lost_ends.items():
                self._close(end, "kind = ? AND id = ? AND run = ?", (*key, self._run))
        self.rows += inserted
        for row in news:
            if row.end is None:
                self._open[row.kind, row.id] = hash(row.packed)
            else:
                self._open.pop((row.kind, row.id), None)
        if len(self._open) > OPEN_MOST:
            self._open.clear()

    def delete_step(self, oldest_start: int) -> int:
        """As `retention.delete_step`."""
        return self._deleted(delete_step(self._db, oldest_start))

    def make_room(self, lacking_bytes: int) -> int:
        """As `retention.make_room`."""
        return self._deleted(make_room(self._db, lacking_bytes))

    def _deleted(self, count: int) -> int:
        if count:
            self._pods.clear()  # some may have gone with their last row
        self.rows -= count
        return count

    def _close(self, end: int, where: str, parameters: tuple[object, ...]) -> None:
        """End open rows of which only that is known: that they ended, by `end` (Unix ns)."""
        query = 'SELECT seq, kind, packed FROM row WHERE "end" IS NULL AND '
        for seq, kind, packed in self._db.execute(query + where, parameters).fetchall():
            try:
                fields = from_json(unpack(packed))
            except PackingError:
                self._db.execute("DELETE FROM row WHERE seq = ?", (seq,))
                continue
            fields["ended_by" if kind == "call" else "outcome"] = "unknown"
            update = "UPDATE row SET \"end\" = max(start, ?), status = 'unknown', packed = ? WHERE seq = ?"
            self._db.execute(update, (end, pack(to_json(fields)), seq))

    def _parameters(self, row: Columns) -> tuple[object, ...]:
        return (self._run, *row[:8], None if row.pod is None else self._pod_key(row.pod), row.packed)

    def _pod_key(self, pod: Pod) -> int:
        key = self._pods.get(pod)
        if key is None:
            self._db.execute("INSERT INTO pod (namespace, name, uid) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", pod)
            query = "SELECT key FROM pod WHERE namespace = ? AND name = ? AND uid = ?"
            (key,) = self._db.execute(query, pod).fetchone()
            self._pods[pod] = key
        return key

    def _last_seq(self) -> int:
        (last,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM row").fetchone()
        return int(last)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._pods.clear()  # those made within it are gone
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
