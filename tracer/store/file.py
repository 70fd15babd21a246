"""The store's files: claimed by one writer, readable by their owner only, opened for writing or reading."""

import contextlib
import fcntl
import os
import sqlite3
import urllib.parse
from pathlib import Path

from tracer.errors import StoreError
from tracer.store.schema import is_ours, prepare

# Set aside beside the database, and given back when the disk is full: deleting old rows needs room in the write-ahead
# log before it frees any. Three times what a log before its checkpoint can make the database lack.
RESERVE_BYTES = 8 << 20

# SQLite brings the log into the database when it has this many pages: 1 MiB, every five seconds at 100 calls a second.
_CHECKPOINT_PAGES = 256

# That waits for no reader, so the log may yet grow. At this size we wait for them ...
_LOG_CUT_BYTES = 4 << 20

# ... so that it stays below this: no transaction here writes more than the difference.
LOG_BYTES = 8 << 20

# A checkpoint that found no room is silent; it shows in how much larger the database ought to be than it is.
_LACKING_BYTES = 1 << 20

# How long another process may hold the write lock, or one of our readers a checkpoint, before that counts as a failure.
_BUSY_SECONDS = 1.0

# The inner pages of the four indexes of 512 MiB; more gains little (measured 14.7 against 17 us a row at 8 MB).
_CACHE_KIB = 2000


class File:
    """One database, its write-ahead log and its reserve, claimed by this process until `close`."""

    def __init__(self, path: Path, max_bytes: int, *, durable: bool) -> None:
        """Claim `path`, making it and its directory when missing. Raises StoreError when that cannot be.

        All files together stay within `max_bytes`. Not `durable`: after a power cut (never after a crash of the
        process) the database may be damaged, as one that is private and temporary may.
        """
        self.path = path
        self._max_bytes = max_bytes
        self._durable = durable
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._reserve = _open_private(self._beside("-reserve"))
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}; name a writable file with --store") from error
        try:
            try:
                fcntl.flock(self._reserve, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreError(f"{path}: another criscope writes this store; stop it or name another file") from error
            try:
                self.writer = self._open()
            except StoreError:
                self._beside("-reserve").unlink()
                raise
        except StoreError:
            os.close(self._reserve)
            raise

    def _open(self) -> sqlite3.Connection:
        try:
            try:
                return self._connect()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT or not is_ours(self.path):
                    raise
            self._set_aside()
            return self._connect()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self.path}: {error}; name another file with --store") from error

    def _connect(self) -> sqlite3.Connection:
        os.close(_open_private(self.path))
        self._inode = self.path.stat().st_ino
        db = sqlite3.connect(
            self._uri("rw"), uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            prepare(db, str(self.path))
            self.path.chmod(0o600)
            # NORMAL: a killed process loses nothing that was committed; a power cut may lose the last moments.
            db.execute(f"PRAGMA synchronous={'NORMAL' if self._durable else 'OFF'}")
            db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
            db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
            db.execute(f"PRAGMA max_page_count={(self._max_bytes - LOG_BYTES - RESERVE_BYTES) // page_bytes}")
        except BaseException:
            db.close()
            raise
        return db

    def connect_reader(self) -> sqlite3.Connection:
        """A connection that can only read; any one thread at a time may use it."""
        db = sqlite3.connect(self._uri("ro"), uri=True, isolation_level=None, check_same_thread=False)
        db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        return db

    def reopen(self, *, damaged: bool) -> None:
        """Open `writer` anew; a damaged database is set aside as `*-damaged` first, in place of an earlier one.

        Raises StoreError when that cannot be done; it may be tried again.
        """
        # First: SQLite removes the log, by its name, when the last connection is closed.
        self.writer.close()
        if damaged and self.is_there():
            self._set_aside()
        self.writer = self._open()

    def _set_aside(self) -> None:
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                self._beside(suffix).replace(self._beside("-damaged" + suffix))
        self._beside("-shm").unlink(missing_ok=True)

    def is_there(self) -> bool:
        """Whether the path still leads to the database that `writer` has open."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def tend_log(self) -> None:
        """To be called after each transaction: keeps the log small. Raises sqlite3.Error when there is no room."""
        if self._beside("-wal").stat().st_size > _LOG_CUT_BYTES:
            self.cut_log()
        elif self.lacking() > _LACKING_BYTES:
            self.writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def cut_log(self) -> None:
        """Bring the whole log into the database and empty it. Raises sqlite3.Error."""
        self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def lacking(self) -> int:
        """By how many bytes the log's pages would make the database grow."""
        (page_bytes,) = self.writer.execute("PRAGMA page_size").fetchone()
        (pages,) = self.writer.execute("PRAGMA page_count").fetchone()
        return max(0, int(page_bytes * pages) - self.path.stat().st_size)

    def take_reserve(self) -> None:
        """Give the reserve's room back to the file system."""
        os.ftruncate(self._reserve, 0)

    def restore_reserve(self) -> bool:
        """Claim the reserve's room again; False while the file system has not that much."""
        try:
            os.posix_fallocate(self._reserve, 0, RESERVE_BYTES)
        except OSError:
            self.take_reserve()
            return False
        return True

    def size(self) -> int:
        """Bytes of all files together, one set aside as damaged not counted."""
        total = 0
        for suffix in ("", "-wal", "-shm", "-reserve"):
            with contextlib.suppress(FileNotFoundError):
                total += self._beside(suffix).stat().st_size
        return total

    def close(self) -> None:
        """Give up the claim; every connection must be closed before."""
        os.close(self._reserve)

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _uri(self, mode: str) -> str:
        return f"file:{urllib.parse.quote(str(self.path.absolute()))}?mode={mode}"


def _open_private(path: Path) -> int:
    """Open `path`, making it for its owner only when missing. A symbolic link is refused: it may lead anywhere."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
