"""Connections that only read, few and shared: each has its own cache, and an answer needs one for milliseconds."""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator

from tracer.errors import StoreError
from tracer.store.packing import PackingError

# As many answers at once; two cores have no use for more, and each connection holds 2 MB.
READERS = 4


class Readers:
    """Lends connections to any thread."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._free = threading.Semaphore(READERS)
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._generation = 0

    @contextlib.contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """One connection, waiting while all are lent. What the file does wrong within comes out as StoreError."""
        with self._free:
            try:
                with self._lock:
                    generation = self._generation
                    db = self._idle.pop() if self._idle else None
                if db is None:
                    db = self._connect()
                try:
                    yield db
                finally:
                    self._give_back(db, generation)
            except (sqlite3.Error, PackingError) as error:
                raise StoreError(f"the store cannot be read now: {error}") from error

    def _give_back(self, db: sqlite3.Connection, generation: int) -> None:
        with self._lock:
            if generation == self._generation:
                self._idle.append(db)
                return
        db.close()

    def renew(self) -> None:
        """Close every connection, those that are lent when they come back; later ones are opened anew."""
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()
