"""Kernel records: whatever a record's members hold, it becomes one record that says just that."""

from collections.abc import Iterator

from tests.fuzz.contract import limits, text
from tests.fuzz.samples import records
from tests.fuzz.taps import Taps, piece
from tracer.kernel import decoder as module
from tracer.kernel import layouts
from tracer.kernel.decoder import CNI_VARIABLES, Decoder
from tracer.records import Closed, Data, Exec, Exit, Opened, Record

KIND, SIDE, DIRECTION = 32, 33, 34  # offsets in record_head
FIXED = (layouts.OPENED, layouts.DATA, layouts.CLOSED, layouts.EXEC, layouts.EXIT)
SIZES = [layout.expected().size for layout in FIXED]
CAPTURED, ARGV, ENV = (
    layouts.DATA.compiled().size - 12, layouts.HEAD.expected().size + 4, layouts.HEAD.expected().size + 8,
)  # fmt: skip
MAX_RECORDS, CONNECTIONS, NAMES = 64, 5, 6


def run(data: bytes) -> None:
    taps = Taps(data)
    paths: dict[str, str] = {}
    with limits(module, CONNECTIONS=CONNECTIONS, NAMES=NAMES):
        decoder = Decoder("f-")
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
    kind = choice % 5
    raw = bytearray(taps.full(SIZES[kind]))
    raw[KIND], raw[SIDE], raw[DIRECTION] = kind + 1, choice >> 3 & 1, choice >> 4 & 1
    if kind + 1 == layouts.RECORD_DATA:
        payload = taps.piece()
        if not choice & 0x80:
            raw[CAPTURED : CAPTURED + 4] = len(payload).to_bytes(4, "little")
        return bytes(raw) + payload
    if kind + 1 == layouts.RECORD_EXEC:
        argv, env = taps.piece(), taps.piece()
        if not choice & 0x80:
            raw[ARGV : ARGV + 4] = len(argv).to_bytes(4, "little")
            raw[ENV : ENV + 4] = len(env).to_bytes(4, "little")
        return bytes(raw) + argv + env
    return bytes(raw)


def _check(raw: bytes, record: Record, paths: dict[str, str]) -> None:
    assert record.time == int.from_bytes(raw[:8], "little")
    if not isinstance(record, (Closed,)):
        assert isinstance(record, (Opened, Data, Exec, Exit))
        text(record.comm)
        assert "\0" not in record.comm
    if isinstance(record, Opened):
        text(record.path)
        assert "\0" not in record.path
        paths[record.connection] = record.path
    elif isinstance(record, Data):
        assert record.path in ("", paths.get(record.connection))
        assert raw[SIZES[1] :].startswith(record.data)
        assert len(record.data) <= int.from_bytes(raw[CAPTURED : CAPTURED + 4], "little")
        assert record.length >= 0
    elif isinstance(record, Exec):
        assert record.env.keys() <= CNI_VARIABLES
        for word in [*record.argv, *record.env.values()]:
            text(word)
            assert "\0" not in word


def seeds() -> Iterator[bytes]:
    names: dict[str, int] = {}
    out = b""
    for record in records("startup")[:400]:
        made = _seed(record, names)
        out += made
        if len(out) > 3000:
            yield out
            out = b""
    yield out
    for kind in range(5):
        yield bytes([kind]) * 200
        yield bytes([kind | 0x80]) * 200


def _seed(record: Record, names: dict[str, int]) -> bytes:
    def head(pid: int, comm: str) -> bytes:
        name = comm.encode()[:15].ljust(16, b"\0")
        return record.time.to_bytes(8, "little") + pid.to_bytes(4, "little") * 2 + name + bytes(8)

    if isinstance(record, Exec):
        argv = "\0".join(record.argv).encode() + b"\0"
        env = b"".join(f"{name}={value}\0".encode() for name, value in record.env.items())
        return b"\3" + head(record.pid, record.comm) + bytes(16) + piece(argv) + piece(env)
    if isinstance(record, Exit):
        return b"\4" + head(record.pid, record.comm) + bytes(4) + record.code.to_bytes(4, "little")
    if not isinstance(record, Data):
        return b""
    out = b""
    number = names.setdefault(record.connection, len(names))
    shape = (record.side == "server") << 3 | (record.direction == "recv") << 4
    if number == len(names) - 1:
        path = record.path.encode()
        body = number.to_bytes(8, "little") + len(path).to_bytes(4, "little") + bytes(4) + path[:112].ljust(112, b"\0")
        out = bytes([shape]) + head(record.pid, record.comm) + body
    members = (number, record.offset, record.length, 0, record.fd, 1)
    sizes = (8, 8, 4, 4, 4, 4)
    body = b"".join(value.to_bytes(size, "little") for value, size in zip(members, sizes, strict=True))
    return out + bytes([shape | 1]) + head(record.pid, record.comm) + body + piece(record.data[:300])
