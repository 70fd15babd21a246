"""Message bodies: any cut gives the same messages; what is missing costs no more than it must; nothing stays kept."""

import struct
import zlib
from collections.abc import Iterator

from tests.fuzz.contract import limits
from tests.fuzz.samples import messages
from tests.fuzz.taps import Taps
from tracer import kept as kept_module
from tracer import messages as module
from tracer.kept import Kept
from tracer.messages import PREFIX, Body, Message, only

ENCODINGS = ("", "gzip", "deflate", "identity")
LARGEST = 3000
KEPT = 5000


def run(data: bytes) -> None:
    taps = Taps(data)
    encoding = ENCODINGS[taps.byte() & 3]
    sizes = [taps.number(2) % 700 for _ in range(taps.byte() % 16)]
    missing = {taps.byte(): taps.number(2) % 2000 for _ in range(taps.byte() % 4)}
    raw = taps.rest()
    with limits(module, MAX_MESSAGE=LARGEST), limits(kept_module, MAX_KEPT=KEPT):
        _feed(raw, sizes, encoding, missing)
        if not missing:
            _same(raw, sizes, encoding)
    whole = only(raw, 5)
    if whole is not None:
        assert whole.data == raw[PREFIX:]


def _feed(raw: bytes, sizes: list[int], encoding: str, missing: dict[int, int]) -> list[Message]:
    kept = Kept()
    body = Body(kept, encoding)
    found: list[Message] = []
    at = 0
    for number, size in enumerate([*sizes, len(raw)]):
        piece = raw[at : at + size]
        at += size
        found += body.feed(piece, number, missing.get(number, 0))
        assert 0 <= kept.bytes <= KEPT
    for message in found:
        assert message.length >= 0
        assert message.data is None or len(message.data) <= LARGEST
    assert not body.malformed or body.lost
    body.close()
    assert kept.bytes == 0
    return found


def _same(raw: bytes, sizes: list[int], encoding: str) -> None:
    cut = [(each.length, each.data) for each in _feed(raw, sizes, encoding, {})]
    at, true = 0, []
    while at + PREFIX <= len(raw):
        packed, length = struct.unpack_from(">BI", raw, at)
        if packed > 1 or at + PREFIX + length > len(raw):
            break
        true.append((packed, length, raw[at + PREFIX : at + PREFIX + length]))
        at += PREFIX + length
    assert [length for length, _ in cut] == [length for _, length, _ in true]
    for (_, data), (packed, length, plain) in zip(cut, true, strict=True):
        if not packed and length <= LARGEST:
            assert data == plain
        elif packed and data is not None:
            assert data == zlib.decompress(plain, zlib.MAX_WBITS | 32)


def seeds() -> Iterator[bytes]:
    found = [data for _, _, data in messages()][::7][:30]
    for number, data in enumerate(found):
        framed = struct.pack(">BI", 0, len(data)) + data
        packed = zlib.compress(data[:900], wbits=zlib.MAX_WBITS | 16 if number & 1 else zlib.MAX_WBITS)
        yield b"\0\0\0" + framed
        yield b"\0\3\5\0\7\0\0\1\0" + framed * 2
        yield b"\1\1\3\0\0" + struct.pack(">BI", 1, len(packed)) + packed + framed[:500]
        yield b"\2\2\3\0\0\1\1\1\20\0" + framed + struct.pack(">BI", 1, len(packed)) + packed
    bomb = zlib.compress(bytes(100_000))
    yield b"\2\0\0" + struct.pack(">BI", 1, len(bomb)) + bomb
    yield b"\0\0\0" + struct.pack(">BI", 0, 1 << 31) + bytes(20)
