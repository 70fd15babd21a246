"""Nothing is held for ever, and nothing is kept without bound; what had to be decided early is overwritten."""

import dataclasses
import itertools

import pytest
from cri_api.v1 import api_pb2 as v1

from tests.unit.conversation import Conversation, grpc
from tests.unit.decode import calls as decoded
from tests.unit.redact.canary import CONTAINER, RUNTIME, SECRETS, calls, conversation, leaks, redacted
from tracer.records import Closed, Data, Exit, Lost, Opened
from tracer.redact import Redactor, redactor

METHOD = RUNTIME + "ListContainers"
REQUEST, ANSWER = calls()[METHOD]


def half_answer():
    """A conversation whose last answer is sent in two pieces; its records, and those of the rest of the answer."""
    talk = Conversation().open()
    stream = talk.request(METHOD, REQUEST)
    talk.write("server", talk.headers(stream, talk.server.encode([(":status", "200")])))
    body = grpc(ANSWER)
    size = -(-len(body) // 2)
    cut = [body[at : at + size] for at in range(0, len(body), size)]
    talk.write("server", talk.data(stream, cut[0]))
    before = len(talk.records)
    for piece in cut[1:]:
        talk.write("server", talk.data(stream, piece))
    talk.write("server", talk.headers(stream, talk.server.encode([("grpc-status", "0")]), end=True))
    return talk.records[:before], talk.records[before:]


def test_records_are_held_until_their_message_is_whole():
    first, rest = half_answer()
    stage = Redactor()
    out = [safe for record in first for safe in stage.feed(record)]
    assert len(out) == len(first) - 2  # both ends of the half answer wait
    assert stage.stats.held == 2
    out += stage.feed(rest[0])
    assert len(out) == len(first) + 1
    assert stage.stats.held == 0
    out += [safe for record in rest[1:] for safe in stage.feed(record)]
    assert [record.time for record in out] == [record.time for record in first + rest]
    assert not leaks(out)
    assert decoded(out)[0].status == "OK"
    assert stage.stats.given_up == 0


def test_records_behind_one_that_is_held_keep_their_place():
    first, rest = half_answer()
    others = [
        Opened(first[-1].time, "c2", "client", "/run/containerd/containerd.sock", 5, "crictl"),
        Exit(first[-1].time + 1, 9, 1, "runc", 0),
        Lost(first[-1].time + 2, "socket", 3),
    ]
    stage = Redactor()
    out = [safe for record in [*first, *others] for safe in stage.feed(record)]
    assert stage.stats.held == 5
    out += [safe for record in rest for safe in stage.feed(record)]
    assert [type(record) for record in out] == [type(record) for record in [*first, *others, *rest]]
    assert out[len(first) : len(first) + 3] == others


@pytest.mark.parametrize("way", ["feed", "expire"])
def test_after_a_time_what_is_held_is_decided(way):
    """The message begun is overwritten but for its head; later ones of the same stream are read again."""
    first, rest = half_answer()
    stage = Redactor()
    out = [safe for record in first for safe in stage.feed(record)]
    late = first[-1].time + redactor.MAX_HELD_NS + 1
    if way == "feed":
        out += stage.feed(Exit(late, 9, 1, "runc", 0))
        assert isinstance(out.pop(), Exit)
    else:
        assert stage.expire(first[-2].time + redactor.MAX_HELD_NS) == []
        out += stage.expire(late)
    assert len(out) == len(first)
    assert stage.stats.given_up == 1
    held = out[-1].data
    assert CONTAINER.encode() not in held
    assert held.endswith(b"x" * (len(ANSWER) // 2 - 5))
    out += [safe for record in rest for safe in stage.feed(record)]
    assert not leaks(out)
    call = decoded(out)[0]
    assert (call.status, call.response_bytes) == ("OK", len(ANSWER) + 5)


def test_a_stream_goes_on_after_a_message_that_was_given_up():
    event = v1.ContainerEventResponse(container_id=CONTAINER).SerializeToString()
    talk = Conversation().open()
    stream = talk.request(RUNTIME + "GetContainerEvents")
    talk.write("server", talk.headers(stream, talk.server.encode([(":status", "200")])))
    body = grpc(event)
    talk.write("server", talk.data(stream, body[:20]))
    at = len(talk.records)
    talk.time += redactor.MAX_HELD_NS + 1
    talk.records.append(Lost(talk.time, "socket", 1))
    talk.write("server", talk.data(stream, body[20:] + body))
    out = redacted(talk.records)
    assert out[at - 1].data.endswith(body[:5] + b"x" * 15)
    assert out[at + 1].data[9:] == b"x" * (len(body) - 20) + body


def test_a_flush_gives_everything():
    first, _ = half_answer()
    stage = Redactor()
    out = [safe for record in first for safe in stage.feed(record)]
    out += stage.flush()
    assert len(out) == len(first)
    assert stage.flush() == []
    assert not leaks(out)


def test_held_bytes_are_bounded(monkeypatch):
    """A message that never ends is decided before it fills the memory."""
    limit = 200_000
    monkeypatch.setattr(redactor, "MAX_HELD_BYTES", limit)
    talk = Conversation().open()
    stream = talk.request(METHOD, REQUEST)
    talk.write("server", talk.headers(stream, talk.server.encode([(":status", "200")])))
    start = len(talk.records)
    secret = SECRETS["annotation"].encode()
    talk.write("server", talk.data(stream, b"\x00\x00\xf0\x00\x00" + secret))
    for _ in range(100):
        talk.write("server", talk.data(stream, secret * 300))
    stage = Redactor()
    out, most = [], 0
    for record in talk.records:
        out += stage.feed(record)
        held = talk.records[len(out) : len(out) + stage.stats.held]
        most = max(most, sum(len(r.data) + redactor.RECORD_BYTES for r in held if isinstance(r, Data)))
    assert most <= limit
    assert len(out) > start
    out += stage.flush()
    assert len(out) == len(talk.records)
    assert not leaks(out)


def test_bytes_kept_for_readers_are_bounded(monkeypatch):
    """Bytes that are never read cost a bounded memory."""
    monkeypatch.setattr(redactor, "MAX_KEPT_BYTES", 50_000)
    records = []
    for number in range(20):
        talk = Conversation(connection=f"c{number}").open()
        for _ in range(40):
            talk.call(METHOD, REQUEST, ANSWER)
        records += [r for r in talk.records if r.direction == "send"]
    stage = Redactor()
    out = [safe for record in records for safe in stage.feed(record)]
    kept = sum(cover.end - cover.base for c in stage._connections.values() for cover in c.covers.values())
    assert 0 < kept == stage._kept_bytes <= 50_000
    assert len(out) == len(records)
    assert not leaks(out)


def test_ended_connections_cost_nothing():
    stage = Redactor()
    for number in range(50):
        talk = Conversation(connection=f"c{number}").open()
        talk.call(METHOD, REQUEST, ANSWER)
        talk.close()
        for record in talk.records:
            if not isinstance(record, Data) or record.direction == "send":
                stage.feed(record)
    assert stage._connections == {}
    assert stage._kept_bytes == 0
    assert stage.stats.held == 0


def test_a_connection_that_ends_within_a_message_lets_go_of_it():
    first, _ = half_answer()
    stage = Redactor()
    out = [safe for record in first for safe in stage.feed(record)]
    out += stage.feed(Closed(first[-1].time + 1, "c1", "server", 200, 104))
    assert len(out) == len(first) + 1
    assert not leaks(out)
    assert out[-2].data.endswith(b"x" * 50)


def test_a_call_that_is_refused_lets_go_of_its_request():
    """The server may answer before the request is whole; the rest of it never comes."""
    talk = Conversation().open()
    talk.stream = 1
    talk.write("client", talk.headers(1, talk.client.encode(talk.request_fields(METHOD))))
    talk.write("client", talk.data(1, grpc(b"half" * 30)[:50]))
    talk.fail(1, 8, "too large")
    stage = Redactor()
    out = [safe for record in talk.records for safe in stage.feed(record)]
    assert len(out) == len(talk.records)


@pytest.mark.parametrize("gap", [1, 5_000, 2_000_000, 1 << 40, (1 << 62)])
@pytest.mark.parametrize("inside", [True, False])
def test_a_gap_of_any_length_costs_no_memory_and_shows_no_secret(gap, inside):
    """Numbers in a record can be anything."""
    talk = Conversation().open()
    path, (request, answer) = RUNTIME + "ContainerStatus", calls()[RUNTIME + "ContainerStatus"]
    talk.call(path, request, answer)
    at = len(talk.records)
    stream = talk.request(path, request)
    talk.write("server", talk.headers(stream, talk.server.encode([(":status", "200")])))
    begun = talk.data(stream, grpc(answer))
    if inside:
        talk.write("server", begun[:150])
    for key in talk.offsets:
        talk.offsets[key] += gap
    talk.write("server", begun[150 + gap :] if inside else b"", read=False)
    for _ in range(3):
        talk.call(path, request, answer)
    out = redacted(talk.records)
    assert [len(a.data) for a in out[:at]] == [len(b.data) for b in talk.records[:at]]
    assert not leaks(out)
    assert len(out) == len(talk.records)
    assert len([call for call in decoded(out) if call.status == "OK"]) >= 1


def test_bytes_of_a_lost_send_come_from_the_reader():
    """What one end's record lost the other's still shows, redacted alike."""
    talk = conversation()
    lost = next(
        i
        for i, r in enumerate(talk.records)
        if r.side == "server" and r.direction == "send" and CONTAINER.encode() in r.data
    )
    kept = talk.records[:lost] + talk.records[lost + 1 :]
    out = redacted(kept)
    assert not leaks(out)
    assert len(out[lost].data) == len(talk.records[lost].data)
    assert len(decoded(out)) == len(decoded(kept)) >= 29


def test_the_readers_of_a_sender_that_is_not_recorded_lose_their_bytes_only():
    kept = [r for r in conversation().records if r.direction == "recv"]
    out = redacted(kept)
    assert [(r.time, r.length) for r in out] == [(r.time, r.length) for r in kept]
    assert {r.data for r in out} == {b""}


def test_a_reader_far_behind_still_gets_its_bytes():
    """A kubelet that stood still reads what filled the socket's buffer: up to 208 KiB."""
    talk = Conversation().open()
    talk.call(METHOD, REQUEST, ANSWER)
    before = len(talk.records)
    sent = []
    for _ in range(250):
        stream = talk.request(METHOD, REQUEST)
        first = len(talk.records)
        talk.respond(stream, ANSWER)
        sent.append(talk.records.pop(first + 1))
    assert 150_000 < sum(r.length for r in sent) < 208 * 1024
    out = redacted(talk.records + sent)
    assert all(len(safe.data) == record.length for safe, record in zip(out[-250:], sent, strict=True))
    assert not leaks(out)
    assert before < len(out)


def test_the_order_of_records_is_kept_whatever_is_interleaved():
    talks = [Conversation(connection=f"c{n}", time=1_000_000_000 + n) for n in range(3)]
    for talk in talks:
        talk.open()
        for path, (request, answer) in itertools.islice(calls().items(), 5):
            talk.call(path, request, answer)
    records = sorted((r for talk in talks for r in talk.records), key=lambda r: r.time)
    out = redacted(records)
    assert [(r.time, r.connection) for r in out] == [(r.time, r.connection) for r in records]
    assert not leaks(out)


def test_a_reader_whose_record_comes_before_the_senders_keeps_its_bytes():
    """The sender's record can be some microseconds late, also that of a connection's first bytes."""
    records = conversation().records
    for at in range(0, len(records) - 1, 2):
        records[at], records[at + 1] = records[at + 1], records[at]
        records[at].time, records[at + 1].time = records[at + 1].time, records[at + 1].time + 34_000
    out = redacted(records)
    assert [len(safe.data) for safe in out] == [len(record.data) for record in records]
    assert not leaks(out)
    assert [call.path for call in decoded(out)] == [call.path for call in decoded(records)]


def test_a_reader_whose_place_is_not_known_waits_a_moment_only():
    stage = Redactor()
    read = Data(1_000, "c9", "server", "recv", "/run/crio.sock", 1, 1, "crio", 5, 0, 4, b"GET ")
    assert stage.feed(read) == []
    assert stage.expire(1_000 + redactor.MAX_UNPLACED_NS) == []
    assert stage.expire(1_001 + redactor.MAX_UNPLACED_NS) == [dataclasses.replace(read, data=b"")]
    assert stage.stats.unplaced == 1
    assert stage.stats.given_up == 0
    assert stage._connections["c9"].unplaced == {"request": [], "response": []}


def test_a_lost_record_does_not_hold_up_the_others():
    """The reader of bytes whose sender's record never comes waits as long as `Streams` does, and no longer."""
    talk = Conversation().open()
    talk.call(METHOD, REQUEST, ANSWER)
    kept = talk.records
    talk.write("client", talk.headers(3, talk.client.encode(talk.request_fields(METHOD))))
    del kept[-2]
    stage = Redactor()
    out = [safe for record in kept for safe in stage.feed(record)]
    assert len(out) == len(kept) - 1
    out += stage.feed(Exit(kept[-1].time + redactor.MAX_LATE_NS + 1, 9, 1, "runc", 0))
    assert len(out) == len(kept) + 1
    assert out[-2].data == b""


def test_a_record_that_moved_more_than_it_shows_keeps_what_it_shows():
    """Whatever the number says: the bytes missing behind them are a gap."""
    talk = Conversation().open()
    talk.call(METHOD, REQUEST, ANSWER)
    whole = talk.records[-2].data
    talk.records[-2].length = 1 << 40
    out = redacted(talk.records[:-1])
    assert len(out[-1].data) == len(whole)
    assert out[-1].data[:9] == whole[:9]
    assert not leaks(out)


def test_a_reader_given_up_before_it_is_placed_stays_without_bytes():
    talk = Conversation().open()
    first = [dataclasses.replace(r, time=0) for r in talk.records if r.side == "server" and r.direction == "recv"]
    rest = [r for r in talk.records if r.side == "client" or r.direction == "send"]
    talk.call(METHOD, REQUEST, ANSWER)
    stage = Redactor()
    out = [safe for record in first for safe in stage.feed(record)] + stage.expire(10**9)
    out += [safe for record in [*rest, *talk.records[6:]] for safe in stage.feed(record)] + stage.flush()
    assert [r.data for r in out[:2]] == [b"", b""]
    assert stage.stats.unplaced == 2
    assert all(len(safe.data) == record.length for safe, record in zip(out[6:], talk.records[6:], strict=True))


def test_a_message_too_long_to_be_looked_into_is_passed_over(monkeypatch):
    """It is decided as it comes, and the next of its stream is read again."""
    monkeypatch.setattr("tracer.redact.messages.MAX_MESSAGE", 1000)
    talk = Conversation().open()
    stream = talk.request(METHOD, REQUEST)
    talk.write("server", talk.headers(stream, talk.server.encode([(":status", "200")])))
    secret = SECRETS["annotation"].encode()
    body = grpc(secret * 50) + grpc(ANSWER)
    for at in range(0, len(body), 100):
        talk.write("server", talk.data(stream, body[at : at + 100]))
    stage = Redactor()
    early = [safe for record in talk.records[:-30] for safe in stage.feed(record)]
    assert len(early) == len(talk.records) - 30
    out = early + [safe for record in talk.records[-30:] for safe in stage.feed(record)] + stage.flush()
    assert not leaks(out)
    assert sum(CONTAINER.encode()[:20] in r.data for r in out if isinstance(r, Data) and r.direction == "send") >= 1
