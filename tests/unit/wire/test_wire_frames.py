"""Frames of one direction: however the bytes are cut, after gaps, when joining late, and of what is no HTTP/2."""

import random
import time

import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tracer import http2, kept
from tracer.heads import PREFACE, plausible
from tracer.http2 import DATA, GOAWAY, HEADERS, RST_STREAM, Desync, Frame, Frames, FrameStats
from tracer.kept import Kept
from tracer.streams import Chunk, Gap


def headers(stream=1, block=b"\x83\x86\x84", *flags):
    return HeadersFrame(stream, data=block, flags=flags or ("END_HEADERS",)).serialize()


def body(stream=1, payload=b"payload", *flags):
    return DataFrame(stream, data=payload, flags=flags).serialize()


PING = PingFrame(0, opaque_data=b"\x02\x04\x10\x10\x09\x0e\x07\x07").serialize()
WINDOW = WindowUpdateFrame(0, window_increment=7).serialize()
SETTINGS = SettingsFrame(0).serialize()


class Half:
    """Feeds pieces at increasing offsets and times."""

    def __init__(self, way="request", offset=0):
        self.frames = Frames(FrameStats())
        self.way, self.offset, self.time = way, offset, 0

    def feed(self, data, filled=False):
        self.time += 1
        at, self.offset = self.offset, self.offset + len(data)
        return self.frames.feed(Chunk("c1", self.way, self.time, at, data, filled))

    def gap(self, length):
        self.time += 1
        at, self.offset = self.offset, self.offset + length
        return self.frames.feed(Gap("c1", self.way, self.time, at, length))


def begun():
    half = Half()
    assert half.feed(PREFACE + SETTINGS) == []
    assert half.frames.begun
    return half


def shapes(found):
    return [(frame.type, frame.stream, frame.payload) if isinstance(frame, Frame) else "desync" for frame in found]


def test_frames_that_say_nothing_about_calls_are_left_out():
    half = begun()
    silent = (
        PING + WINDOW + SettingsFrame(0, flags=("ACK",)).serialize() + PriorityFrame(3, stream_weight=1).serialize()
    )
    assert shapes(half.feed(silent + headers() + silent + body())) == [
        (HEADERS, 1, b"\x83\x86\x84"),
        (DATA, 1, b"payload"),
    ]
    frames = half.feed(GoAwayFrame(0, last_stream_id=5).serialize() + RstStreamFrame(7, error_code=8).serialize())
    assert [(frame.type, frame.stream) for frame in frames] == [(GOAWAY, 0), (RST_STREAM, 7)]


def test_a_frame_tells_when_its_first_and_last_byte_were_sent_and_where_it_ends():
    half = begun()
    whole = headers() + body()
    assert half.feed(whole[:3]) == []
    (first,) = half.feed(whole[3:14])
    assert (first.begin, first.end, first.until) == (2, 3, 33 + 12)
    assert half.feed(whole[14:20]) == []
    assert half.feed(whole[20:25]) == []
    (second,) = half.feed(whole[25:])
    assert (second.begin, second.end, second.until) == (3, 6, half.offset)


@pytest.mark.parametrize("way, opening", [("request", PREFACE + SETTINGS), ("response", SETTINGS)])
def test_any_cut_gives_the_same_frames(way, opening):
    whole = (
        opening
        + headers()
        + body(1, b"x" * 300)
        + PING
        + body(3, b"")
        + headers(5, b"\x83", "END_HEADERS", "END_STREAM")
    )
    expected = shapes(Half(way).feed(whole))
    assert len(expected) == 4
    for first in range(len(whole)):
        for second in (first, len(whole) - 3, len(whole) - 12):
            half = Half(way)
            cuts = sorted((first, second))
            found = half.feed(whole[: cuts[0]]) + half.feed(whole[cuts[0] : cuts[1]]) + half.feed(whole[cuts[1] :])
            assert shapes(found) == expected
            assert (half.frames.begun, half.frames.certain) == (True, True)
    half = Half(way)
    assert shapes([frame for byte in whole for frame in half.feed(bytes([byte]))]) == expected


def test_a_reserved_bit_in_the_stream_number_is_ignored():
    half = begun()
    raw = bytearray(body(5))
    raw[5] |= 0x80
    assert shapes(half.feed(bytes(raw))) == [(DATA, 5, b"payload")]


def test_bytes_of_the_readers_record_mark_the_frame_they_are_in():
    half = begun()
    whole = body() + body() + body()
    half.feed(whole[:4])
    found = half.feed(whole[4:20], filled=True) + half.feed(whole[20:])
    assert [frame.filled for frame in found] == [True, True, False]


def test_a_gap_inside_a_data_payload_costs_only_bytes_of_it():
    half = begun()
    whole = body(1, b"x" * 100)
    half.feed(whole[:50])
    assert half.gap(30) == []
    (frame,) = half.feed(whole[80:] + headers(3))[:1]
    assert (frame.type, len(frame.payload), frame.missing) == (DATA, 70 + 9 - 9, 30)
    assert half.frames.certain
    assert half.frames.stats.desyncs == 0


def test_a_gap_up_to_the_end_of_a_data_payload_ends_the_frame():
    half = begun()
    whole = body(1, b"x" * 100, "END_STREAM")
    half.feed(whole[:50])
    (frame,) = half.gap(len(whole) - 50)
    assert (frame.missing, frame.flags, frame.filled, frame.until) == (59, 1, True, half.offset)
    assert shapes(half.feed(headers(3))) == [(HEADERS, 3, b"\x83\x86\x84")]


@pytest.mark.parametrize(
    "start, length",
    [
        *((start, length) for start in (b"", headers()[:4], headers()[:11]) for length in (1, 9, 51, 5000)),
        *((body(1, b"x" * 100)[:50], length) for length in (60, 5000)),
    ],
)
def test_any_other_gap_loses_where_frames_are_until_the_next_whole_ones(start, length):
    half = begun()
    half.feed(start)
    assert half.gap(length) == [Desync(half.time)]
    assert half.frames.blind
    assert shapes(half.feed(headers(3) + body(3))) == [(HEADERS, 3, b"\x83\x86\x84"), (DATA, 3, b"payload")]
    assert (half.frames.blind, half.frames.certain) == (False, False)
    assert (half.frames.stats.desyncs, half.frames.stats.resyncs) == (1, 1)


def test_another_gap_before_that_is_not_told_again():
    half = begun()
    assert half.gap(10) == [Desync(2)]
    assert half.feed(b"junk" * 5) == []
    assert half.gap(10) == []
    assert shapes(half.feed(headers(3) + body(3))) == [(HEADERS, 3, b"\x83\x86\x84"), (DATA, 3, b"payload")]


def test_after_a_gap_in_a_large_answer_its_next_frames_are_found():
    """A list of a megabyte, in frames of 16 KiB and records that end anywhere."""
    rng = random.Random(1)
    payload = rng.randbytes(1 << 20)
    whole = SETTINGS + headers() + b"".join(body(1, payload[at : at + 16384]) for at in range(0, len(payload), 16384))
    for lost in range(1, 40):
        half = Half("response")
        at, found, place = 0, [], 0
        while at < len(whole):
            size = rng.choice([8192, 24000, 16393])
            place += 1
            piece = whole[at : at + size]
            found += half.gap(len(piece)) if place == lost else half.feed(piece)
            at += len(piece)
        real = {payload[n : n + 16384] for n in range(0, len(payload), 16384)}
        frames = [frame for frame in found if isinstance(frame, Frame) and frame.type == DATA]
        assert all(frame.payload in real for frame in frames if not frame.missing)
        assert len(frames) >= len(real) - 10


@pytest.mark.parametrize("way", ["request", "response"])
def test_joining_where_a_write_begins_finds_its_first_frame(way):
    for write in (headers(7) + body(7), headers(7), body(7), PING, WINDOW + PING, RstStreamFrame(7).serialize()):
        half = Half(way)
        found = half.feed(write)
        assert half.frames.synced
        assert not half.frames.begun
        assert half.frames.stats.skipped == 0
        assert [type(frame) for frame in found] == [Frame] * len(found)
        assert len(found) == len(shapes(Half(way, 0).feed(write)))


def test_joining_in_the_middle_of_a_frame_finds_the_next_ones():
    whole = body(1, b"x" * 500) + headers(3) + body(3) + headers(5) + body(5)
    for start in range(1, 509):
        half = Half(offset=0)
        found = half.feed(whole[start:])
        assert found[0] == Desync(1)
        assert shapes(found[1:])[:2] == [(HEADERS, 3, b"\x83\x86\x84"), (DATA, 3, b"payload")]


@pytest.mark.parametrize("piece", range(1, 30))
def test_joining_in_the_middle_of_a_frame_of_a_direction_in_pieces_finds_every_whole_frame(piece):
    whole = (
        body(1, b"x" * 50)[20:] + headers(3) + body(3) + headers(5) + body(5, b"", "END_STREAM") + headers(7) + body(7)
    )
    half, found = Half(), []
    for at in range(0, len(whole), piece):
        found += half.feed(whole[at : at + piece])
    frames = [frame for frame in found if isinstance(frame, Frame)]
    assert [(frame.type, frame.stream) for frame in frames] == [
        (HEADERS, 3), (DATA, 3), (HEADERS, 5), (DATA, 5), (HEADERS, 7), (DATA, 7),
    ]  # fmt: skip
    assert [frame.until for frame in frames][-1] == len(whole)


def test_a_frame_longer_than_what_is_there_is_believed_when_the_next_one_follows_it():
    """A chunk that begins with one head only: it may be one, and the bytes are kept until that is known."""
    whole = body(1, b"x" * 10_000) + headers(3)
    half = Half()
    assert half.feed(whole[:8000]) == []
    assert not half.frames.synced
    found = half.feed(whole[8000:])
    assert [(frame.stream, len(frame.payload), frame.begin, frame.end) for frame in found] == [
        (1, 10_000, 1, 2),
        (3, 3, 2, 2),
    ]
    assert half.frames.stats.skipped == 10_009  # that many bytes came before it was certain


def test_the_preface_in_the_middle_of_a_stream_begins_nothing():
    half = Half(offset=7)
    half.feed(PREFACE + SETTINGS)
    assert not half.frames.begun


@pytest.mark.parametrize("data", [b"P", b"PRI", PREFACE[:23] + b"x", b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n"])
def test_what_only_begins_like_the_preface_is_none(data):
    half = Half()
    half.feed(data)
    assert not half.frames.begun
    half.feed(headers(3) + body(3))
    assert not half.frames.begun


def test_a_settings_frame_of_the_client_is_not_the_connections_start():
    half = Half("request")
    half.feed(SETTINGS + headers())
    assert not half.frames.begun


def test_http1_is_no_frames_and_costs_next_to_nothing():
    """CRI-O answers the kubelet's cAdvisor in HTTP/1.1 on the same socket."""
    request = b"GET /containers/4f2a HTTP/1.1\r\nHost: crio\r\nUser-Agent: Go-http-client/1.1\r\n\r\n"
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n"
        + b'{"name":"x","pid":17}' * 400
    )
    for way, message in (("request", request), ("response", answer)):
        half = Half(way)
        for _ in range(300):
            assert [frame for frame in half.feed(message) if isinstance(frame, Frame)] == []
        assert not half.frames.synced
        assert len(half.frames._search._buffer) <= len(answer) + 64 * 1024


def test_a_direction_without_frames_is_given_up(monkeypatch):
    monkeypatch.setattr(http2, "SCAN_GIVEN_UP", 1 << 20)
    half = Half()
    for _ in range(300):
        half.feed(b"y" * 8192)
    assert half.frames.dead
    assert half.feed(headers() + body()) == []


@pytest.mark.parametrize(
    "pattern", [b"\x01", b"\x00", b"\x00\x00\x00\x00\x00\x00\x00\x00\x01", b"\x00\x00\x01\x00\x00\x00\x00\x00\x01"]
)
@pytest.mark.parametrize("piece", [1, 7, 24_576])
def test_work_on_hostile_bytes_is_linear(pattern, piece):
    """Heads wherever one looks, which lead nowhere."""
    data = (pattern * 24_576)[: 24_576 - 5] + b"\xff" * 5
    half = Half()
    begin = time.process_time()
    for _ in range(2):
        for at in range(0, len(data), piece):
            half.feed(data[at : at + piece])
    assert time.process_time() - begin < 10


def test_a_wrong_start_is_left_as_soon_as_a_head_is_none():
    """Bytes of a payload looked like three frames; they end in the middle of another."""
    half = Half()
    lure = headers(3) + body(3) + headers(5)
    assert len(half.feed(lure)) == 3
    found = half.feed(b"not a head at all, and more of the payload")
    assert found == [Desync(2)]
    assert shapes(half.feed(headers(9) + body(9))) == [(HEADERS, 9, b"\x83\x86\x84"), (DATA, 9, b"payload")]


def test_unfinished_frames_of_all_connections_share_one_limit(monkeypatch):
    monkeypatch.setattr(kept, "MAX_KEPT", 1000)
    shared = Kept()
    halves = []
    for _ in range(10):
        half = Half()
        half.frames = Frames(FrameStats(), shared)
        half.feed(PREFACE + body(1, b"x" * 400)[:300])
        halves.append(half)
    assert shared.bytes <= 1000
    ends = [half.feed(body(1, b"x" * 400)[300:] + headers(3)) for half in halves]
    assert all(shapes(end)[1] == (HEADERS, 3, b"\x83\x86\x84") for end in ends)
    assert [end[0].missing + len(end[0].payload) for end in ends] == [400] * 10
    assert [end[0].missing for end in ends[:3]] == [0, 0, 0]
    assert ends[9][0].missing > 0
    for half in halves:
        half.frames.close()
    assert shared.bytes == 0


def test_a_header_block_longer_than_any_is_not_kept():
    half = begun()
    raw = b"\x20\x00\x00\x01\x04\x00\x00\x00\x01"
    half.feed(raw)
    for _ in range(0x20):
        found = half.feed(bytes(0x10000))
    (frame,) = found
    assert (frame.type, frame.missing > 0, len(frame.payload) <= http2.MAX_CONTROL) == (HEADERS, True, True)


@pytest.mark.parametrize(
    "frame",
    [
        HeadersFrame(1, data=b"x", flags=("END_HEADERS", "END_STREAM")),
        HeadersFrame(1, data=b"", flags=()),
        HeadersFrame(1, data=b"x", flags=("PADDED", "PRIORITY"), pad_length=3, stream_weight=3),
        DataFrame(1, data=b"", flags=("END_STREAM",)),
        DataFrame(2**31 - 1, data=b"x" * 16000, flags=("END_STREAM", "PADDED"), pad_length=9),
        ContinuationFrame(1, data=b"x", flags=("END_HEADERS",)),
        RstStreamFrame(1, error_code=8),
        PriorityFrame(1, stream_weight=1),
        SettingsFrame(0),
        SettingsFrame(0, settings={3: 100, 4: 65535}),
        SettingsFrame(0, flags=("ACK",)),
        PingFrame(0, opaque_data=b"12345678", flags=("ACK",)),
        GoAwayFrame(0, last_stream_id=1, additional_data=b"max_age"),
        GoAwayFrame(0, last_stream_id=1),
        WindowUpdateFrame(0, window_increment=1),
        WindowUpdateFrame(5, window_increment=1),
    ],
)
def test_heads_that_grpc_peers_send_are_plausible(frame):
    assert plausible(frame.serialize(), 0)


@pytest.mark.parametrize(
    "raw",
    [
        PushPromiseFrame(1, promised_stream_id=2, data=b"x").serialize(),
        b"\x00\x00\x01\x0a\x00\x00\x00\x00\x01",  # of a type nobody sends
        b"\x00\x00\x01\x00\x00\x00\x00\x00\x02",  # DATA on a server's stream
        b"\x00\x00\x01\x00\x00\x00\x00\x00\x00",  # DATA on none
        b"\x00\x00\x00\x01\x04\x00\x00\x00\x01",  # a whole block of nothing
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x01",  # DATA without a byte that end nothing
        b"\x00\x00\x01\x00\x02\x00\x00\x00\x01",  # a flag nobody knows
        b"\x00\x00\x05\x03\x00\x00\x00\x00\x01",  # RST_STREAM of five bytes
        b"\x00\x00\x08\x06\x00\x00\x00\x00\x01",  # PING on a stream
        b"\x00\x00\x05\x04\x00\x00\x00\x00\x00",  # SETTINGS of five bytes
        b"\x00\x00\x06\x04\x01\x00\x00\x00\x00",  # an ACK with settings
        b"\x00\x00\x04\x08\x00\x00\x00\x00\x02",  # WINDOW_UPDATE on a server's stream
        b"\x00\x00\x04\x07\x00\x00\x00\x00\x00",  # GOAWAY of four bytes
        b"\x41\x00\x00\x00\x00\x00\x00\x00\x01",  # longer than any peer allows
        b"\x00\x00\x01\x00\x00\x80\x00\x00\x01",  # the reserved bit
        b"xxxxxxxxx",
    ],
)
def test_other_heads_are_not(raw):
    assert not plausible(raw, 0)
