"""Header tables and blocks: exact from a connection's start, and never wrong when joined later."""

import random

import pytest
from hpack import Decoder, Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer import headers as module
from tracer.headers import Headers, HeaderStats, Old
from tracer.heads import CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED
from tracer.http2 import Frame
from tracer.table import CAPACITY, MAX_LIMIT, MalformedBlock, Table

NAMES = [":path", ":authority", "grpc-timeout", "traceparent", "x-custom", "te", "user-agent"]
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)
fields = st.lists(st.tuples(st.sampled_from(NAMES), texts), max_size=8)


def raw(pairs):
    return [(name.encode(), value.encode()) for name, value in pairs]


@given(st.lists(st.tuples(fields, st.sampled_from([None, None, 0, 64, 4096, 300, 65536])), max_size=20), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_table_seen_whole_decodes_what_any_encoder_writes(blocks, huffman):
    """hpack's encoder adds every field, as Go's does, also those that are larger than the table."""
    encoder, table = Encoder(), Table(whole=True)
    for pairs, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        assert table.decode(encoder.encode(pairs, huffman=huffman)) == raw(pairs)


@given(st.lists(fields, min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_a_table_joined_late_is_exact_or_says_it_does_not_know(blocks, joined, seed):
    """Entries added since are exact; each older entry has one identity, and no other entry has it."""
    rng = random.Random(seed)
    encoder, late = Encoder(), Headers(HeaderStats(), whole=False)
    known: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for number, pairs in enumerate(blocks):
        if rng.random() < 0.05:
            encoder.header_table_size = rng.choice([0, 1024, 4096])
        block = encoder.encode(pairs)
        if number < joined:
            continue
        found = late.decode(block)
        assert found is not None
        assert len(found.fields) == len(pairs)
        olds = dict(found.old)
        for position, (real, seen) in enumerate(zip(raw(pairs), found.fields, strict=True)):
            if position in olds:
                key = (olds[position].epoch, olds[position].entry)
                assert key[1] < 0
                assert known.setdefault(key, real) == real
            else:
                assert seen[1] == real[1]
                assert seen[0] == real[0] or seen[0][:1] == b"\x00"
    assert late.epoch == 0


def test_an_older_entry_keeps_its_identity_however_many_come_later():
    encoder, late = Encoder(), Headers(HeaderStats(), whole=False)
    encoder.encode([(":path", "/a/B"), ("x-one", "1")])
    first = late.decode(encoder.encode([(":path", "/a/B")]))
    for number in range(30):
        assert late.decode(encoder.encode([("x-many", str(number))])) is not None
    again = late.decode(encoder.encode([(":path", "/a/B")]))
    assert first.old == again.old == ((0, Old(0, -2)),)
    assert late.decode(encoder.encode([("x-one", "1")])).old == ((0, Old(0, -1)),)


def test_an_older_name_with_a_new_value_takes_its_place_in_the_table():
    encoder, late = Encoder(), Headers(HeaderStats(), whole=False)
    encoder.encode([("grpc-timeout", "1S")])
    block = late.decode(encoder.encode([("grpc-timeout", "2S")]))
    assert block.fields == ((b"\x00-1", b"2S"),)
    assert block.old == ()
    assert late.decode(encoder.encode([("grpc-timeout", "2S")])).fields == ((b"\x00-1", b"2S"),)
    assert late.decode(encoder.encode([("grpc-timeout", "1S")])).old == ((0, Old(0, -1)),)


def test_nothing_is_older_than_an_emptied_table():
    encoder, late = Encoder(), Headers(HeaderStats(), whole=False)
    encoder.encode([(":path", "/a/B")])
    encoder.header_table_size = 0
    encoder.header_table_size = 4096
    assert late.decode(encoder.encode([(":path", "/a/B")])).fields == ((b":path", b"/a/B"),)
    assert late.decode(b"\xbf") is None  # index 63: no entry
    assert late.stats.malformed == 1


def test_two_size_updates_may_begin_a_block():
    table = Table(whole=True)
    table.decode(Encoder().encode([("x-one", "1")]))
    assert table.decode(b"\x20\x3f\xe1\x1f\x82") == [(b":method", b"GET")]
    with pytest.raises(MalformedBlock):
        table.decode(b"\xbe")


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # of no entry
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a number without end
        b"\xff\x80\x80\x80\x80\x80\x80\x80\x80",  # a number that ends with the block
        b"\x82\x20",  # a size update after a field
        b"\x3f\xe1\xff\x7f",  # of more than any peer announces
        b"\x40",  # no name
        b"\x40\x05abc",  # a name beyond the block's end
        b"\x40\x01a",  # no value
        b"\x40\x01a\x7f",  # half a length
        b"\x00\x81\x00\x00",  # Huffman code that is padded with zeros
        b"\x40\x01a\x02\x00x",  # a value that begins with NUL
        b"\x40\x02\x00a\x01x",  # a name that does
        b"\x7f\xff\xff\xff\xff\xff\xff\x01a",  # an index without end for a name
    ],
)
def test_a_block_that_no_encoder_writes_makes_all_unsure(block):
    encoder, late = Encoder(), Headers(HeaderStats(), whole=True)
    late.decode(encoder.encode([("x-one", "1")]))
    assert late.decode(block[:-1] + b"\xc0" if block == b"\xbe" else block) is None
    assert (late.stats.malformed, late.stats.forgotten, late.epoch) == (1, 1, 1)
    assert late.decode(encoder.encode([("x-one", "1")])).old == ((0, Old(1, -1)),)


@given(st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_any_bytes_decode_like_hpack_or_are_malformed_for_both(block):
    """What hpack accepts we accept with the same result, but for text that begins with NUL."""
    reference = Decoder(max_header_list_size=1 << 20)
    reference.max_allowed_table_size = MAX_LIMIT
    try:
        expected = [(bytes(name), bytes(value)) for name, value in reference.decode(block, raw=True)]
    except Exception:
        expected = None
    table = Table(whole=True)
    try:
        found = table.decode(block)
    except MalformedBlock:
        assert expected is None or any(text[:1] == b"\x00" for pair in expected for text in pair)
        return
    assert expected is None or found == expected


@given(st.lists(st.binary(max_size=60), max_size=30), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_bytes_never_raise(blocks, whole):
    late = Headers(HeaderStats(), whole=whole)
    for block in blocks:
        late.decode(block)


def test_a_table_costs_no_more_than_its_limit():
    late = Headers(HeaderStats(), whole=False)
    encoder = Encoder()
    for number in range(3000):
        late.decode(encoder.encode([("x-many", f"{number:0500}")]))
    table = late._table
    assert table._size <= CAPACITY
    assert sum(32 + len(name) + len(value) for name, value in table._entries) == table._size


def test_an_entry_whose_size_is_not_known_may_not_fit_a_small_table():
    """Its name is older than the tracer."""
    encoder, late = Encoder(), Headers(HeaderStats(), whole=False)
    encoder.encode([("x-long-name", "1")])
    encoder.header_table_size = 200
    assert late.decode(encoder.encode([("x-long-name", "2")])) is None


def test_an_entry_that_may_not_fit_an_older_table_makes_all_unsure():
    """Its size is not known: such an entry may have emptied it."""
    encoder, late = Encoder(), Headers(HeaderStats(), whole=False)
    late.decode(encoder.encode([("x-one", "1")]))
    assert late.decode(encoder.encode([("x-two", "2" * 5000)])) is None
    assert late.epoch == 1


def test_a_large_error_text_on_a_whole_connection_empties_the_table():
    encoder, whole = Encoder(), Headers(HeaderStats(), whole=True)
    whole.decode(encoder.encode([("x-one", "1")]))
    text = "no such image " * 500
    assert whole.decode(encoder.encode([("grpc-message", text)])).fields == ((b"grpc-message", text.encode()),)
    assert whole.decode(encoder.encode([("x-one", "1")])).fields == ((b"x-one", b"1"),)
    assert whole.stats.malformed == 0


# blocks of frames


def frame(kind, flags, payload, stream=1, begin=1, end=2):
    return Frame(kind, flags, stream, payload, begin, end, 100)


def test_the_same_bytes_give_the_same_block_as_long_as_they_mean_the_same():
    encoder, whole = Encoder(), Headers(HeaderStats(), whole=True)
    whole.decode(encoder.encode([("x-one", "1"), ("x-two", "2")]))
    block = encoder.encode([("x-one", "1")])
    first = whole.feed(frame(HEADERS, END_HEADERS, block)).block
    first.meaning = "mine"
    assert whole.feed(frame(HEADERS, END_HEADERS | END_STREAM, block, 3)).block is first
    assert whole.stats.memoised == 1
    encoder.encode([("x-three", "3")])
    whole.decode(b"\x40\x07x-three\x013")
    moved = whole.feed(frame(HEADERS, END_HEADERS, block)).block
    assert moved is not first
    assert moved.fields == ((b"x-two", b"2"),)
    assert moved.meaning is None


def test_what_is_remembered_of_blocks_is_bounded():
    whole = Headers(HeaderStats(), whole=True)
    for number in range(5000):
        text = b"%d" % number
        whole.decode(b"\x00\x01a" + bytes([len(text)]) + text)
    assert len(whole._memo) <= module.MAX_MEMO
    whole.decode(b"\x00\x01a\x7f\xe1\x1e" + b"x" * 4064)
    assert all(len(block) <= module.MAX_MEMO_BLOCK for block in whole._memo)


def test_a_block_begins_with_its_first_and_ends_with_its_last_frame():
    whole = Headers(HeaderStats(), whole=True)
    assert whole.feed(frame(HEADERS, END_STREAM, b"\x82", begin=5, end=6)) is None
    received = whole.feed(frame(CONTINUATION, END_HEADERS, b"\x84", begin=8, end=9))
    assert (received.begin, received.end, received.end_stream) == (5, 9, True)
    assert received.block.fields == ((b":method", b"GET"), (b":path", b"/"))


@pytest.mark.parametrize(
    "frames",
    [
        [frame(CONTINUATION, END_HEADERS, b"\x82")],
        [frame(HEADERS, 0, b"\x82"), frame(CONTINUATION, END_HEADERS, b"\x84", stream=3)],
        [frame(HEADERS, 0, b"\x82"), frame(DATA, 0, b"")],
        [frame(HEADERS, 0, b"\x82"), frame(HEADERS, END_HEADERS, b"\x82")],
        [frame(HEADERS, END_HEADERS | PADDED, b"\x05\x82")],
        [frame(HEADERS, END_HEADERS | PADDED, b"")],
        [Frame(HEADERS, END_HEADERS, 1, b"\x82", 1, 2, 100, missing=3)],
        [frame(HEADERS, 0, b"\x82"), Frame(CONTINUATION, END_HEADERS, 1, b"\x84", 1, 2, 100, missing=3)],
    ],
)
def test_blocks_that_cannot_be_make_all_unsure(frames):
    whole = Headers(HeaderStats(), whole=True)
    for each in frames:
        received = whole.feed(each)
        assert received is None or received.block is None
    assert (whole.stats.malformed, whole.epoch) == (1, 1)
    assert whole.feed(frame(HEADERS, END_HEADERS, b"\x82")).block.fields == ((b":method", b"GET"),)


def test_a_block_without_end_is_not_collected_for_ever():
    whole = Headers(HeaderStats(), whole=True)
    whole.feed(frame(HEADERS, 0, b"\x82"))
    for _ in range(100):
        whole.feed(frame(CONTINUATION, 0, bytes(16384)))
        assert whole._parts_size <= module.MAX_BLOCK
        assert sum(map(len, whole._parts)) <= module.MAX_BLOCK
