"""Every frame type and flag, and every way a call can end."""

import gzip
import zlib

import pytest

from tests.unit.conversation import STEP, Conversation, chatter, goaway, grpc, rst
from tests.unit.decode import calls, events, facts, one
from tests.unit.wire.rewrite import late
from tracer.calls import Finished, Joined, Left, Opened, Requested, Responded
from tracer.records import Closed

STATUS = "/runtime.v1.RuntimeService/Status"
LIST = "/runtime.v1.RuntimeService/ListContainers"


def reference():
    talk = Conversation().open()
    talk.call(STATUS, b"question", b"answer")
    return facts(one(talk.records))


def test_a_call_is_told_in_order_opened_requested_responded_finished():
    talk = Conversation().open()
    talk.call(STATUS, b"question", b"answer")
    talk.close()
    found, rpc, streams = events(talk.records)
    assert [type(event) for event in found] == [Joined, Opened, Requested, Responded, Finished, Left]
    assert found[0].whole
    call = found[1].call
    assert (call.path, call.status, call.ended_by, call.complete) == (STATUS, "OK", "server", True)
    assert (call.request.data, found[3].message.data) == (b"question", b"answer")
    assert (call.request_bytes, call.response_bytes) == (13, 11)
    assert call.deadline_ns == 120_000_000_000
    assert call.id == "c1-1"
    assert rpc.open_calls() == []
    assert streams.open == 0


@pytest.mark.parametrize("priority", [False, True])
@pytest.mark.parametrize("pad", [None, 0, 1, 255])
def test_padding_and_priority_change_nothing(pad, priority):
    talk = Conversation().open()
    talk.stream = 1
    block = talk.client.encode(talk.request_fields(STATUS))
    talk.write(
        "client",
        talk.headers(1, block, pad=pad, priority=priority) + talk.data(1, grpc(b"question"), end=True, pad=pad),
    )
    block = talk.server.encode([(":status", "200"), ("content-type", "application/grpc")])
    body = talk.data(1, grpc(b"answer"), pad=pad)
    talk.write("server", talk.headers(1, block, pad=pad, priority=priority) + body + talk.trailers(1))
    assert facts(one(talk.records)) == reference()


def test_continuation_may_split_a_block_anywhere():
    length = len(Conversation().open().client.encode(Conversation().request_fields(STATUS)))
    for first in range(length + 1):
        for second in {first, length}:
            talk = Conversation().open()
            block = talk.client.encode(talk.request_fields(STATUS))
            talk.write(
                "client", talk.headers(1, block, cuts=(first, second)) + talk.data(1, grpc(b"question"), end=True)
            )
            talk.respond(1, b"answer")
            assert facts(one(talk.records)) == reference()


def test_an_empty_headers_fragment_may_come_before_the_block():
    talk = Conversation().open()
    block = talk.client.encode(talk.request_fields(STATUS))
    talk.write("client", talk.headers(1, block, cuts=(0, 0, 5), pad=3) + talk.data(1, grpc(b"question"), end=True))
    talk.respond(1, b"answer")
    assert facts(one(talk.records)) == reference()


def test_chatter_of_the_peers_says_nothing_about_calls():
    talk = Conversation().open()
    stream = talk.request(STATUS, b"question")
    talk.write("client", chatter())
    talk.write("server", chatter() + b"\x00\x00\x05\x02\x00\x00\x00\x00\x01\x00\x00\x00\x00\x10")  # PRIORITY
    talk.write("server", b"\x00\x00\x03\x15\x00\x00\x00\x00\x00abc")  # of a type nobody knows (RFC 9113, section 5.5)
    talk.respond(stream, b"answer")
    assert facts(one(talk.records)) == reference()


def test_end_stream_may_come_on_an_empty_data_frame():
    talk = Conversation().open()
    block = talk.client.encode(talk.request_fields(STATUS))
    talk.write("client", talk.headers(1, block) + talk.data(1, grpc(b"question")) + talk.data(1, b"", end=True))
    talk.respond(1, b"answer")
    assert facts(one(talk.records)) == reference()


def test_end_stream_may_come_on_headers_with_no_request_at_all():
    talk = Conversation().open()
    talk.write("client", talk.headers(1, talk.client.encode(talk.request_fields(STATUS)), end=True))
    talk.respond(1, b"answer")
    call = one(talk.records)
    assert (call.request, call.request_bytes, call.status, call.complete) == (None, 0, "OK", True)


def test_answer_without_trailers_has_no_status():
    talk = Conversation().open()
    stream = talk.request(STATUS)
    talk.write("server", talk.response_headers(stream) + talk.data(stream, grpc(b"answer"), end=True))
    call = one(talk.records)
    assert (call.status, call.ended_by, call.responses) == (None, "server", 1)


def test_trailers_may_be_the_whole_answer():
    talk = Conversation().open()
    stream = talk.request(STATUS)
    talk.fail(stream, 5, "no such thing: 100%25 gone")
    call = one(talk.records)
    assert (call.status, call.error, call.ended_by) == ("NOT_FOUND", "no such thing: 100% gone", "server")
    assert (call.responses, call.response_bytes) == (0, 0)


@pytest.mark.parametrize("value", ["17", "-1", "", "0x0", "9" * 5000, "²"])
def test_a_status_that_is_none_stays_unknown(value):
    talk = Conversation().open()
    stream = talk.request(STATUS)
    talk.write(
        "server", talk.headers(stream, talk.server.encode([(":status", "200"), ("grpc-status", value)]), end=True)
    )
    call = one(talk.records)
    assert (call.status, call.ended_by) == (None, "server")


def test_a_status_in_headers_that_do_not_end_the_stream_does_not_count():
    talk = Conversation().open()
    stream = talk.request(STATUS)
    talk.write("server", talk.headers(stream, talk.server.encode([(":status", "200"), ("grpc-status", "5")])))
    talk.write("server", talk.trailers(stream, 0))
    assert one(talk.records).status == "OK"


@pytest.mark.parametrize(
    "code, status",
    [
        (0, "INTERNAL"),
        (2, "INTERNAL"),
        (7, "UNAVAILABLE"),
        (8, "CANCELLED"),
        (11, "RESOURCE_EXHAUSTED"),
        (12, "PERMISSION_DENIED"),
    ],
)
def test_a_reset_by_the_server_has_the_status_that_clients_report(code, status):
    talk = Conversation().open()
    stream = talk.request(STATUS)
    talk.write("server", rst(stream, code))
    call = one(talk.records)
    assert (call.status, call.ended_by) == (status, "server")


@pytest.mark.parametrize("code", [0, 2, 7, 8, 11])
def test_a_reset_by_the_server_after_its_answer_changes_nothing(code):
    """grpc-go sends NO_ERROR when it answered before the request was whole."""
    talk = Conversation().open()
    stream = talk.request(STATUS, b"question")
    talk.respond(stream, b"answer")
    talk.write("server", rst(stream, code))
    assert facts(one(talk.records)) == reference()


@pytest.mark.parametrize("code", [0, 2, 7, 8, 11])
@pytest.mark.parametrize("begun", [False, True])
def test_a_reset_by_the_client_before_the_answer_is_its_cancel(code, begun):
    talk = Conversation().open()
    stream = talk.request(STATUS)
    if begun:
        talk.write("server", talk.response_headers(stream) + talk.data(stream, grpc(b"some")))
    gone = talk.write("client", rst(stream, code))
    talk.write("server", talk.trailers(stream))  # the server has not heard of it yet
    call = one(talk.records)
    assert (call.status, call.ended_by, call.end, call.responses) == (None, "client_cancel", gone, int(begun))


@pytest.mark.parametrize("code", [0, 8])
def test_a_reset_by_the_client_after_it_read_the_answer_changes_nothing(code):
    talk = Conversation().open()
    stream = talk.request(STATUS, b"question")
    talk.respond(stream, b"answer")
    talk.write("client", rst(stream, code))
    assert facts(one(talk.records)) == reference()


def test_an_answer_that_the_client_did_not_read_before_its_reset_was_not_taken():
    """The kubelet stood still; when it goes on, its deadline has passed and it drops what lies in the socket."""
    talk = Conversation().open()
    talk.call(LIST)
    stream = talk.request(STATUS, timeout="2S")
    answer = talk.response_headers(stream) + talk.data(stream, grpc(b"answer")) + talk.trailers(stream)
    talk.write("server", answer, read=False)
    talk.time += 2_000_000_000
    talk.write("client", rst(stream))
    talk.read("client", answer)
    call = calls(talk.records)[1]
    assert (call.status, call.ended_by, call.read_answer) == (None, "deadline", None)
    assert call.answered is not None


def test_an_answer_before_the_request_was_whole_ends_the_call():
    """grpc-go's server answers, its client drops the stream with NO_ERROR."""
    talk = Conversation().open()
    talk.call(LIST)
    talk.stream += 2
    stream = talk.stream
    block = talk.client.encode(talk.request_fields(STATUS))
    talk.write("client", talk.headers(stream, block) + talk.data(stream, grpc(b"x" * 100)[:50]))
    talk.fail(stream, 8, "too much")
    talk.write("client", rst(stream, 0))
    call = calls(talk.records)[1]
    assert (call.status, call.ended_by, call.sent) == ("RESOURCE_EXHAUSTED", "server", None)
    assert not call.complete


@pytest.mark.parametrize(
    "late, ended_by", [(-200_000_000, "client_cancel"), (-10_000_000, "deadline"), (0, "deadline"), (10**9, "deadline")]
)
def test_a_reset_at_the_deadline_is_the_deadlines(late, ended_by):
    talk = Conversation().open()
    stream = talk.request(STATUS, timeout="10S")
    start = talk.time - STEP
    talk.time = start + 10_000_000_000 + late - STEP
    talk.write("client", rst(stream))
    assert one(talk.records).ended_by == ended_by


def test_without_a_deadline_a_reset_is_a_cancel_however_late():
    talk = Conversation().open()
    stream = talk.request(STATUS, timeout=None)
    talk.time += 10**12
    talk.write("client", rst(stream))
    call = one(talk.records)
    assert (call.deadline_ns, call.hidden_deadline, call.ended_by) == (None, False, "client_cancel")


@pytest.mark.parametrize("code, ended_by, status", [(8, "deadline", None), (2, "server", "INTERNAL")])
def test_the_servers_own_timer_is_the_deadline_too(code, ended_by, status):
    talk = Conversation().open()
    stream = talk.request(STATUS, timeout="1S")
    talk.time += 1_000_000_000
    talk.write("server", rst(stream, code))
    call = one(talk.records)
    assert (call.ended_by, call.status) == (ended_by, status)


@pytest.mark.parametrize(
    "timeout, deadline",
    [("1H", 3600 * 10**9), ("2M", 120 * 10**9), ("3S", 3 * 10**9), ("4m", 4 * 10**6), ("5u", 5000), ("6n", 6),
     ("99999999n", 99999999), ("123456789m", None), ("5", None), ("m", None), ("5x", None), ("", None)],
)  # fmt: skip
def test_timeouts_have_six_units_and_eight_digits(timeout, deadline):
    talk = Conversation().open()
    talk.request(STATUS, timeout=timeout or None)
    assert events(talk.records)[1].open_calls()[0].deadline_ns == deadline


def test_goaway_ends_the_calls_that_the_server_never_looked_at():
    talk = Conversation().open()
    first, second = talk.request(STATUS), talk.request(LIST)
    talk.write("server", goaway(2**31 - 1))  # grpc-go announces a graceful stop like this
    assert len(events(talk.records)[1].open_calls()) == 2
    gone = talk.write("server", goaway(first))
    talk.respond(first)
    found = {call.stream: call for call in calls(talk.records)}
    assert (found[second].ended_by, found[second].status, found[second].end) == ("connection", None, gone)
    assert (found[first].ended_by, found[first].status) == ("server", "OK")


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("error", [0, 104])
def test_a_lost_connection_ends_its_open_calls(side, error):
    talk = Conversation().open()
    talk.call(LIST)
    talk.request(STATUS)
    gone = talk.time + 7
    talk.records.append(Closed(gone, "c1", side, 1, error))
    found = calls(talk.records)
    assert [(call.ended_by, call.status) for call in found] == [("server", "OK"), ("connection", None)]
    assert found[1].end == gone


def test_both_ends_may_tell_of_the_end():
    talk = Conversation().open()
    talk.request(STATUS)
    talk.close()
    talk.records.append(Closed(talk.time + 1, "c1", "server", 200, 0))
    found, _, streams = events(talk.records)
    assert [type(event) for event in found].count(Finished) == 1
    assert [type(event) for event in found].count(Left) == 1
    assert streams.open == 0


def test_streams_that_overlap_keep_their_own_messages():
    talk = Conversation().open()
    streams = [talk.request(STATUS, f"question {number}".encode()) for number in range(20)]
    for stream in streams:
        talk.write("server", talk.response_headers(stream))
    bodies = {stream: grpc(f"answer {stream}".encode()) for stream in streams}
    for at in range(30):
        for stream in reversed(streams):
            if bodies[stream][at : at + 1]:
                talk.write("server", talk.data(stream, bodies[stream][at : at + 1]), read=False)
    for stream in streams:
        talk.write("server", talk.trailers(stream), read=False)
    found, rpc, _ = events(talk.records)
    answers = {event.call.stream: event.message.data for event in found if isinstance(event, Responded)}
    assert answers == {stream: f"answer {stream}".encode() for stream in streams}
    requests = {call.stream: call.request.data for call in rpc.open_calls()}
    assert requests == {stream: f"question {number}".encode() for number, stream in enumerate(streams)}


def test_a_stream_of_messages_gives_each_of_them_however_frames_cut_them():
    messages = [b"", b"one", b"two" * 10_000, b"", b"three"]
    whole = b"".join(grpc(message) for message in messages)
    for most in (1, 4, 5, 6, 7, 16384):
        talk = Conversation().open()
        stream = talk.request("/runtime.v1.RuntimeService/GetContainerEvents")
        if most < 5:
            whole = b"".join(grpc(message[:9]) for message in messages)
        talk.write("server", talk.response_headers(stream) + talk.data(stream, whole, most=most))
        found, rpc, _ = events(talk.records)
        seen = [event.message.data for event in found if isinstance(event, Responded)]
        assert seen == [message[:9] if most < 5 else message for message in messages]
        assert rpc.open_calls()[0].responses == 5
        whole = b"".join(grpc(message) for message in messages)


@pytest.mark.parametrize("encoding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_messages_are_unpacked(encoding, pack):
    talk = Conversation().open()
    talk.stream = 1
    block = talk.client.encode(talk.request_fields(STATUS, grpc_encoding=encoding))
    talk.write("client", talk.headers(1, block) + talk.data(1, grpc(pack(b"question" * 99), compressed=True), end=True))
    body = talk.data(1, grpc(pack(b"answer" * 99), compressed=True) + grpc(b"plain"))
    talk.write("server", talk.response_headers(1, grpc_encoding=encoding) + body + talk.trailers(1))
    found = events(talk.records)[0]
    assert found[1].call.request.data == b"question" * 99
    assert [e.message.data for e in found if isinstance(e, Responded)] == [b"answer" * 99, b"plain"]


def test_who_reset_a_stream_of_an_older_table_entry_with_a_hidden_deadline_is_not_told():
    """Its deadline is an entry older than the tracer: whether it passed cannot be known."""
    talk = Conversation().open()
    for _ in range(3):
        talk.call(STATUS)
    start = len(talk.records)
    stream = talk.request(STATUS)
    talk.write("client", rst(stream))
    call = one(late(talk.records, start))
    assert (call.deadline_ns, call.hidden_deadline, call.ended_by) == (None, True, "unknown")


@pytest.mark.parametrize("stream", [0, 2, 4])
def test_streams_with_numbers_that_no_client_uses_are_no_calls(stream):
    talk = Conversation().open()
    block = talk.client.encode(talk.request_fields(STATUS))
    raw = bytearray(talk.headers(1, block, end=True))
    raw[5:9] = stream.to_bytes(4, "big")
    talk.write("client", bytes(raw))
    assert events(talk.records)[0] == []


def test_a_stream_number_below_the_latest_is_no_new_call():
    talk = Conversation().open()
    talk.call(STATUS)
    talk.call(STATUS)
    talk.write("client", talk.headers(1, talk.client.encode(talk.request_fields(LIST)), end=True))
    found, rpc, _ = events(talk.records)
    assert [type(event) for event in found].count(Opened) == 2
    assert rpc.open_calls() == []


def test_what_is_not_a_post_is_no_call():
    talk = Conversation().open()
    fields = [(":method", "GET"), (":scheme", "http"), (":path", "/healthz"), (":authority", "localhost")]
    talk.write("client", talk.headers(1, talk.client.encode(fields), end=True))
    found, rpc, _ = events(talk.records)
    assert (found, rpc.stats.malformed) == ([], 1)


def test_a_block_that_no_encoder_writes_is_a_call_of_unknown_method():
    talk = Conversation().open()
    talk.stream = 1
    talk.write("client", talk.headers(1, b"\xff\xff\xff\xff\xff\xff") + talk.data(1, grpc(b""), end=True))
    talk.respond(1)
    call = one(talk.records)
    assert (call.path, call.old_path, call.status, call.complete) == (None, None, "OK", False)


def test_two_connections_with_the_same_stream_numbers_are_apart():
    one_talk, other = Conversation("c1").open(), Conversation("c2", comm="crictl").open()
    first, second = one_talk.request(STATUS), other.request(LIST)
    assert first == second
    one_talk.respond(first, b"", 5, "gone")
    other.respond(second)
    records = [record for pair in zip(one_talk.records, other.records, strict=True) for record in pair]
    found = {call.id: (call.path, call.status, call.peer.client_comm) for call in calls(records)}
    assert found == {"c1-1": (STATUS, "NOT_FOUND", "kubelet"), "c2-1": (LIST, "OK", "crictl")}


def test_a_new_connection_inherits_nothing_from_one_whose_call_was_never_answered():
    """Same descriptor, same stream number: no duration may reach from one into the other."""
    records = []
    for number in range(100):
        talk = Conversation(f"c{number}", time=number * 10**9).open()
        talk.request(STATUS)
        talk.close()
        records += talk.records
    found = calls(records)
    assert [call.ended_by for call in found] == ["connection"] * 100
    assert max(call.end - call.start for call in found) < 10 * STEP


def test_many_short_connections_leave_nothing_behind():
    records = []
    for number in range(2000):
        talk = Conversation(f"c{number}").open()
        talk.call(STATUS)
        talk.close()
        records += talk.records
    found, rpc, streams = events(records)
    assert [type(event) for event in found].count(Finished) == 2000
    assert (streams.open, rpc.open_calls(), len(rpc._connections), rpc._open) == (0, [], 0, 0)
