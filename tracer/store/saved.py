"""A store as it lies on disk, for reading only: also while a daemon writes it."""

import contextlib
import sqlite3
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tracer.errors import StoreError
from tracer.rows import Kind, Row
from tracer.store.packing import PackingError
from tracer.store.query import Filter, Page, Window, read_page, read_rows
from tracer.store.schema import is_ours


class Saved:
    """Pages of the store at `path`. Raises StoreError when it is none or cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            ours = is_ours(path)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}; name the file that `criscope run --store` writes") from error
        if not ours:
            raise StoreError(f"{path}: this is no store of criscope")
        uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None)

    def page(self, kind: Kind, window: Window, where: Filter, *, limit: int, cursor: str | None, now: int) -> Page:
        """As `Store.page`."""
        with self._clear():
            return read_page(self._db, kind, window, where, limit=limit, cursor=cursor, now=now)

    def rows(self, window: Window, limit: int) -> list[Row]:
        """As `Store.rows`."""
        with self._clear():
            return read_rows(self._db, window, limit)

    def last(self) -> int:
        """Unix ns at which its newest row began or ended; 0 when it has none."""
        with self._clear():
            (last,) = self._db.execute('SELECT max(max(start), max(coalesce("end", 0))) FROM row').fetchone()
        return last or 0

    @contextlib.contextmanager
    def _clear(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, PackingError) as error:
            raise StoreError(f"{self.path}: cannot be read: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._db.close()
