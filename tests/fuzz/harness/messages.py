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
    missing = {taps.byte() % (len(sizes) + 1): taps.number(2) % 700 for _ in range(taps.byte() % 4)}
    raw = taps.rest()
    with limits(module, MAX_MESSAGE=LARGEST), limits(kept_module, MAX_KEPT=KEPT):
        _same(raw, _feed(raw, sizes, encoding, {}), lossy=False)
        _same(raw, _feed(raw, sizes, encoding, missing), lossy=True)
    whole = only(raw, 5)
    if whole is not None:
        assert whole.data == raw[PREFIX:]


def _feed(raw: bytes, sizes: list[int], encoding: str, missing: dict[int, int]) -> list[Message]:
    """The bytes in pieces; of some of them so many bytes are missing in the middle."""
    kept = Kept()
    body = Body(kept, encoding)
    found: list[Message] = []
    at = 0
    for number, size in enumerate([*sizes, len(raw)]):
        piece = raw[at : at + size]
        at += len(piece)
        gone = min(missing.get(number, 0), len(piece))
        middle = (len(piece) - gone) // 2
        found += body.feed(piece[:middle] + piece[middle + gone :], number, gone)
        assert 0 <= kept.bytes <= KEPT
    assert not body.malformed or body.lost
    body.close()
    assert kept.bytes == 0
    return found


def _same(raw: bytes, found: list[Message], *, lossy: bool) -> None:
    """Every message is the one that was sent, or visibly not there; without loss all of them are told."""
    at, true = 0, []
    while at + PREFIX <= len(raw):
        packed, length = struct.unpack_from(">BI", raw, at)
        if packed > 1 or at + PREFIX + length > len(raw):
            break
        true.append((packed, raw[at + PREFIX : at + PREFIX + length]))
        at += PREFIX + length
    assert len(found) <= len(true)
    assert lossy or len(found) == len(true)
    for message, (packed, plain) in zip(found, true, strict=False):
        assert message.length == len(plain)
        if message.data is None:
            assert lossy or packed or len(plain) > LARGEST
        elif not packed:
            assert message.data == plain
        else:
            assert len(message.data) <= LARGEST
            assert message.data == zlib.decompress(plain, zlib.MAX_WBITS | 32)


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
