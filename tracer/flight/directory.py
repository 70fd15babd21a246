"""The recorder's directory: for its owner only, claimed by one process, and never left through a symbolic link."""

import contextlib
import fcntl
import os
from pathlib import Path

from tracer.errors import FlightError

UNFINISHED_NOTE = ".new"
"""What the name of a note ends with while it is written."""


class Directory:
    """One directory, made when missing, claimed until `close`. Names are of files in it, never paths.

    Raises FlightError when it cannot be had, and OSError from everything else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise FlightError(f"{path}: {error.strerror}; name another directory for the flight recorder") from error
        try:
            self._claim()
        except BaseException:
            os.close(self._fd)
            raise

    def _claim(self) -> None:
        state = os.fstat(self._fd)
        if state.st_uid != os.geteuid():
            raise FlightError(f"{self.path}: belongs to another user; name another directory for the flight recorder")
        os.fchmod(self._fd, 0o700)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FlightError(
                f"{self.path}: another criscope records there; stop it or name another directory"
            ) from error

    def files(self) -> list[tuple[str, os.stat_result]]:
        """Every regular file of it."""
        found = []
        with os.scandir(self._fd) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        return found

    def create(self, name: str) -> int:
        return os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._fd
        )

    def open(self, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def replace(self, name: str, text: bytes) -> None:
        """The file holds `text`, or what it held before."""
        beside = f"{name}{UNFINISHED_NOTE}"
        self.remove(beside)
        fd = self.create(beside)
        try:
            os.write(fd, text)
        except OSError:
            self.remove(beside)
            raise
        finally:
            os.close(fd)
        self.rename(beside, name)

    def close(self) -> None:
        os.close(self._fd)
