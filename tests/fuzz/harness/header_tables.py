"""Header tables against hpack's own decoder: a table seen from its start is the same; one that is older than the
tracer says the same or that it does not know, and what it does not know keeps one name."""

from collections.abc import Iterator

from hpack import Decoder, Encoder, HPACKError

from tests.fuzz.contract import Growing
from tests.fuzz.samples import blocks
from tests.fuzz.taps import Taps, piece
from tracer.headers import MAX_MEMO, Block, Headers, HeaderStats
from tracer.table import CAPACITY, DEFAULT_LIMIT, MAX_LIMIT, UNKNOWN

MAX_BLOCKS = 60


def run(data: bytes) -> None:
    taps = Taps(data)
    missed = taps.byte() % 8  # blocks before the tracer came
    encoder = Encoder()
    theirs = Decoder(max_header_list_size=1 << 30)
    theirs.max_allowed_table_size = MAX_LIMIT
    stats = HeaderStats()
    ours = Headers(stats, whole=not missed)
    growing = Growing(stats)
    olds: dict[tuple[int, bytes], bytes] = {}
    blocks_before: list[bytes] = []
    valid = True  # what an encoder writes, as far as hpack says
    for number in range(MAX_BLOCKS):
        if not taps.more:
            return
        kind = taps.byte()
        if kind & 2 and blocks_before:
            block = blocks_before[kind >> 2 if kind >> 2 < len(blocks_before) else -1]  # means something else by now
        else:
            block = _encoded(encoder, taps) if kind & 1 and valid else taps.piece()
        blocks_before.append(block)
        true: list[tuple[bytes, bytes]] | None = None
        if valid:
            try:
                true = [(bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)]
            except (HPACKError, IndexError):
                valid = False
        if number < missed:
            # Who asks for a smaller table than the default's is unknown to gRPC (grpc-go, grpc-core keep 4,096).
            if not valid or theirs.header_table.maxsize != DEFAULT_LIMIT:
                return
            continue
        found = ours.decode(block)
        growing.check()
        _bounded(ours)
        if found is None:
            if valid and not missed and true is not None:
                assert any(text[:1] == UNKNOWN for field in true for text in field), "a good block refused"
            valid = False
            continue
        if valid and true is not None:
            _same(found, true, ours.epoch, olds, late=bool(missed))


def _encoded(encoder: Encoder, taps: Taps) -> bytes:
    fields = []
    for _ in range(taps.byte() % 12):
        name = b"n%d" % (taps.byte() % 40)
        value = taps.piece()
        fields.append((name, value.lstrip(b"\0")))
    return encoder.encode(fields, huffman=bool(len(fields) & 1))


def _same(
    found: Block, true: list[tuple[bytes, bytes]], epoch: int, olds: dict[tuple[int, bytes], bytes], *, late: bool
) -> None:
    assert len(found.fields) == len(true)
    for ours, theirs in zip(found.fields, true, strict=True):
        assert late or not any(text[:1] == UNKNOWN for text in ours), "nothing is older than the start"
        if ours[0][:1] == UNKNOWN:
            assert olds.setdefault((epoch, ours[0]), theirs[0]) == theirs[0], "one identity, two names"
        else:
            assert ours[0] == theirs[0]
        if ours[1][:1] == UNKNOWN:
            whole = theirs[0] + b"\0" + theirs[1]
            assert olds.setdefault((epoch, b"=" + ours[1]), whole) == whole, "one identity, two fields"
        else:
            assert ours[1] == theirs[1]
    assert [place for place, _ in found.old] == [i for i, (_, value) in enumerate(found.fields) if value[:1] == UNKNOWN]


def _bounded(headers: Headers) -> None:
    table = headers._table
    assert table._size == sum(32 + len(name) + len(value) for name, value in table._entries)
    assert table._size <= max(CAPACITY, table._limit or 0)
    assert len(headers._memo) <= MAX_MEMO


def seeds() -> Iterator[bytes]:
    for way in ("request", "response"):
        for found in blocks(way):
            body = b"".join(b"\0" + piece(block) for block in found)
            yield b"\0" + body
            yield b"\5" + body
    lines = bytes([1, 3, 1]) + piece(b"a") + bytes([2]) + piece(b"b" * 50) + bytes([3]) + piece(b"c" * 300)
    yield b"\0" + lines * 4
    yield b"\2" + lines * 4
    yield b"\0" + (lines + b"\2\6\xff") * 4
    yield b"\1" + (lines + b"\2\6\xff") * 4
    yield b"\0" + lines + b"\0" + piece(b"\x20") + lines + b"\0" + piece(b"\x3f\xe1\x1f") + lines
