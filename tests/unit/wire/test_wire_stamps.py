"""When the client had sent, the server read, the server answered, the client read: right or null."""

import pytest

from tests.unit.conversation import STEP, Conversation, grpc, rst
from tests.unit.decode import calls, events, one
from tests.unit.wire.rewrite import late, trimmed, without
from tracer.calls import Finished
from tracer.streams import LATE_NS

STATUS = "/runtime.v1.RuntimeService/Status"


def stamps(call):
    return (call.start, call.sent, call.received, call.answered, call.read_answer, call.end)


def conversation():
    """One call is over, so that both readers are placed."""
    talk = Conversation().open()
    talk.call(STATUS)
    return talk


def answer(talk, stream, body=b"answer"):
    return talk.response_headers(stream) + talk.data(stream, grpc(body)) + talk.trailers(stream)


def test_both_ends_give_four_stamps():
    talk = conversation()
    talk.time += 5_000_000
    stream = talk.request(STATUS)
    sent = talk.time - STEP
    talk.time += 7_000_000
    talk.respond(stream)
    answered = talk.time - STEP
    call = calls(talk.records)[1]
    assert stamps(call) == (sent, sent, sent + STEP, answered, answered + STEP, answered + STEP)


def test_the_first_call_of_a_connection_has_them_too():
    talk = Conversation().open()
    talk.call(STATUS)
    assert None not in stamps(one(talk.records))


def test_a_request_in_several_writes_is_sent_with_the_last():
    talk = conversation()
    block = talk.client.encode(talk.request_fields(STATUS))
    start = talk.write("client", talk.headers(3, block))
    talk.write("client", talk.data(3, grpc(b"question")[:6]))
    last = talk.write("client", talk.data(3, grpc(b"question")[6:], end=True))
    talk.respond(3)
    call = calls(talk.records)[1]
    assert (call.start, call.sent, call.received) == (start, last, last + STEP)


def test_a_request_whose_first_record_is_stamped_after_it_was_all_read_is_sent_when_it_starts():
    talk = conversation()
    headers = talk.headers(3, talk.client.encode(talk.request_fields(STATUS)))
    body = talk.data(3, grpc(b"question"), end=True)
    start = talk.write("client", headers, read=False)
    talk.time = start - STEP - 1000
    talk.read("server", headers + body)
    talk.time = start
    talk.write("client", body, read=False)
    talk.respond(3)
    call = calls(talk.records)[1]
    assert (call.start, call.sent, call.received) == (start, start, start)


def test_a_reader_that_reads_in_pieces_has_read_with_the_last_piece():
    talk = conversation()
    block = talk.client.encode(talk.request_fields(STATUS))
    frames = talk.headers(3, block) + talk.data(3, grpc(b"question"), end=True)
    talk.write("client", frames, read=False)
    talk.read("server", frames[:5])
    talk.read("server", frames[5:-1])
    received = talk.read("server", frames[-1:])
    frames = answer(talk, 3)
    answered = talk.write("server", frames, read=False)
    talk.read("client", frames[:-1])
    read = talk.read("client", frames[-1:])
    call = calls(talk.records)[1]
    assert stamps(call)[2:] == (received, answered, read, read)


def test_one_read_may_take_several_writes():
    talk = conversation()
    waiting = b""
    for stream in (3, 5, 7):
        frames = talk.headers(stream, talk.client.encode(talk.request_fields(STATUS)))
        frames += talk.data(stream, grpc(b""), end=True)
        talk.write("client", frames, read=False)
        waiting += frames
    received = talk.read("server", waiting)
    waiting = b""
    for stream in (7, 3, 5):
        frames = answer(talk, stream)
        talk.write("server", frames, read=False)
        waiting += frames
    assert [call.stream for call in calls(talk.records)] == [1]
    read = talk.read("client", waiting)
    found = calls(talk.records)[1:]
    assert [call.stream for call in found] == [7, 3, 5]
    assert {(call.received, call.read_answer, call.end) for call in found} == {(received, read, read)}
    assert [call.answered for call in found] == sorted(call.answered for call in found)


def test_a_call_is_not_over_before_the_client_has_read_the_answer():
    """The kubelet stands still: the answer waits in the socket, and that is visible."""
    talk = conversation()
    stream = talk.request(STATUS)
    frames = answer(talk, stream)
    answered = talk.write("server", frames, read=False)
    talk.time += 5_000_000_000
    _, rpc, _ = events(talk.records)
    (open_call,) = rpc.open_calls()
    assert (open_call.answered, open_call.read_answer, open_call.end, open_call.status) == (answered, None, None, "OK")
    read = talk.read("client", frames)
    call = calls(talk.records)[1]
    assert (call.end, call.ended_by) == (read, "server")


def test_a_reader_ahead_of_the_senders_record_is_not_before_it():
    """The sender was interrupted between sending and its record: what was read by then was sent by then."""
    talk = conversation()
    stream = talk.request(STATUS)
    talk.records[-1], talk.records[-2] = talk.records[-2], talk.records[-1]
    read, sent = talk.records[-2:]
    sent.time = read.time + 3_000
    talk.respond(stream)
    talk.records[-1], talk.records[-2] = talk.records[-2], talk.records[-1]
    talk.records[-1].time = talk.records[-2].time + 4_000
    call = calls(talk.records)[1]
    assert (call.start, call.sent, call.received) == (read.time,) * 3
    assert (call.answered, call.read_answer, call.end) == (talk.records[-2].time,) * 3


def test_an_answer_that_overtakes_the_record_of_its_request_is_held_back():
    """On one CPU the reader may run, and answer, before the sender's record is made."""
    talk = conversation()
    stream = talk.request(STATUS, b"question" * 200)
    talk.respond(stream)
    sent = talk.records.pop(-4)
    assert (sent.side, sent.direction) == ("client", "send")
    talk.records.append(sent)  # after its read, the answer, and the answer's read
    for records in (talk.records, trimmed(talk.records, 512)):
        found, rpc, streams = events(records)
        call = found[-1].call
        assert isinstance(found[-1], Finished)
        assert (call.stream, call.status, call.ended_by, call.complete) == (stream, "OK", "server", True)
        assert call.request.data == b"question" * 200
        assert list(stamps(call)) == sorted(stamps(call))
        assert (streams.stats.gaps, streams.stats.held) == (0, 1)
        assert rpc.open_calls() == []


def test_what_is_held_for_a_record_that_never_comes_is_given_up():
    talk = conversation()
    stream = talk.request(STATUS)
    talk.respond(stream)
    del talk.records[-4]
    assert events(talk.records)[2].stats.held == 1
    talk.time += LATE_NS
    talk.call(STATUS)
    found, _, streams = events(talk.records)
    finished = {event.call.stream: event.call for event in found if isinstance(event, Finished)}
    assert (finished[3].status, finished[3].sent, finished[3].complete) == ("OK", None, True)
    assert finished[5].complete
    assert streams.stats.filled == 1


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_lost_read_gives_no_stamp(lost):
    """The next read tells that it was read, not when."""
    talk = conversation()
    stream = talk.request(STATUS)
    talk.respond(stream)
    del talk.records[-3 if lost == "request" else -1]
    talk.call(STATUS)
    call = {call.stream: call for call in calls(talk.records)}[3]
    assert call.status == "OK"
    assert (call.received is None) == (lost == "request")
    assert (call.read_answer is None) == (lost == "answer")
    assert call.answered is not None
    assert call.end == (call.answered if lost == "answer" else call.read_answer)


def test_a_read_after_a_lost_one_is_exact_for_what_it_read_itself():
    talk = conversation()
    frames = talk.headers(3, talk.client.encode(talk.request_fields(STATUS))) + talk.data(3, grpc(b""), end=True)
    talk.write("client", frames, read=False)
    talk.read("server", frames[:10])
    received = talk.read("server", frames[10:])
    talk.respond(3)
    del talk.records[-4]
    call = calls(talk.records)[1]
    assert call.received == received


@pytest.mark.parametrize("seen", ["client", "server"])
def test_one_end_alone_gives_its_own_stamps_only(seen):
    """What the other end sent is known to nobody then."""
    talk = conversation()
    records = [record for record in talk.records if record.side == seen]
    found, rpc, _ = events(records)
    (call,) = rpc.open_calls() if seen == "client" else [None]
    if seen == "client":
        assert (call.sent is not None, call.received, call.answered) == (True, None, None)
    assert not [event for event in found if isinstance(event, Finished)]


def test_without_the_clients_reads_a_call_ends_with_its_answer():
    talk = conversation()
    talk.records = [r for r in talk.records if (r.side, r.direction) != ("client", "recv")]
    call = one(talk.records)
    assert (call.read_answer, call.end, call.status) == (None, call.answered, "OK")


def test_a_late_reader_is_placed_by_what_it_read_and_only_then():
    talk = Conversation().open()
    for _ in range(4):
        talk.call(STATUS, b"question")
    started = len(talk.records)
    # In flight when the tracer starts: bytes that its sender sent before, and its reader reads after.
    stream = talk.request(STATUS)
    talk.respond(stream)
    stream = talk.request(STATUS)
    talk.respond(stream)
    records = late(talk.records, started + 1)  # the reader of the first request is seen, its sender is not
    found = {call.stream: call for call in calls(records)}
    assert sorted(found) == [stream]
    assert None not in stamps(found[stream])
    assert found[stream].received == found[stream].sent + STEP


def test_a_late_reader_that_cannot_be_placed_gives_no_stamps():
    """Its reads begin in the middle of frames."""
    talk = Conversation().open()
    talk.call(STATUS)
    started = len(talk.records)
    for _ in range(5):
        talk.call(STATUS, b"question")
    records = late(talk.records, started)
    for record in records:
        if record.direction == "recv":
            record.offset += 3 if record.offset else 0
            record.data = record.data[3:] if not record.offset else record.data
    first = {(r.side, r.direction): r for r in reversed(records)}
    for record in first.values():
        if record.direction == "recv":
            record.data = b""
    shifted = [r for r in records if r.direction == "send" or r.data]
    for record in shifted:
        if record.direction == "recv":
            record.data = record.data[1:]
    for call in calls(shifted):
        assert (call.received, call.read_answer) == (None, None)
        assert call.end == call.answered


def test_a_record_lost_at_one_end_only_costs_no_fact():
    """The reader's record has the same bytes; when they were sent nobody knows."""
    talk = conversation()
    for _ in range(3):
        talk.call(STATUS, b"question", b"answer")
    whole = {call.stream: call for call in calls(talk.records)}
    for place, record in enumerate(talk.records):
        if record.direction == "send" and 9 < place < len(talk.records) - 4:
            found = {call.stream: call for call in calls(without(talk.records, {place}))}
            assert found.keys() == whole.keys()
            for stream, call in found.items():
                real = whole[stream]
                assert (call.path, call.status, call.complete) == (real.path, real.status, True)
                assert (call.request.data, call.responses) == (real.request.data, real.responses)
                assert call.sent in (real.sent, None)
                assert call.answered in (real.answered, None)
                assert call.received == real.received
                assert call.read_answer == real.read_answer


def test_a_call_reset_while_its_request_waits_was_never_read():
    """The runtime stands still until the kubelet gives up."""
    talk = conversation()
    frames = talk.headers(3, talk.client.encode(talk.request_fields(STATUS, "1S"))) + talk.data(3, grpc(b""), end=True)
    talk.write("client", frames, read=False)
    talk.time += 1_000_000_000
    gone = talk.write("client", rst(3), read=False)
    talk.read("server", frames + rst(3))
    call = calls(talk.records)[1]
    assert (call.received, call.end, call.ended_by) == (talk.time, gone, "deadline")


def test_stamps_of_a_request_read_after_its_answer_are_not_told():
    """The server answered before it had read the request to its end."""
    talk = conversation()
    block = talk.client.encode(talk.request_fields(STATUS))
    body = talk.data(3, grpc(b"question" * 9), end=True)
    talk.write("client", talk.headers(3, block))
    talk.write("client", body, read=False)
    frames = talk.headers(3, talk.server.encode([(":status", "200"), ("grpc-status", "8")]), end=True)
    talk.write("server", frames, read=False)
    talk.read("server", body)
    talk.read("client", frames)
    call = calls(talk.records)[1]
    assert (call.status, call.received) == ("RESOURCE_EXHAUSTED", None)
    assert call.read_answer is not None
