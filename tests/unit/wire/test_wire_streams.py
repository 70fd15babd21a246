"""Records of both ends become each direction's bytes in order, with a Gap exactly where nobody's record is."""

from dataclasses import replace

import pytest

from tracer import streams as module
from tracer.records import Closed, Data, Exec, Lost, Opened
from tracer.streams import LATE_NS, MAX_HELD_BYTES, PREFACE, Chunk, Ended, Gap, Read, Streams

PATH = "/run/containerd/containerd.sock"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def data(time, side, direction, offset, payload, length=None, connection="c1", pid=1):
    count = len(payload) if length is None else length
    return Data(time, connection, side, direction, PATH, pid, pid, "comm", 3, offset, count, payload)


def sent(time, offset, payload, length=None, **options):
    return data(time, "client", "send", offset, payload, length, **options)


def read(time, offset, payload, length=None, **options):
    return data(time, "server", "recv", offset, payload, length, **options)


def opened():
    """A connection whose reader is placed; the request direction stands at 24."""
    streams = Streams()
    streams.feed(sent(1, 0, PREFACE))
    streams.feed(read(2, 0, PREFACE))
    return streams


def feed(streams, *records):
    return [item for record in records for item in streams.feed(record)]


def test_what_is_sent_comes_out_at_once_and_in_order():
    streams = opened()
    items = feed(streams, sent(10, 24, b"abc"), read(11, 24, b"abc"), sent(12, 27, b"de"), read(13, 27, b"de"))
    assert items == [
        Chunk("c1", "request", 10, 24, b"abc"),
        Read("c1", "request", 11, 27, 24),
        Chunk("c1", "request", 12, 27, b"de"),
        Read("c1", "request", 13, 29, 27),
    ]


def test_a_record_of_no_bytes_says_nothing():
    assert feed(opened(), sent(10, 24, b"")) == []


def test_a_record_that_both_ends_lost_is_a_gap_of_its_bytes():
    streams = opened()
    assert feed(streams, sent(10, 30, b"xyz")) == [
        Gap("c1", "request", 10, 24, 6),
        Chunk("c1", "request", 10, 30, b"xyz"),
    ]
    assert (streams.stats.gaps, streams.stats.gap_bytes) == (1, 6)


def test_a_connections_first_record_may_be_the_lost_one():
    streams = Streams()
    assert feed(streams, sent(10, 33, b"xyz")) == [
        Gap("c1", "request", 10, 0, 33),
        Chunk("c1", "request", 10, 33, b"xyz"),
    ]


def test_bytes_that_the_senders_record_lacks_are_taken_from_the_readers():
    streams = opened()
    items = feed(streams, read(9, 24, b"abcdef"), sent(10, 24, b"abc", length=6))
    assert items == [
        Read("c1", "request", 9, 30, 24),
        Chunk("c1", "request", 9, 24, b"abc"),
        Chunk("c1", "request", 9, 27, b"def", filled=True),
    ]


def test_bytes_that_no_record_has_are_a_gap_although_their_record_came():
    streams = opened()
    assert feed(streams, sent(10, 24, b"abc", length=10), sent(11, 34, b"z")) == [
        Chunk("c1", "request", 10, 24, b"abc"),
        Gap("c1", "request", 10, 27, 7),
        Chunk("c1", "request", 11, 34, b"z"),
    ]


def test_a_lost_senders_record_is_filled_with_what_the_reader_has_of_it():
    streams = opened()
    items = feed(streams, read(10, 24, b"abc", length=8), read(11, 32, b"ij"), sent(20, 34, b"kl"))
    assert items[2:] == [
        Chunk("c1", "request", 10, 24, b"abc", filled=True),
        Gap("c1", "request", 11, 27, 5),
        Chunk("c1", "request", 11, 32, b"ij", filled=True),
        Chunk("c1", "request", 20, 34, b"kl"),
    ]
    assert (streams.stats.filled, streams.stats.gaps) == (2, 1)


def test_a_read_that_is_told_twice_fills_a_hole_once():
    items = feed(opened(), read(10, 24, b"abcdef"), read(11, 24, b"abcdef"), sent(20, 27, b"defg"))
    assert items[2:] == [Chunk("c1", "request", 10, 24, b"abc", filled=True), Chunk("c1", "request", 20, 27, b"defg")]


def test_what_the_reader_has_of_a_record_that_never_comes_is_given_when_the_connection_ends():
    streams = opened()
    items = feed(streams, read(10, 24, b"abc"), Closed(20, "c1", "server", 1, 0))
    assert items[1:] == [Chunk("c1", "request", 10, 24, b"abc", filled=True), Ended("c1", 20, 0)]


def test_what_the_reader_has_of_a_record_that_never_comes_is_given_when_it_is_too_late_for_it():
    streams = opened()
    answer = data(12, "server", "send", 0, SETTINGS)
    assert feed(streams, read(10, 24, b"abc"), answer) == [Read("c1", "request", 10, 27, 24)]
    after = data(11 + LATE_NS, "server", "send", 9, b"more")
    assert feed(streams, after) == [
        Chunk("c1", "request", 10, 24, b"abc", filled=True),
        Chunk("c1", "response", 12, 0, SETTINGS),
        Chunk("c1", "response", 11 + LATE_NS, 9, b"more"),
    ]


def test_a_record_that_comes_after_it_was_given_up_gives_nothing_twice():
    streams = opened()
    feed(streams, read(10, 24, b"abc"), data(11 + LATE_NS, "server", "send", 0, SETTINGS))
    assert feed(streams, sent(12, 24, b"abc")) == []
    assert streams.stats.stale == 1
    assert feed(streams, sent(13, 25, b"bcd")) == [Chunk("c1", "request", 13, 27, b"d")]


def test_more_is_not_held_than_there_is_room_for():
    streams = opened()
    feed(streams, read(10, 24, b"abc"))
    held = data(12, "server", "send", 0, bytes(MAX_HELD_BYTES))
    assert feed(streams, held) == []
    items = feed(streams, data(13, "server", "send", MAX_HELD_BYTES, b"x"))
    assert [type(item) for item in items] == [Chunk, Chunk, Chunk]
    assert items[0].filled


def test_what_both_ends_held_back_comes_out_in_the_order_in_which_it_happened():
    streams = opened()
    feed(streams, data(3, "server", "send", 0, SETTINGS), data(4, "client", "recv", 0, SETTINGS))
    records = [
        read(10, 24, b"one"),  # its sender's record comes last
        data(11, "server", "send", 9, b"answer"),
        data(12, "client", "recv", 9, b"answer"),
        sent(14, 27, b"two"),  # ... and tells that the record of "one" was lost
    ]
    items = [item for item in feed(streams, *records) if isinstance(item, Chunk)]
    assert [(item.way, item.data, item.filled) for item in items] == [
        ("request", b"one", True), ("response", b"answer", False), ("request", b"two", False),
    ]  # fmt: skip


def test_a_reader_that_began_later_than_its_sender_is_placed_by_a_frame_of_headers():
    headers = b"\x00\x00\x03\x01\x05\x00\x00\x00\x05\x82\x86\x84"
    streams = Streams()
    items = feed(
        streams,
        sent(1, 0, b"\x00" * 50 + headers),  # ... 50 bytes that its reader reads before it is seen
        read(2, 0, headers),
        sent(3, 62, b"more"),
        read(4, 12, b"more"),
    )
    assert [item for item in items if isinstance(item, Read)] == [
        Read("c1", "request", 2, 62, 50), Read("c1", "request", 4, 66, 62),
    ]  # fmt: skip


def test_a_reader_is_placed_by_headers_behind_other_frames_too():
    headers = b"\x00\x00\x03\x01\x05\x00\x00\x00\x05\x82\x86\x84"
    window = b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x07"
    streams = Streams()
    items = feed(streams, sent(1, 0, window + headers), read(2, 0, headers[:0] + window + headers + b"x", length=40))
    assert items[1:] == [Read("c1", "request", 2, 40, 0)]


def test_a_reader_that_is_seen_before_its_sender_is_placed_when_the_sender_is():
    streams = Streams()
    assert feed(streams, read(2, 0, PREFACE)) == []
    assert feed(streams, sent(3, 0, PREFACE)) == [
        Chunk("c1", "request", 3, 0, PREFACE),
        Read("c1", "request", 2, 24, 0),
    ]


def test_a_reader_of_bytes_that_were_sent_twice_is_not_placed():
    """No frame of headers is in them: which of the two it read cannot be known."""
    streams = Streams()
    window = b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x07"
    items = feed(streams, sent(1, 0, b"junk" + window), sent(2, 17, window), read(3, 0, window))
    assert not [item for item in items if isinstance(item, Read)]


def test_headers_that_occur_twice_place_nobody():
    """Then they are no headers."""
    streams = Streams()
    headers = b"\x00\x00\x03\x01\x05\x00\x00\x00\x05\x82\x86\x84"
    items = feed(streams, sent(1, 0, b"junk" + headers + headers), read(3, 0, headers))
    assert not [item for item in items if isinstance(item, Read)]


def test_settings_in_the_middle_of_an_older_connection_do_not_place_its_reader():
    """grpc-go sends SETTINGS again when it enlarges its window; these differ in what they set."""
    first = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00"
    second = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x02\x00\x00"
    streams = Streams()
    items = feed(
        streams,
        data(1, "server", "send", 0, second),  # the client has yet to read the first
        data(2, "client", "recv", 0, first + second),
    )
    assert not [item for item in items if isinstance(item, Read)]


@pytest.mark.parametrize("side, other", [("client", "server"), ("server", "client")])
def test_who_talks_is_known_once_seen(side, other):
    streams = Streams()
    streams.feed(Opened(1, "c1", side, PATH, 17, "kubelet"))
    peer = streams.known("c1")
    assert (getattr(peer, f"{side}_pid"), getattr(peer, f"{side}_comm")) == (17, "kubelet")
    assert (getattr(peer, f"{other}_pid"), getattr(peer, f"{other}_comm"), peer.path) == (0, "", PATH)
    streams.feed(data(2, other, "send", 0, b"x", pid=18))
    assert getattr(peer, f"{other}_pid") == 18
    assert streams.known("c2") is None


def test_a_path_that_was_not_known_at_first_is_added():
    streams = Streams()
    streams.feed(Opened(1, "c1", "client", "", 17, "kubelet"))
    streams.feed(sent(2, 0, b"x", pid=17))
    assert streams.known("c1").path == ""
    streams.feed(Opened(3, "c1", "server", PATH, 18, "containerd"))
    assert streams.known("c1").path == PATH


def test_other_records_are_nobodys_bytes():
    streams = Streams()
    assert feed(streams, Exec(1, 2, 3, "runc", []), Lost(4, "socket_send", 5), Closed(6, "c9", "client", 1, 0)) == []
    assert (streams.stats.records, streams.stats.lost, streams.open) == (3, 5, 0)


def test_the_connection_that_was_silent_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    streams = Streams()
    for number in range(3):
        streams.feed(sent(number, 0, b"x", connection=f"c{number}"))
    streams.feed(sent(9, 1, b"y", connection="c0"))
    items = feed(streams, sent(10, 0, b"x", connection="c3"))
    assert items == [Ended("c1", 10, 0, evicted=True), Chunk("c3", "request", 10, 0, b"x")]
    assert (streams.open, streams.stats.evicted) == (3, 1)
    # Its later records are of a connection that is joined late.
    assert feed(streams, sent(11, 1, b"z", connection="c1"))[1:] == [
        Gap("c1", "request", 11, 0, 1), Chunk("c1", "request", 11, 1, b"z"),
    ]  # fmt: skip


def test_a_reader_far_ahead_costs_no_more_than_its_limit():
    streams = opened()
    at = 24
    for time in range(20_000):
        streams.feed(read(time, at, b"x" * 100))
        at += 100
    flow = streams._connections["c1"].request
    assert flow.ahead_bytes <= module.MAX_AHEAD_BYTES
    assert len(flow.ahead) <= module.MAX_AHEAD


def test_an_unplaced_reader_costs_no_more_than_its_limit():
    streams = Streams()
    for time in range(3000):
        streams.feed(sent(time, time * 100, b"x" * 100))
        streams.feed(replace(read(time, 7 + time * 100, b"y" * 100), data=b"y" * 100))
    placing = streams._connections["c1"].request.placing
    assert len(placing._window) <= 2 * 64 * 1024
    assert len(placing.reads) <= 64
