"""gRPC metadata: whatever the fields of a header block are, a head is made of them and holds only what may be."""

from collections.abc import Iterator

from tests.fuzz.contract import text
from tests.fuzz.samples import blocks
from tests.fuzz.taps import Taps, piece
from tracer.headers import Block, Headers, HeaderStats, Old
from tracer.metadata import STATUS, request_head, response_head
from tracer.table import UNKNOWN

NAMES = (
    b":method", b":scheme", b":path", b":authority", b":status", b"content-type", b"user-agent", b"te", b"grpc-timeout",
    b"grpc-status", b"grpc-message", b"grpc-encoding", b"traceparent", b"grpc-accept-encoding", b"",
)  # fmt: skip
VALUES = (b"POST", b"http", b"/runtime.v1.RuntimeService/Status", b"200", b"application/grpc", b"0", b"5", b"2m")

_RAW, _OLD = len(NAMES), len(NAMES) + 1


def run(data: bytes) -> None:
    taps = Taps(data)
    if taps.byte() & 1:
        headers = Headers(HeaderStats(), whole=False)
        block = headers.decode(taps.rest())
    else:
        block = _built(taps)
    if block is not None:
        _check(block)


def _built(taps: Taps) -> Block:
    fields: list[tuple[bytes, bytes]] = []
    old: list[tuple[int, Old]] = []
    while taps.more and len(fields) < 40:
        kind = taps.byte() % (len(NAMES) + 4)
        if kind == _OLD:
            entry = -1 - taps.byte() % 60
            unknown = UNKNOWN + b"%d" % entry
            fields.append((unknown, unknown))
            old.append((len(fields) - 1, Old(0, entry)))
            continue
        if kind < _RAW:
            name = NAMES[kind]
        else:
            name = taps.piece() if kind == _RAW else UNKNOWN + b"%d" % (-1 - taps.byte() % 60)
        which = taps.byte()
        value = VALUES[which % len(VALUES)] if which < 64 else taps.piece()
        fields.append((name.lstrip(b"\0") if kind == _RAW else name, value.lstrip(b"\0")))
    return Block(tuple(fields), tuple(old))


def _check(block: Block) -> None:
    answer = response_head(Block(block.fields, block.old))
    assert answer.status is None or answer.status in STATUS
    assert answer.error is None or answer.error
    if answer.error:
        text(answer.error)
    text(answer.encoding)
    head = request_head(block)
    if head is None:
        assert (b":method", b"POST") not in block.fields
        return
    assert request_head(block) is head, "read twice"
    assert head.path is None or head.path.startswith("/")
    assert head.path is None or head.old_path is None
    assert head.old_path is None or head.old_path in [old for _, old in block.old]
    assert head.deadline_ns is None or 0 <= head.deadline_ns < 10**8 * 3_600 * 10**9
    assert head.trace is None or (len(head.trace) == 32 and set(head.trace) <= set("0123456789abcdef"))
    for value in (head.path, head.encoding):
        if value is not None:
            text(value)


def seeds() -> Iterator[bytes]:
    for way in ("request", "response"):
        for found in blocks(way):
            yield from (b"\1" + block for block in found[:6])
    yield b"\0" + bytes([0, 0, 1, 1, 2, 2, 3, 64]) + piece(b"localhost") + bytes([8, 64]) + piece(b"120000m")
    yield b"\0" + bytes([0, 0, 1, 1, _OLD, 7, _OLD, 9, _OLD, 11, 16, 3, 64]) + piece(b"1S")
    yield b"\0" + bytes([4, 3, 5, 4, 9, 6, 10, 64]) + piece(b"no such container %22x%22 %E2%82")
    yield (
        b"\0"
        + bytes([_RAW])
        + piece(b"traceparent")
        + bytes([64])
        + piece(b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")
    )
