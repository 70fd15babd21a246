"""Kernel records: whatever a record's members hold, it becomes one record that says just that."""

from collections.abc import Iterator

from tests.fuzz.contract import limits, text
from tests.fuzz.samples import records
from tests.fuzz.taps import Taps, piece
from tracer.kernel import decoder as module
from tracer.kernel import layouts
from tracer.kernel.decoder import CNI_VARIABLES, Decoder
from tracer.kernel.places import Places
from tracer.records import Closed, Data, Exec, Exit, OomKill, Opened, Record

FIXED = (layouts.OPENED, layouts.DATA, layouts.CLOSED, layouts.EXEC, layouts.EXIT, layouts.OOM)
KINDS = (
    layouts.RECORD_OPENED, layouts.RECORD_DATA, layouts.RECORD_CLOSED, layouts.RECORD_EXEC, layouts.RECORD_EXIT,
    layouts.RECORD_OOM,
)  # fmt: skip
TAILS = (("path_length",), ("captured",), (), ("argv_bytes", "env_bytes"), (), ("cgroup_bytes",))
"""By kind: the members that tell how long what follows the fixed ones is, in order."""

PATTERNS = ["/run/containerd/containerd.sock", "/run/containerd/s/*"]
MAX_RECORDS, CONNECTIONS, NAMES = 64, 5, 6
HONEST = 0x80  # the lengths are true


def run(data: bytes) -> None:
    taps = Taps(data)
    paths: dict[str, str] = {}
    with limits(module, CONNECTIONS=CONNECTIONS, NAMES=NAMES):
        decoder = Decoder("f-", Places(PATTERNS, follow=False))
        for _ in range(MAX_RECORDS):
            if not taps.more:
                return
            raw = _written(taps)
            _check(raw, decoder.decode(raw), paths)
            assert len(decoder._connections) <= CONNECTIONS
            assert len(decoder._names) <= NAMES


def _written(taps: Taps) -> bytes:
    """A record as the programs write it: of a known kind, a side, a direction, and with all its fixed members."""
    choice = taps.byte()
    which = (choice & 7) % len(FIXED)
    layout = FIXED[which]
    raw = bytearray(taps.full(layout.expected().size))
    head = layouts.HEAD.expected().members
    raw[head["kind"][0]] = KINDS[which]
    raw[head["side"][0]], raw[head["direction"][0]] = choice >> 3 & 1, choice >> 4 & 1
    if layout is layouts.OPENED:
        _put(raw, layout, "place", choice >> 5 & 3 if choice >> 5 & 3 <= len(PATTERNS) else 0)
    tails = [taps.piece() for _ in TAILS[which]]
    if choice & HONEST:
        for name, tail in zip(TAILS[which], tails, strict=True):
            _put(raw, layout, name, len(tail))
    return bytes(raw) + b"".join(tails)


def _put(raw: bytearray, layout: layouts.Layout, name: str, value: int) -> None:
    at, size = layout.expected().members[name]
    raw[at : at + size] = value.to_bytes(size, "little")


def _get(raw: bytes, layout: layouts.Layout, name: str) -> int:
    at, size = layout.expected().members[name]
    return int.from_bytes(raw[at : at + size], "little")


def _check(raw: bytes, record: Record, paths: dict[str, str]) -> None:
    assert record.time == int.from_bytes(raw[:8], "little")
    if not isinstance(record, Closed):
        assert isinstance(record, (Opened, Data, Exec, Exit, OomKill))
        text(record.comm)
        assert "\0" not in record.comm
    if isinstance(record, Opened):
        text(record.path)
        assert "\0" not in record.path
        paths[record.connection] = record.path
    elif isinstance(record, Data):
        assert record.path in ("", paths.get(record.connection))
        assert raw[layouts.DATA.expected().size :].startswith(record.data)
        assert len(record.data) <= _get(raw, layouts.DATA, "captured")
        assert record.length == _get(raw, layouts.DATA, "length")
        assert record.offset == _get(raw, layouts.DATA, "offset")
    elif isinstance(record, Exec):
        assert record.env.keys() <= CNI_VARIABLES
        for word in [*record.argv, *record.env.values()]:
            text(word)
            assert "\0" not in word
    elif isinstance(record, OomKill):
        if record.cgroup is not None:
            text(record.cgroup)
        for count in (record.anon_bytes, record.file_bytes, record.shmem_bytes):
            assert count is None or count >= 0


def seeds() -> Iterator[bytes]:
    names: dict[str, int] = {}
    out = b""
    for record in records("startup")[:400]:
        out += _seed(record, names)
        if len(out) > 3000:
            yield out
            out = b""
    yield out
    for which in range(len(FIXED)):
        yield bytes([which]) * 200
        yield bytes([which | HONEST]) * 200
    for place, path in ((1, b"containerd.sock\0"), (2, b"5a5a\0s\0"), (0, b"\0name"), (0, b"/run/x/\xff.sock\0")):
        fixed = bytearray(layouts.OPENED.expected().size)
        _put(fixed, layouts.OPENED, "names", place)
        _put(fixed, layouts.OPENED, "directory", 77)
        yield bytes([place << 5 | HONEST]) + bytes(fixed) + piece(path)


def _seed(record: Record, names: dict[str, int]) -> bytes:
    if isinstance(record, Exec):
        argv = "\0".join(record.argv).encode() + b"\0"
        env = b"".join(f"{name}={value}\0".encode() for name, value in record.env.items())
        return _made(layouts.EXEC, record, HONEST | 3) + piece(argv) + piece(env)
    if isinstance(record, Exit):
        return _made(layouts.EXIT, record, 4, status=record.code)
    if not isinstance(record, Data):
        return b""
    out = b""
    shape = HONEST | (record.side == "server") << 3 | (record.direction == "recv") << 4
    if record.connection not in names:
        names[record.connection] = len(names)
        out = _made(layouts.OPENED, record, shape, connection=names[record.connection]) + piece(record.path.encode())
    members = {
        "connection": names[record.connection],
        "offset": record.offset,
        "length": record.length,
        "fd": record.fd,
    }
    return out + _made(layouts.DATA, record, shape | 1, **members) + piece(record.data[:300])


def _made(layout: layouts.Layout, record: Exec | Exit | Data, choice: int, **members: int) -> bytes:
    raw = bytearray(layout.expected().size)
    for name, value in {"time": record.time, "pid": record.pid}.items():
        _put(raw, layouts.HEAD, name, value)
    at, size = layouts.HEAD.expected().members["comm"]
    raw[at : at + size] = record.comm.encode()[: size - 1].ljust(size, b"\0")
    for name, value in members.items():
        _put(raw, layout, name, value)
    return bytes([choice]) + bytes(raw)
