"""HTTP/2 frames of one direction: from the connection's start any cut gives what plain reading gives; begun late, or
with gaps, frames never overlap, and nothing stays kept."""

from collections.abc import Iterator

from tests.fuzz.contract import Growing, limits
from tests.fuzz.samples import chunks
from tests.fuzz.taps import Taps
from tracer import heads, http2, resync
from tracer import kept as kept_module
from tracer.heads import DATA, PING, PREFACE, PRIORITY, PUSH_PROMISE, WINDOW_UPDATE
from tracer.http2 import Desync, Frame, Frames, FrameStats
from tracer.kept import Kept
from tracer.streams import Chunk, Gap, Way

SILENT = frozenset({PRIORITY, heads.SETTINGS, PUSH_PROMISE, PING, WINDOW_UPDATE})
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
CONTROL, KEPT, RETAINED = 600, 4000, 2000

LATE, RESPONSE, GAPS = 1, 2, 4


def run(data: bytes) -> None:
    taps = Taps(data)
    mode = taps.byte()
    steps = [(taps.number(2) % 900, taps.byte()) for _ in range(taps.byte() % 24)]
    raw = taps.rest()
    way: Way = "response" if mode & RESPONSE else "request"
    if not mode & LATE:
        raw = (SETTINGS if mode & RESPONSE else PREFACE) + raw
    small = limits(http2, MAX_CONTROL=CONTROL, SCAN_GIVEN_UP=20_000), limits(kept_module, MAX_KEPT=KEPT)
    with small[0], small[1], limits(resync, MAX_RETAINED=RETAINED, MAX_CANDIDATES=8):
        cut = _feed(raw, way, steps, gaps=bool(mode & GAPS))
        if mode & (LATE | GAPS):
            return
        assert [_facts(frame) for frame in cut] == list(_plain(raw, 0 if mode & RESPONSE else len(PREFACE)))


def _feed(raw: bytes, way: Way, steps: list[tuple[int, int]], *, gaps: bool) -> list[Frame]:
    stats, kept = FrameStats(), Kept()
    frames, growing = Frames(stats, kept), Growing(stats)
    found: list[Frame] = []
    at = until = 0
    for number, (size, kind) in enumerate([*steps, (len(raw), 0)]):
        piece = raw[at : at + size]
        if not piece:
            continue
        gap = gaps and kind & 7 == 7
        item = Gap("c", way, number, at, len(piece)) if gap else Chunk("c", way, number, at, piece, bool(kind & 8))
        at += len(piece)
        for each in frames.feed(item):
            if isinstance(each, Desync):
                assert each.time == number
                continue
            assert each.type not in SILENT
            assert each.begin <= each.end <= number
            assert until < each.until <= at
            assert each.until - until >= 9 + len(each.payload) + each.missing or frames.certain is False
            assert 0 <= each.stream < 1 << 31
            assert each.type == DATA or len(each.payload) <= max(CONTROL, len(piece))
            until = each.until
            found.append(each)
        assert 0 <= kept.bytes <= KEPT
        assert not frames.certain or frames.begun
        growing.check()
    frames.close()
    assert kept.bytes == 0
    return found


Facts = tuple[int, int, int, int, int]


def _facts(frame: Frame) -> Facts:
    return frame.type, frame.flags, frame.stream, len(frame.payload) + frame.missing, frame.until


def _plain(raw: bytes, at: int) -> Iterator[Facts]:
    """As a peer reads them."""
    while at + 9 <= len(raw):
        length, kind, flags = int.from_bytes(raw[at : at + 3], "big"), raw[at + 3], raw[at + 4]
        stream = int.from_bytes(raw[at + 5 : at + 9], "big") & 0x7FFFFFFF
        at += 9 + length
        if at <= len(raw) and kind not in SILENT:
            yield kind, flags, stream, length, at


def seeds() -> Iterator[bytes]:
    for way, flag in (("request", 0), ("response", RESPONSE)):
        for found in chunks(way, 40):
            raw = b"".join(chunk.data for chunk in found)[:1500]
            raw = raw.removeprefix(PREFACE)
            steps = [len(chunk.data).to_bytes(2, "little") + b"\0" for chunk in found[:20]]
            even = b"".join(steps)
            yield bytes([flag, 0]) + raw
            yield bytes([flag, len(steps)]) + even + raw
            yield bytes([flag | LATE, len(steps)]) + even + raw[100:]
            yield bytes([flag | LATE | GAPS, 6]) + b"\x40\0\7\x99\0\0\x30\0\7\x80\1\0\xf0\0\7\0\1\0" + raw[50:]
            yield bytes([flag | GAPS, 6]) + b"\x40\0\0\x99\0\7\x30\0\0\x80\1\7\xf0\0\0\0\1\7" + raw
