"""Ring buffer records become `tracer.records` objects."""

from collections import OrderedDict
from collections.abc import Callable
from platform import machine
from resource import getpagesize

from tracer.kernel import layouts
from tracer.kernel.places import Places
from tracer.records import Closed, Data, Direction, Exec, Exit, OomKill, Opened, Record, Side

# A node has about two sockets a pod open at a time; the rest is for connections that ended, which nobody announces.
CONNECTIONS = 16384
NAMES = 4096  # process names kept decoded; when there are more, start anew

SIDES: tuple[Side, Side] = ("client", "server")
DIRECTIONS: tuple[Direction, Direction] = ("send", "recv")
CNI_VARIABLES = frozenset({"CNI_COMMAND", "CNI_CONTAINERID", "CNI_ARGS", "CNI_NETNS", "CNI_IFNAME"})
# By machine: the system calls that need no mention (linux/arch/x86/entry/syscalls, asm-generic/unistd.h).
READ_AND_WRITE = {"x86_64": (0, 1), "aarch64": (63, 64)}

PAGE_BYTES = getpagesize()
NOBODY = 0xFFFFFFFF  # (uid_t)-1 is nobody's

_OPENED = layouts.OPENED.compiled()
_DATA = layouts.DATA.compiled()
_CLOSED = layouts.CLOSED.compiled()
_EXEC = layouts.EXEC.compiled()
_EXIT = layouts.EXIT.compiled()
_OOM = layouts.OOM.compiled()
_KIND = layouts.HEAD.expected().members["kind"][0]


class Decoder:
    """Remembers each connection's path, which its first record carries. `run` makes connection ids unique over runs."""

    def __init__(self, run: str, places: Places) -> None:
        self._run = run
        self._places = places
        self._plain = READ_AND_WRITE.get(machine(), ())
        self._connections: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._names: dict[bytes, str] = {}
        self._decoders: dict[int, Callable[[bytes], Record]] = {
            layouts.RECORD_OPENED: self._opened,
            layouts.RECORD_DATA: self._data,
            layouts.RECORD_CLOSED: self._closed,
            layouts.RECORD_EXEC: self._exec,
            layouts.RECORD_EXIT: self._exit,
            layouts.RECORD_OOM: self._oom,
        }

    def decode(self, raw: bytes) -> Record:
        """`raw`: one record as the programs of the same version wrote it (its layout was checked when they loaded)."""
        return self._decoders[raw[_KIND]](raw)

    def _connection(self, number: int) -> tuple[str, str]:
        """(id, path). The path is empty when the connection was forgotten; its id stays the same."""
        known = self._connections.get(number)
        if known is None:
            return f"{self._run}{number}", ""
        self._connections.move_to_end(number)
        return known

    def _name(self, comm: bytes) -> str:
        name = self._names.get(comm)
        if name is None:
            if len(self._names) >= NAMES:
                self._names.clear()
            name = self._names[comm] = _text(comm.partition(b"\0")[0])
        return name

    def _opened(self, raw: bytes) -> Opened:
        time, pid, _tid, comm, _kind, side, _direction, number, directory, device, place, names, length = (
            _OPENED.unpack_from(raw)
        )
        if number not in self._connections:  # what its other end told stays: the place may be gone by now
            bound = raw[_OPENED.size : _OPENED.size + length]
            if names:
                shown = self._places.shown(place, [_text(each) for each in _strings(bound)])
            elif place or not directory:
                shown = _path(bound)
            else:
                shown = self._places.told_apart(_path(bound), (device, directory))
            self._connections[number] = f"{self._run}{number}", shown
            if len(self._connections) > CONNECTIONS:
                self._connections.popitem(last=False)
        connection, path = self._connection(number)
        return Opened(time, connection, SIDES[side], path, pid, self._name(comm))

    def _data(self, raw: bytes) -> Data:
        time, pid, tid, comm, _kind, side, direction, number, offset, length, captured, fd, syscall = _DATA.unpack_from(
            raw
        )
        connection, path = self._connection(number)
        return Data(
            time,
            connection,
            SIDES[side],
            DIRECTIONS[direction],
            path,
            pid,
            tid,
            self._name(comm),
            fd,
            offset,
            length,
            raw[_DATA.size : _DATA.size + captured],
            None if syscall in self._plain else syscall,
        )

    def _closed(self, raw: bytes) -> Closed:
        time, pid, _tid, _comm, _kind, side, _direction, number, error = _CLOSED.unpack(raw)
        return Closed(time, self._connection(number)[0], SIDES[side], pid, error)

    def _exec(self, raw: bytes) -> Exec:
        time, pid, _tid, comm, _kind, _side, _direction, forked, ppid, argv_bytes, env_bytes = _EXEC.unpack_from(raw)
        argv, env = _EXEC.size + argv_bytes, _EXEC.size + argv_bytes + env_bytes
        variables = dict(_text(each).partition("=")[::2] for each in _strings(raw[argv:env]))
        return Exec(
            time,
            pid,
            ppid,
            self._name(comm),
            [_text(each) for each in _strings(raw[_EXEC.size : argv])],
            {name: value for name, value in variables.items() if name in CNI_VARIABLES},
            forked,
        )

    def _exit(self, raw: bytes) -> Exit:
        time, pid, _tid, comm, _kind, _side, _direction, ppid, status = _EXIT.unpack(raw)
        return Exit(time, pid, ppid, self._name(comm), status)

    def _oom(self, raw: bytes) -> OomKill:
        time, pid, _tid, comm, _kind, _side, _direction, *pages, uid, cgroup_bytes = _OOM.unpack_from(raw)
        levels = [_text(each) for each in _strings(raw[_OOM.size : _OOM.size + cgroup_bytes])]
        anon, file, shmem = (None if each < 0 else each * PAGE_BYTES for each in pages)
        return OomKill(
            time,
            pid,
            self._name(comm),
            None if uid == NOBODY else uid,
            _cgroup(levels),
            anon,
            file,
            shmem,
        )


def _strings(area: bytes) -> list[bytes]:
    r"""`b"a\0b\0"` -> `[b"a", b"b"]`; the last one may have been cut before its NUL."""
    return area.removesuffix(b"\0").split(b"\0") if area else []


def _cgroup(levels: list[str]) -> str | None:
    """`["leaf", "slice", ""]` -> `"/slice/leaf"`: the root's name is empty."""
    return ("/".join(reversed(levels)) or "/") if levels else None


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _path(raw: bytes) -> str:
    """A path ends at a NUL or at the length; an abstract name begins with NUL, shown as `@`, and may hold more."""
    if raw.startswith(b"\0"):
        return "@" + _text(raw[1:]).replace("\0", "\\0")
    return _text(raw.partition(b"\0")[0])
