"""Frames stay as they are, whatever their kind; after an uncertain start only what can be nothing else does."""

import dataclasses

import pytest
from hyperframe.frame import ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PriorityFrame, SettingsFrame

from tests.unit.conversation import Conversation, chatter, goaway, grpc, rst
from tests.unit.decode import calls as decoded
from tests.unit.decode import facts
from tests.unit.redact.canary import CONTAINER, IMAGE, RUNTIME, SECRETS, calls, joined, leaks, redacted
from tracer.headers import Headers, HeaderStats
from tracer.records import Data, Exit
from tracer.redact import Redactor
from tracer.redact import calls as redact_calls
from tracer.redact.content import Contents
from tracer.redact.cover import Cover
from tracer.redact.grpc import MAX_FRAME, SPOILED
from tracer.redact.redactor import MAX_HELD_NS

PULL = IMAGE + "PullImage"
STATUS = RUNTIME + "ContainerStatus"


def sent(records, side="client"):
    return b"".join(r.data for r in records if isinstance(r, Data) and r.direction == "send" and r.side == side)


def bytewise(records, since=6):
    """The records after the opening, one byte each."""
    out = records[:since]
    for record in records[since:]:
        for at in range(record.length):
            out.append(dataclasses.replace(record, offset=record.offset + at, length=1, data=record.data[at : at + 1]))
    return out


def late(method=PULL, talks=2):
    """A conversation of which the first call is not recorded, so every start is uncertain."""
    talk = Conversation().open()
    for _ in range(talks):
        talk.call(method)
    return talk, len(talk.records)


@pytest.mark.parametrize("pad", [0, 1, 200, 255])
def test_padded_messages_are_read_through_their_padding(pad):
    request = calls()[PULL][0]
    talk = Conversation().open()
    talk.stream = 1
    talk.write("client", talk.headers(1, talk.client.encode(talk.request_fields(PULL))))
    body = grpc(request)
    for part, end in ((body[:40], False), (body[40:90], False), (body[90:], True)):
        frame = DataFrame(1, data=part, pad_length=pad)
        frame.flags.add("PADDED")
        if end:
            frame.flags.add("END_STREAM")
        talk.write("client", frame.serialize())
    talk.respond(1)
    for records in (talk.records, bytewise(talk.records)):
        out = redacted(records)
        assert not leaks(out)
        assert facts(decoded(out)[0]) == facts(decoded(talk.records)[0])
        assert decoded(out)[0].request.data == Contents().clean(PULL, "request", request)
        assert b"\x00" * max(pad, 30) not in sent(out)


def test_padding_that_is_longer_than_its_frame_hurts_no_other():
    talk = Conversation().open()
    stream = talk.request(PULL, calls()[PULL][0])
    talk.respond(stream)
    frame = bytearray(talk.data(3, b"\xffsecret of nobody"))
    frame[4] |= 0x8
    talk.write("client", talk.headers(3, talk.client.encode(talk.request_fields(STATUS))) + bytes(frame))
    talk.stream = 3
    talk.call(STATUS, *calls()[STATUS])
    out = redacted(talk.records)
    assert b"nobody" not in sent(out)
    assert CONTAINER.encode() in sent(out, "server")
    assert not leaks(out)


def test_a_header_block_stays_with_padding_and_priority_and_one_in_several_frames_does_not():
    """Where a value stands in a block of several frames is not told: such a block is overwritten as a whole."""
    talk = Conversation().open()
    block = talk.client.encode(talk.request_fields(PULL))
    padded = HeadersFrame(1, data=block, pad_length=9, depends_on=0, stream_weight=15)
    padded.flags |= {"PADDED", "PRIORITY", "END_HEADERS"}
    again = talk.client.encode(talk.request_fields(STATUS))
    first = HeadersFrame(3, data=again[:4])
    rest = ContinuationFrame(3, data=again[4:9]).serialize()
    last = ContinuationFrame(3, data=again[9:])
    last.flags.add("END_HEADERS")
    priority = PriorityFrame(3, stream_weight=7).serialize()
    talk.write("client", padded.serialize() + talk.data(1, grpc(calls()[PULL][0]), end=True))
    talk.respond(1)
    talk.write("client", first.serialize() + rest + last.serialize() + priority)
    talk.write("client", talk.data(3, grpc(calls()[STATUS][0]), end=True) + chatter())
    talk.respond(3, calls()[STATUS][1])
    for records in (talk.records, bytewise(talk.records)):
        out = redacted(records)
        assert not leaks(out)
        assert facts(decoded(out)[0]) == facts(decoded(talk.records)[0])
        assert [call.path for call in decoded(out)] == [PULL, None]
        assert chatter() in sent(out)
        assert priority in sent(out)


def test_a_frame_nobody_knows_is_overwritten_but_for_its_head():
    """RFC 9113, section 4.1: unknown types are to be ignored."""
    talk = Conversation().open()
    text = SECRETS["unknown"].encode()
    talk.write("client", len(text).to_bytes(3, "big") + b"\xbe\x00\x00\x00\x00\x01" + text)
    talk.call(STATUS, *calls()[STATUS])
    out = redacted(talk.records)
    assert not leaks(out)
    assert b"\xbe\x00\x00\x00\x00\x01" + b"x" * len(text) in sent(out)
    assert decoded(out)[0].path == STATUS


def test_the_text_of_a_goaway_stays_only_when_it_certainly_is_one():
    farewell = GoAwayFrame(0, last_stream_id=1, additional_data=b"too_many_pings").serialize()
    talk, since = late()
    talk.write("server", chatter() + farewell)
    assert farewell in sent(redacted(talk.records), "server")
    out = sent(redacted(joined(talk.records, since)), "server")
    assert goaway(1)[9:] in out
    assert b"pings" not in out


@pytest.mark.parametrize(("count", "stays"), [(2, True), (10, True), (11, False)])
def test_long_settings_are_not_believed_after_an_uncertain_start(count, stays):
    frame = SettingsFrame(0, settings=dict.fromkeys(range(1, count + 1), 7)).serialize()
    talk, since = late()
    talk.write("server", chatter() + frame)
    assert (frame in sent(redacted(joined(talk.records, since)), "server")) is stays
    assert frame in sent(redacted(talk.records), "server")


def test_fields_that_no_grpc_peer_sends_are_not_shown_after_an_uncertain_start():
    """They may be no header block at all. Those of gRPC are shown, also when their names are older entries."""
    talk, since = late()
    talk.request(STATUS, calls()[STATUS][0], timeout="7m", traceparent="00-" + "ab" * 16 + "-" + "cd" * 8 + "-01")
    known = talk.records[since].data
    talk.request(STATUS, calls()[STATUS][0], authorization=SECRETS["auth"])
    talk.call(STATUS, *calls()[STATUS])
    out = redacted(joined(talk.records, since))
    assert out[0].data == known
    block = out[2].data[9 : 9 + int.from_bytes(out[2].data[:3], "big")]
    assert block == SPOILED * len(block)
    assert decoded(out)[-1].path in (None, STATUS)
    assert decoded(redacted(talk.records))[-1].path == STATUS


def test_a_spoiled_block_makes_a_reader_forget_its_table():
    headers = Headers(HeaderStats(), whole=True)
    assert headers.decode(SPOILED * 30) is None
    assert headers.epoch == 1


def test_a_block_in_pieces_is_not_shown_after_an_uncertain_start():
    talk, since = late()
    block = talk.client.encode(talk.request_fields(STATUS))
    first = HeadersFrame(9, data=block[:3]).serialize()
    last = ContinuationFrame(9, data=block[3:])
    last.flags.add("END_HEADERS")
    talk.write("client", chatter() + first + last.serialize())
    out = sent(redacted(joined(talk.records, since)))
    assert out.endswith(SPOILED * (len(block) - 3))
    assert last.serialize() in sent(redacted(talk.records))


def test_heads_that_no_peer_sends_end_a_false_start():
    """What follows is overwritten until a start is certain again."""
    talk, since = late()
    talk.write("client", chatter() + b"\x00\x00\x05\x00\x00\x00\x00\x00\x02" + SECRETS["unknown"].encode())
    talk.write("client", chatter() * 2)
    out = redacted(joined(talk.records, since))
    assert not leaks(out)
    assert sent(out).startswith(chatter() + b"xxxxx")
    assert sent(out).endswith(chatter() * 2)


@pytest.mark.parametrize("at", [1, 3, 10, 23])
def test_a_preface_in_pieces_stays(at):
    talk = Conversation()
    opening = Conversation().open().records
    talk.write("client", opening[0].data[:at])
    stage = Redactor()
    assert [safe for record in talk.records for safe in stage.feed(record)] == []
    talk.write("client", opening[0].data[at:] + opening[2].data)
    talk.write("server", opening[4].data[:4])
    talk.write("server", opening[4].data[4:])
    talk.call(PULL, *calls()[PULL])
    out = redacted(talk.records)
    assert sent(out).startswith(opening[0].data + opening[2].data)
    assert sent(out, "server").startswith(opening[4].data)
    assert decoded(out)[0].path == PULL
    assert not leaks(out)


@pytest.mark.parametrize("text", [b"GET / HTTP/1.1\r\n\r\n", b"PRIVATE", b"P"])
def test_other_short_beginnings_are_decided(text):
    talk = Conversation()
    talk.write("client", text, read=False)
    stage = Redactor()
    out = stage.feed(talk.records[0])
    if text == b"P":
        assert out == []
        out = stage.flush()
    assert len(out[0].data) == len(text)
    assert b"RIVATE" not in out[0].data


def waited(talk):
    talk.time += MAX_HELD_NS + 1
    talk.records.append(Exit(talk.time, 9, 1, "runc", 0))


def test_half_a_header_block_that_was_given_up_is_spoiled():
    """It may hold anything until it is whole. The connection's frames stay certain all the same."""
    talk = Conversation().open()
    talk.call(PULL)
    block = talk.headers(3, talk.client.encode(talk.request_fields(STATUS)))
    talk.write("client", block[:12])
    waited(talk)
    talk.write("client", block[12:] + talk.data(3, grpc(calls()[STATUS][0]), end=True))
    talk.respond(3, calls()[STATUS][1])
    out = redacted(talk.records)
    assert [call.path for call in decoded(out)] == [PULL, None]
    assert [call.status for call in decoded(out)] == ["OK", "OK"]
    assert not leaks(out)


def test_half_a_head_that_was_given_up_is_whole_again():
    talk = Conversation().open()
    talk.call(PULL)
    ping = chatter()
    talk.write("client", ping[:5])
    waited(talk)
    talk.write("client", ping[5:20])
    waited(talk)
    talk.write("client", ping[20:])
    assert sent(redacted(talk.records)).endswith(ping)


def test_half_a_header_block_that_was_given_up_is_spoiled_too_after_an_uncertain_start():
    talk, since = late()
    block = talk.headers(9, talk.client.encode(talk.request_fields(STATUS)))
    talk.write("client", chatter())
    talk.write("client", block[:14])
    waited(talk)
    talk.write("client", block[14:])
    out = sent(redacted(joined(talk.records, since)))
    assert out == chatter() + block[:9] + SPOILED * 5 + block[14:]


def test_frames_too_long_to_be_looked_into_are_passed_over():
    talk = Conversation().open()
    frame = HeadersFrame(1, data=SECRETS["unknown"].encode() * (MAX_FRAME // 30)).serialize()
    for at in range(0, len(frame), 50_000):
        talk.write("client", frame[at : at + 50_000])
    talk.write("client", chatter() * 3)
    out = redacted(talk.records)
    assert not leaks(out)
    assert len(out) == len(talk.records)
    assert sent(out).endswith(chatter() * 3)


def test_calls_are_forgotten_beyond_a_limit(monkeypatch):
    monkeypatch.setattr(redact_calls, "MAX_CALLS", 4)
    talk = Conversation().open()
    streams = []
    for _ in range(6):
        talk.stream += 2
        talk.write("client", talk.headers(talk.stream, talk.client.encode(talk.request_fields(STATUS))))
        streams.append(talk.stream)
    for stream in streams:
        talk.write("client", talk.data(stream, grpc(calls()[STATUS][0]), end=True))
    out = redacted(talk.records)
    assert [CONTAINER.encode() in record.data for record in out[-12::2]] == [False, False, True, True, True, True]


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_reset_lets_go_of_what_waited(side):
    talk = Conversation().open()
    talk.stream = 1
    talk.write("client", talk.headers(1, talk.client.encode(talk.request_fields(PULL))))
    talk.write("client", talk.data(1, grpc(calls()[PULL][0])[:70]))
    stage = Redactor()
    out = [safe for record in talk.records for safe in stage.feed(record)]
    assert stage.stats.held == 2
    since = len(talk.records)
    talk.write(side, rst(1))
    out += [safe for record in talk.records[since:] for safe in stage.feed(record)]
    assert stage.stats.held == 0
    assert not leaks(out)
    assert rst(1) in sent(out, side)


def test_after_lost_frames_the_rest_of_open_messages_stays_overwritten():
    """Where the next message begins is not known, though it may look so."""
    first, second, third = (grpc(body) for body in (calls()[STATUS][0], b"\x10\x01" * 8, calls()[STATUS][0]))
    talk = Conversation().open()
    talk.stream = 1
    talk.write("client", talk.headers(1, talk.client.encode(talk.request_fields(STATUS))))
    talk.write("client", talk.data(1, first[: -len(second)]))
    gone = len(talk.records)
    talk.write("client", talk.data(1, first[-len(second) :]))
    talk.write("client", chatter() + talk.data(1, second) + talk.data(1, third))
    del talk.records[gone : gone + 2]
    out = redacted(talk.records)
    assert CONTAINER[:8].encode() not in sent(out)
    assert sent(out).endswith(b"x" * len(third))


def test_decided_bytes_do_not_change():
    cover = Cover(100)
    cover.extend(10)
    cover.decided = 104
    cover.show(102, b"abcdef")
    assert cover.take(100, 10) == b"xxxxcdefxx"
    assert cover.take(99, 2) == cover.take(105, 6) == b""
    assert cover.forget(104) == 4
    assert (cover.base, cover.take(104, 2)) == (104, b"cd")
