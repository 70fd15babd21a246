"""Faults that tracers of gRPC had, each as a test of its whole kind."""

import ast
import random
import re
from pathlib import Path

import pytest

from tests.unit.conversation import Conversation, chatter, goaway, grpc, rst
from tests.unit.decode import calls, events, one
from tests.unit.wire.rewrite import late, trimmed, without
from tracer.calls import Finished, Opened, Responded
from tracer.records import Data

RUNTIME = "/runtime.v1.RuntimeService/"
METHODS = [RUNTIME + name for name in ("Status", "ListContainers", "ListPodSandbox")]
ROOT = Path(__file__).parents[3]


def test_every_kind_of_fault_that_tracers_had_names_its_tests_and_they_exist():
    kinds = re.findall(r"^\|[^|]+\|[^|]+\|([^|]+)\|$", (ROOT / "docs/tracer-bugs.md").read_text(), re.MULTILINE)
    rows = [re.findall(r"`(tests/\S+\.py)::(\w+)`", tests) for tests in kinds if "tests/" in tests]
    assert len(rows) == 25
    for path, name in (test for row in rows for test in row):
        written = ast.parse((ROOT / path).read_text()).body
        assert name in {item.name for item in written if isinstance(item, ast.FunctionDef)}, path


def test_every_call_of_a_reused_connection_has_its_method():
    """Only the first request spells its method out."""
    talk = Conversation().open()
    for number in range(300):
        talk.call(METHODS[number % 3])
    assert [call.path for call in calls(talk.records)] == METHODS * 100


def test_the_two_directions_have_tables_of_their_own():
    talk = Conversation().open()
    for number in range(4):
        stream = talk.request(METHODS[0], x_request=f"request {number}")
        talk.respond(stream, b"", 5, f"failure {number % 2}")
    assert [(call.path, call.error) for call in calls(talk.records)] == [
        (METHODS[0], f"failure {n % 2}") for n in range(4)
    ]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_kilobyte_lost_in_the_middle_costs_a_few_calls_and_not_the_connection(share):
    talk = Conversation().open()
    for number in range(200):
        talk.call(METHODS[number % 3], b"question", b"answer" * 20)
    middle = int(len(talk.records) * share)
    size, lost = 0, set()
    while size < 1024:
        size += len(talk.records[middle].data)
        lost.add(middle)
        middle += 1
    found = calls(without(talk.records, lost))
    assert len(found) >= 190
    assert len([call for call in found if call.complete]) >= 190
    for call in found:
        assert call.path in (METHODS[call.stream // 2 % 3], None)
        assert call.status in ("OK", None)
    assert found[-1].stream == 399


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("indexing", [True, False])
def test_the_order_of_header_fields_and_how_they_are_written_do_not_matter(order, indexing):
    """grpc-go, C core, tonic and hyper each have their own."""
    rng = random.Random(order)
    talk = Conversation().open()
    for method in METHODS * 2:
        talk.stream += 2
        fields = talk.request_fields(method)
        pseudo, rest = fields[:4], fields[4:]
        rng.shuffle(pseudo)
        rng.shuffle(rest)
        if not indexing:
            pseudo, rest = ([(name, value, True) for name, value in some] for some in (pseudo, rest))
        block = talk.client.encode([*pseudo, *rest], huffman=bool(order % 2))
        talk.write("client", talk.headers(talk.stream, block) + talk.data(talk.stream, grpc(b""), end=True))
        talk.respond(talk.stream)
    found = calls(talk.records)
    assert [(call.path, call.status, call.deadline_ns) for call in found] == [
        (m, "OK", 120 * 10**9) for m in METHODS * 2
    ]


def test_bytes_beyond_what_was_captured_are_never_read():
    """A short record after a long one: what is not there is missing, not stale."""
    talk = Conversation().open()
    talk.call(METHODS[0], b"A" * 400, b"B" * 400)
    talk.call(METHODS[1], b"C" * 400, b"D" * 400)
    for keep in range(0, 400, 23):
        records = trimmed(trimmed(talk.records, keep, "send"), min(keep, 100))
        found, rpc, streams = events(records)
        for event in found:
            if isinstance(event, Responded):
                assert event.message.data in (b"B" * 400, b"D" * 400, None)
        for call in rpc.open_calls():
            assert call.path in (*METHODS, None)
        assert streams.stats.gaps > 0


def test_a_large_answer_between_small_ones_keeps_sizes_and_times():
    """Twelve megabytes in 16 KiB frames, other calls in between, negative times never."""
    talk = Conversation().open()
    talk.call(METHODS[0])
    large = talk.request(METHODS[1])
    small: dict[int, int] = {}
    body = talk.data(large, grpc(b"x" * (12 << 20)))
    talk.write("server", talk.response_headers(large))
    at = 0
    while at < len(body):
        talk.write("server", body[at : at + 40_000])
        at += 40_000
        if at // 40_000 % 50 == 7:
            stream = talk.request(METHODS[2], b"q")
            pending = talk.response_headers(stream)
            # Frames of two streams may alternate, but only between frames.
            cut = -(-at // (16384 + 9)) * (16384 + 9)
            talk.write("server", body[at:cut])
            at = cut
            talk.write("server", chatter() + pending + talk.data(stream, grpc(b"a")) + talk.trailers(stream))
            small[stream] = len(small)
    talk.write("server", talk.trailers(large))
    found = {call.stream: call for call in calls(talk.records)}
    assert found[large].response_bytes == (12 << 20) + 5
    assert found[large].responses == 1
    assert all(found[stream].response_bytes == 6 and found[stream].status == "OK" for stream in small)
    assert len(small) > 4
    for call in found.values():
        assert call.start <= call.sent <= call.received <= call.answered <= call.read_answer == call.end


def test_a_call_that_was_open_when_the_tracer_started_is_not_seen_as_hung():
    talk = Conversation().open()
    talk.call(METHODS[0])
    stream = talk.request(METHODS[1])
    started = len(talk.records)
    talk.time += 10**9
    talk.respond(stream)
    talk.call(METHODS[2])
    found, rpc, _ = events(late(talk.records, started))
    assert [event.call.stream for event in found if isinstance(event, Opened)] == [stream + 2]
    assert rpc.open_calls() == []


def test_a_call_whose_request_is_recorded_after_its_answer_as_the_tracer_starts_says_that_it_is_not_whole():
    talk = Conversation().open()
    talk.call(METHODS[0])
    started = len(talk.records)
    stream = talk.request(METHODS[1])
    talk.respond(stream, b"answer")
    before, (asked, read, answered, taken) = talk.records[:started], talk.records[started:]
    talk.records = [*before, read, answered, taken, asked]
    after = talk.call(METHODS[2], b"", b"answer")
    talk.close()
    found, _, _ = events(late(talk.records, started))
    whole = {event.call.stream: event.call.complete for event in found if isinstance(event, Opened)}
    assert whole == {stream: False, after: True}


@pytest.mark.parametrize("lost_at", ["both", "sender"])
def test_a_lost_answer_is_not_a_hung_call_for_ever(lost_at):
    """The kubelet lists each second: when later lists are answered the first one was, too."""
    talk = Conversation().open()
    talk.call(METHODS[1])
    lost = talk.request(METHODS[1])
    answer = len(talk.records)
    talk.respond(lost)
    gone = {answer, answer + 1} if lost_at == "both" else {answer}
    for _ in range(3):
        talk.time += 1_000_000_000
        talk.call(METHODS[1])
    found, rpc, _ = events(without(talk.records, gone))
    (call,) = [event.call for event in found if isinstance(event, Finished) and event.call.stream == lost]
    assert rpc.open_calls() == []
    if lost_at == "both":
        assert (call.ended_by, call.status, call.complete) == ("unknown", None, False)
    else:
        assert (call.ended_by, call.status, call.complete) == ("server", "OK", True)


def test_a_call_that_hangs_is_not_ended_by_a_gap_and_quick_calls_of_other_methods():
    talk = Conversation().open()
    talk.call(METHODS[1])
    hangs = talk.request(METHODS[1])
    lost = len(talk.records)
    talk.write("server", chatter())
    for _ in range(50):
        talk.time += 1_000_000_000
        talk.call(METHODS[0])
    found, rpc, _ = events(without(talk.records, {lost, lost + 1}))
    (call,) = rpc.open_calls()
    assert (call.stream, call.complete) == (hangs, False)  # open, and it says that it may not be
    assert not [event for event in found if isinstance(event, Finished) and event.call.stream == hangs]


def test_a_call_with_more_of_its_answer_after_a_gap_is_still_open():
    talk = Conversation().open()
    talk.call(METHODS[1])
    stream = talk.request(METHODS[1])
    lost = len(talk.records)
    talk.write("server", talk.response_headers(stream))
    talk.write("server", talk.data(stream, grpc(b"some")))
    for _ in range(4):
        talk.time += 1_000_000_000
        talk.call(METHODS[1])
    talk.write("server", talk.trailers(stream))
    found, rpc, _ = events(without(talk.records, {lost, lost + 1}))
    last = [event.call for event in found if isinstance(event, Finished)][-1]
    assert (last.stream, last.ended_by, last.complete) == (stream, "server", False)
    assert rpc.open_calls() == []


def test_a_call_whose_reset_may_be_lost_is_over_once_its_deadline_has_passed():
    talk = Conversation().open()
    stream = talk.request(METHODS[0], timeout="5S")
    lost = len(talk.records)
    talk.time += 5_000_000_000
    talk.write("client", rst(stream))
    talk.time += 10_000_000_000
    talk.call(METHODS[1])
    talk.call(METHODS[1])
    found, rpc, _ = events(without(talk.records, {lost, lost + 1}))
    (call,) = [event.call for event in found if isinstance(event, Finished) and event.call.stream == stream]
    assert (call.ended_by, call.status, call.complete) == ("unknown", None, False)
    assert rpc.open_calls() == []


def test_calls_in_doubt_when_their_connection_ends_ended_nobody_knows_how():
    talk = Conversation().open()
    talk.call(METHODS[1])
    talk.request(METHODS[1])
    lost = len(talk.records)
    talk.write("server", chatter())
    talk.write("server", goaway(2**31 - 1))
    talk.close()
    call = calls(without(talk.records, {lost, lost + 1}))[1]
    assert (call.ended_by, call.complete) == ("unknown", False)


def test_a_method_spelled_out_again_is_known_again():
    """With tracing on, each call's traceparent pushes older entries out of the kubelet's table."""
    talk = Conversation().open()
    rng = random.Random(1)

    def call(number):
        trace = f"00-{rng.randbytes(16).hex()}-{rng.randbytes(8).hex()}-01"
        talk.call(METHODS[number % 3], traceparent=trace)

    for number in range(30):
        call(number)
    started = len(talk.records)
    for number in range(100):
        call(number)
    found = calls(late(talk.records, started))
    assert len(found) == 100
    assert all(one_call.trace for one_call in found)
    assert all(one_call.path == METHODS[place % 3] for place, one_call in enumerate(found[60:], 60))
    assert all(one_call.path in (METHODS[place % 3], None) for place, one_call in enumerate(found))


def test_a_method_under_an_older_name_is_read():
    """Go's encoder takes the name from its newest entry of that name, which may be older than the tracer."""
    talk = Conversation().open()
    talk.call(METHODS[0])
    started = len(talk.records)
    block = talk.client.encode([(":method", "POST"), (":scheme", "http")])
    # Literal with indexing, its name that of an entry long before any that is known.
    path = METHODS[1].encode()
    block += b"\x7f\x20" + bytes([len(path)]) + path
    talk.write("client", talk.headers(3, block) + talk.data(3, grpc(b""), end=True))
    talk.respond(3)
    call = one(late(talk.records, started))
    assert (call.path, call.old_path) == (METHODS[1], None)


def test_each_connection_may_have_an_encoder_that_says_so_when_its_table_shrinks():
    talk = Conversation().open()
    for size in (4096, 0, 4096, 64, 65536, 0, 0):
        talk.client.header_table_size = size
        talk.server.header_table_size = size
        for method in METHODS:
            talk.call(method)
    talk.client.header_table_size = 0
    talk.client.header_table_size = 4096  # both updates in one block
    talk.call(METHODS[0])
    found, rpc, _ = events(talk.records)
    assert [event.call.path for event in found if isinstance(event, Finished)] == METHODS * 7 + METHODS[:1]
    assert rpc.stats.headers.malformed == 0


def test_an_encoder_that_adds_fields_larger_than_its_table_is_followed():
    talk = Conversation().open()
    for number in range(3):
        stream = talk.request(METHODS[number])
        talk.respond(stream, b"", 2, "failed to create: " + "x" * 6000)
        talk.call(METHODS[number])
    found = calls(talk.records)
    assert [(call.path, call.status) for call in found] == [
        (METHODS[n], status) for n in range(3) for status in ("UNKNOWN", "OK")
    ]


def test_a_source_that_trims_what_it_receives_loses_nothing():
    """The kernel side keeps the first bytes of each receive only: its times are the news."""
    talk = Conversation().open()
    for number in range(20):
        talk.call(METHODS[number % 3], b"q" * 3000, b"a" * 50_000)
    for start in (0, 5, 21):
        whole = calls(late(talk.records, start))
        found = calls(late(trimmed(talk.records, 512), start))
        assert [(c.id, c.path, c.received, c.answered, c.read_answer) for c in found] == [
            (c.id, c.path, c.received, c.answered, c.read_answer) for c in whole
        ]
        assert all(c.complete for c in found)


def test_records_without_a_captured_byte_are_gaps():
    """System calls whose buffer cannot be read, io_uring for one."""
    talk = Conversation().open()
    talk.call(METHODS[0])
    talk.call(METHODS[1])
    records = [r for r in trimmed(trimmed(talk.records, 0, "send"), 0) if isinstance(r, Data)]
    found, rpc, streams = events(records)
    assert (found, rpc.open_calls()) == ([], [])
    assert streams.stats.gap_bytes == sum(r.length for r in records if r.direction == "send")
