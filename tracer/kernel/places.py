"""Where wanted sockets lie: directories by their inodes, so that it does not matter how a server spelled its path.

The same numbers tell apart servers that bound the same path in different mount namespaces, as the nodes of a cluster in
containers do.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from tracer.kernel import layouts
from tracer.kernel.sockets import serves_runtime

MINOR_BITS = 20  # include/linux/kdev_t.h: how the kernel itself puts a device's two numbers into one

_KEY = layouts.PLACE_KEY.compiled()
_WANTED = layouts.WANTED.compiled()
_SELF = Path("/proc/self")
_ABOVE_BYTES = 16  # of the key's data before the name: device, directory, above

Directory = tuple[int, int]
"""Number of the filesystem's device, as the kernel writes it, and inode number."""


class Places:
    """The patterns of `tracer.kernel.sockets`, but the abstract ones; their numbers count from 1."""

    def __init__(self, patterns: Sequence[str], *, follow: bool) -> None:
        self._patterns = [each.rstrip("/") for each in patterns]
        self._follow = follow
        self._devices: dict[int, int] = {}
        self._known: dict[str, Directory] = {}
        self.hidden: dict[str, str] = {}
        """Directories that could not be looked at the last time, and why; what was known of them before still holds."""

    def entries(self) -> dict[bytes, bytes]:
        """Key and value of the kernel's table, from what the file system shows now.

        A socket's directory and name decide, not its own inode: so a server that removes its socket and binds a new one
        is known at once.
        """
        entries: dict[bytes, bytes] = {}
        known: dict[str, Directory] = {}
        self.hidden = {}
        self._devices = {}
        for number, pattern in enumerate(self._patterns, 1):
            if pattern.startswith("/"):
                value = _WANTED.pack(self._follow and serves_runtime(pattern), number)
                for path in {pattern} if pattern.endswith("*") else {pattern, os.path.realpath(pattern)}:
                    directory, name = os.path.split(path)
                    try:
                        found = self._look(directory)
                    except OSError as err:
                        self.hidden[directory] = err.strerror or str(err)
                        found = self._known.get(directory)
                    if found is not None:
                        known[directory] = found
                        entries = dict.fromkeys(_keys(found, os.fsencode(name)), value) | entries
        self._known = known
        return entries

    def shown(self, place: int, names: list[str]) -> str:
        """The path of a socket found by its place: as the pattern has it. `names`: the socket's first, then upwards."""
        pattern = self._patterns[place - 1]
        return "/".join([pattern.rpartition("/")[0], *reversed(names)]) if pattern.endswith("*") else pattern

    def told_apart(self, path: str, directory: Directory) -> str:
        """The path of a socket bound as `path` in `directory`: with the directory's numbers, unless it leads there.

        They are the device's, as `/proc/PID/mountinfo` shows them, and the inode's: `0:54:1234:/run/x.sock`.
        """
        parent = str(Path(path).parent)
        try:
            leads_to = self._look(parent)
        except OSError:
            leads_to = self._known.get(parent)
        if leads_to == directory:
            return path
        device, inode = directory
        return f"{device >> MINOR_BITS}:{device & (1 << MINOR_BITS) - 1}:{inode}:{path}"

    def _look(self, directory: str) -> Directory | None:
        """None when it is not there. Raises OSError when it cannot be looked at."""
        try:
            descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            status = os.fstat(descriptor)
            return self._device(descriptor, status.st_dev), status.st_ino
        finally:
            os.close(descriptor)

    def _device(self, descriptor: int, shown: int) -> int:
        """The filesystem's own device; `shown`: what stat tells, which is another where subvolumes have one (btrfs)."""
        device = self._devices.get(shown)
        if device is None:
            fields = (_SELF / "fdinfo" / str(descriptor)).read_text(encoding="ascii").split()
            device = self._devices[shown] = _mounted(fields[fields.index("mnt_id:") + 1])
        return device


def _mounted(mount: str) -> int:
    """proc(5), mountinfo: number of the mount, of its parent, MAJOR:MINOR of the filesystem, and more."""
    with (_SELF / "mountinfo").open(encoding="utf-8", errors="replace") as lines:
        major, minor = next((line.split(" ", 3)[2] for line in lines if line.startswith(f"{mount} ")), "0:0").split(":")
    return int(major) << MINOR_BITS | int(minor)


def _keys(directory: Directory, name: bytes) -> list[bytes]:
    """A beginning is also that of directories' names, in which the socket then lies. No key for a longer name."""
    if len(name) + 1 >= layouts.PLACE_NAME_BYTES:
        return []
    if not name.endswith(b"*"):
        return [_KEY.pack(8 * (_ABOVE_BYTES + len(name) + 1), *directory, 0, name)]
    bits = 8 * (_ABOVE_BYTES + len(name) - 1)
    return [_KEY.pack(bits, *directory, above, name[:-1]) for above in (0, 1)]
