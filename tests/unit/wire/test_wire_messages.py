"""gRPC's length-prefixed messages, however frames cut them, with bytes missing, compressed, too large, or none."""

import gzip
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.conversation import grpc
from tracer import kept, messages
from tracer.kept import Kept
from tracer.messages import MAX_MESSAGE, Body, only


def feed(body, *payloads):
    return [message for time, payload in enumerate(payloads) for message in body.feed(payload, time)]


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_cut_gives_the_same_messages(contents, seed):
    rng = random.Random(seed)
    whole = b"".join(grpc(content) for content in contents)
    body, found, at = Body(Kept()), [], 0
    while at < len(whole):
        size = rng.choice([1, 2, 5, 6, 30, 200])
        found += body.feed(whole[at : at + size], 7)
        at += size
    assert [(message.data, message.length) for message in found] == [(content, len(content)) for content in contents]
    assert body._kept.bytes == 0
    assert not body.lost


def test_a_message_has_the_time_of_its_last_byte():
    whole = grpc(b"abc") + grpc(b"def")
    found = feed(Body(Kept()), whole[:6], whole[6:10], whole[10:])
    assert [(message.data, message.time) for message in found] == [(b"abc", 1), (b"def", 2)]


def test_a_payload_that_is_just_one_message_needs_no_collecting():
    assert only(grpc(b"abc"), 3).data == b"abc"
    assert only(grpc(b""), 3).data == b""
    for other in (b"", b"\x00\x00", grpc(b"abc")[:-1], grpc(b"abc") + b"\x00", grpc(b"abc", compressed=True)):
        assert only(other, 3) is None


@pytest.mark.parametrize("flag", [2, 80, 255])
def test_a_prefix_that_cannot_be_ends_the_messages(flag):
    body = Body(Kept())
    (good,) = body.feed(grpc(b"abc") + bytes([flag]) + b"\x00\x00\x00\x01x" + grpc(b"def"), 1)
    assert good.data == b"abc"
    assert (body.lost, body.malformed) == (True, True)
    assert body.feed(grpc(b"ghi"), 2) == []


def test_a_message_too_large_to_keep_is_told_with_its_length_and_the_next_one_is_whole():
    length = MAX_MESSAGE + 1
    body = Body(Kept())
    found = body.feed(b"\x00" + length.to_bytes(4, "big") + b"x" * 100, 1)
    piece = bytes(1 << 20)
    left = length - 100
    while left > len(piece):
        found += body.feed(piece, 2)
        left -= len(piece)
        assert body._kept.bytes == 0
    found += body.feed(piece[:left] + grpc(b"next"), 3)
    assert [(message.data, message.length, message.time) for message in found] == [(None, length, 3), (b"next", 4, 3)]


def test_the_largest_message_that_the_kubelet_takes_is_kept():
    (message,) = feed(Body(Kept()), grpc(bytes(16 << 20))[:100], grpc(bytes(16 << 20))[100:])
    assert message.data == bytes(16 << 20)


def test_bytes_missing_inside_a_message_cost_only_that_one():
    whole = grpc(b"a" * 1000) + grpc(b"next")
    body = Body(Kept())
    assert body.feed(whole[:100], 1) == []
    assert body.feed(whole[100:150], 2, missing=70) == []
    assert body._kept.bytes == 0
    found = body.feed(whole[220:], 3)
    assert [(message.data, message.length) for message in found] == [(None, 1000), (b"next", 4)]


def test_bytes_missing_up_to_a_messages_end_cost_only_that_one():
    whole = grpc(b"a" * 95) + grpc(b"next")
    body = Body(Kept())
    found = body.feed(whole[:50], 1) + body.feed(b"", 2, missing=50) + body.feed(whole[100:], 3)
    assert [(message.data, message.length) for message in found] == [(None, 95), (b"next", 4)]


@pytest.mark.parametrize("before, missing", [(0, 3), (3, 1), (50, 51), (100, 1)])
def test_bytes_missing_where_a_message_may_begin_lose_all_that_follow(before, missing):
    whole = grpc(b"a" * 95) + grpc(b"b" * 95)
    body = Body(Kept())
    body.feed(whole[:before], 1)
    assert body.feed(b"", 2, missing=missing) == []
    assert body.lost
    assert not body.malformed
    assert body.feed(whole[before + missing :], 3) == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_named_encodings_are_unpacked(encoding):
    packed = (gzip.compress if encoding == "gzip" else zlib.compress)(b"a" * 5000)
    (message,) = Body(Kept(), encoding).feed(grpc(packed, compressed=True), 1)
    assert (message.data, message.length) == (b"a" * 5000, len(packed))


@pytest.mark.parametrize(
    "encoding, packed",
    [
        ("", gzip.compress(b"x", mtime=0)),
        ("snappy", gzip.compress(b"x", mtime=0)),
        ("identity", b"x"),
        ("gzip", b"not gzip"),
        ("gzip", gzip.compress(b"x" * 100, mtime=0)[:-3]),
        ("gzip", gzip.compress(b"x", mtime=0) + b"more"),
        ("gzip", b""),
        ("gzip", gzip.compress(bytes(MAX_MESSAGE + 1), mtime=0)),
    ],
    ids=["no name", "unknown", "identity", "garbage", "cut off", "with a tail", "nothing", "a bomb"],
)
def test_what_cannot_be_unpacked_is_told_without_data(encoding, packed):
    body = Body(Kept(), encoding)
    found = feed(body, grpc(packed, compressed=True), grpc(b"plain"))
    assert [(message.data, message.length) for message in found] == [(None, len(packed)), (b"plain", 5)]


def test_unfinished_messages_share_one_limit(monkeypatch):
    """Who comes too late loses the content, never the length or what follows."""
    monkeypatch.setattr(kept, "MAX_KEPT", 1000)
    shared = Kept()
    bodies = [Body(shared) for _ in range(10)]
    whole = grpc(b"x" * 400) + grpc(b"next")
    for body in bodies:
        assert feed(body, whole[:100], whole[100:300]) == []
        assert shared.bytes <= 1000
    for number, body in enumerate(bodies):
        first, second = feed(body, whole[300:])
        assert (first.data is not None, first.length) == (number < 3, 400)
        assert second.data == b"next"
    assert shared.bytes == 0


def test_closing_gives_back_what_was_kept():
    shared = Kept()
    for end in ("close", "lose"):
        body = Body(shared)
        body.feed(grpc(b"x" * 100)[:50], 1)
        assert shared.bytes == 45
        getattr(body, end)()
        assert shared.bytes == 0


@given(st.lists(st.tuples(st.binary(max_size=30), st.integers(0, 20)), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_bytes_never_raise_and_keep_nothing_forever(pieces):
    body = Body(Kept(), "gzip")
    for payload, missing in pieces:
        for message in body.feed(payload, 1, missing):
            assert message.data is None or message.length <= MAX_MESSAGE
    body.close()
    assert body._kept.bytes == 0
    assert messages.PREFIX == 5
