"""ttrpc connections: each call with its stamps, whatever is lost, late, cut or older than the tracer."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.wire.shim import C1, C2, E1, STEP, Shim, answer, calls, cut, message, number, proto, request
from tracer import ttrpc
from tracer.protowire import Malformed
from tracer.records import Data, Exit
from tracer.shimcalls import fields
from tracer.ttrpc import MAX_EARLY, MAX_KEPT, MAX_OPEN, Ttrpc


def one(shim):
    (call,), _ = calls(shim.records)
    return call


def facts(call):
    return (
        call.name, call.service, call.method, call.id, call.exec_id, call.signal, call.pid, call.exit_status,
        call.status, call.error, call.timeout, call.topic, call.lost, call.namespaced,
    )  # fmt: skip


def talk():
    shim = Shim()
    create = shim.ask("Create", C1, "/bundle", timeout=5)
    shim.answer(create, proto((1, 4711)))
    wait = shim.ask("Wait", C1)
    run = shim.ask("Exec", C1, E1)
    shim.answer(run)
    kill = shim.ask("Kill", C1, E1, more=proto((3, 9)))
    shim.answer(kill, status=5, text="process already finished: not found")
    shim.answer(wait, proto((1, 137)))
    return shim


# one call


def test_a_call_has_the_four_stamps_of_both_ends():
    shim = Shim()
    stream = shim.ask("Create", C1, timeout=3_000_000_000)
    shim.time += 50 * STEP
    shim.answer(stream, proto((1, 4711)))
    call, begin = one(shim), shim.records[0].time
    assert (call.start, call.sent, call.received) == (begin, begin, begin + STEP)
    assert (call.answered, call.read_answer) == (begin + 52 * STEP, begin + 53 * STEP)
    assert call.end == call.read_answer
    assert (call.client_pid, call.client_comm, call.server_pid, call.server_comm) == (
        200, "containerd", 8413, "containerd-shim",
    )  # fmt: skip
    assert (call.service, call.method, call.id, call.pid) == ("containerd.task.v2.Task", "Create", C1, 4711)
    assert (call.status, call.error, call.timeout, call.lost) == ("OK", None, 3_000_000_000, False)


def test_a_shim_that_does_not_read_leaves_the_request_waiting_and_the_call_open():
    shim = Shim()
    shim.answer(shim.ask("State", C1), proto((3, 4711)))  # seen at work once
    shim.ask("State", C1, read=False)
    found, stage = calls(shim.records)
    assert (found[1].server_pid, found[1].received, found[1].end) == (8413, None, None)
    assert stage.open_calls() == [found[1]]


def test_what_a_shim_reads_at_once_after_a_stop_was_waiting_until_then():
    shim = Shim()
    shim.ask("State", C1, read=False)
    shim.ask("Exec", C1, E1, read=False)
    shim.time += 10_000_000_000
    at = shim.read("server", b"".join(r.data for r in shim.records))
    found, _ = calls(shim.records)
    assert [call.received for call in found] == [at, at]


def test_an_answer_that_its_client_does_not_read_does_not_end_the_call():
    shim = Shim()
    stream = shim.ask("State", C1)
    shim.answer(stream, read=False)
    call = one(shim)
    assert call.answered == shim.time
    assert (call.read_answer, call.end) == (None, None)


def test_a_status_has_its_name_and_its_text_no_secret():
    shim = Shim()
    stream = shim.ask("Create", C1)
    shim.answer(stream, status=2, text='exec: "launch --password=hunter2": token=abc123 refused')
    call = one(shim)
    assert call.status == "UNKNOWN"
    assert "hunter2" not in call.error
    assert "abc123" not in call.error
    assert call.pid is None


@pytest.mark.parametrize("code,name", [(4, "DEADLINE_EXCEEDED"), (5, "NOT_FOUND"), (99, "UNKNOWN")])
def test_each_code_has_its_name(code, name):
    shim = Shim()
    shim.answer(shim.ask("Kill", C1), status=code, text="x")
    assert one(shim).status == name


def test_calls_without_the_namespace_are_told_apart():
    shim = Shim()
    shim.ask("State", C1, namespaced=False)
    shim.ask("State", C1)
    assert [call.namespaced for call in calls(shim.records)[0]] == [False, True]


# what messages state


@pytest.mark.parametrize(
    "method,asked,answered,expected",
    [
        ("Create", proto((1, C1), (2, "/bundle")), proto((1, 7)), {"id": C1, "exec_id": None, "pid": 7}),
        ("Start", proto((1, C1), (2, E1)), proto((1, 7)), {"id": C1, "exec_id": E1, "pid": 7}),
        ("Connect", proto((1, C1)), proto((1, 8413), (2, 7)), {"pid": 7}),
        ("State", proto((1, C1)), proto((1, C1), (2, "/b"), (3, 7), (4, 2), (9, 0)), {"pid": 7, "exit_status": None}),
        ("Delete", proto((1, C1)), proto((1, 7), (2, 137)), {"pid": 7, "exit_status": 137}),
        ("Delete", proto((1, C1)), proto((1, 7)), {"pid": 7, "exit_status": 0}),
        ("Wait", proto((1, C1), (2, E1)), proto((1, 3)), {"exec_id": E1, "exit_status": 3}),
        ("Kill", proto((1, C1), (3, 15)), b"", {"signal": 15, "exec_id": None}),
        ("Kill", proto((1, C1), (2, E1), (3, 9)), b"", {"signal": 9, "exec_id": E1}),
        ("Wait", proto((1, C1)), proto((1, 1 << 40 | 5)), {"exit_status": 5}),  # what protobuf keeps
    ],
)
def test_ids_signals_processes_and_exit_codes_come_from_their_fields(method, asked, answered, expected):
    shim = Shim()
    shim.send("client", request(1, method, asked))
    shim.answer(1, answered)
    call = one(shim)
    assert {name: getattr(call, name) for name in expected} == expected


def test_the_sandbox_service_states_its_sandbox():
    shim = Shim()
    shim.send(
        "client", request(1, "StopSandbox", proto((1, C1), (2, 30)), service="containerd.runtime.sandbox.v1.Sandbox")
    )
    assert (one(shim).method, one(shim).id, one(shim).exec_id) == ("StopSandbox", C1, None)


@pytest.mark.parametrize(
    "topic,told,expected",
    [
        ("/tasks/exit", ((1, C1), (2, C1), (3, 7), (4, 137)), (C1, None, 7, 137)),
        ("/tasks/exit", ((1, C1), (2, E1), (3, 8)), (C1, E1, 8, 0)),
        ("/tasks/create", ((1, C1), (2, "/bundle"), (6, 7)), (C1, None, 7, None)),
        ("/tasks/start", ((1, C1), (2, 7)), (C1, None, 7, None)),
        ("/tasks/oom", ((1, C1),), (C1, None, None, None)),
        ("/tasks/exec-started", ((1, C1), (2, E1), (3, 9)), (C1, E1, 9, None)),
        ("/tasks/unheard-of", ((1, C1),), (None, None, None, None)),
    ],
)  # fmt: skip
def test_events_state_whose_they_are(topic, told, expected):
    shim = Shim(
        path="/run/containerd/containerd.sock.ttrpc", client=(8413, "containerd-shim"), server=(200, "containerd")
    )
    shim.tell(topic, *told)
    call = one(shim)
    assert (call.topic, call.id, call.exec_id, call.pid, call.exit_status) == (topic, *expected)


def test_other_services_are_calls_without_facts():
    shim = Shim()
    shim.send("client", request(1, "Ping", proto((1, C1)), service="other.v1.Thing"))
    shim.answer(1, proto((1, 5)))
    assert facts(one(shim))[1:7] == ("other.v1.Thing", "Ping", None, None, None, None)


# pieces, holes, late records


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_however_the_bytes_are_cut_the_calls_are_the_same(sizes):
    whole, cutted = calls(talk().records), calls(cut(talk().records, sizes))
    assert list(map(facts, whole[0])) == list(map(facts, cutted[0]))
    assert [(c.received, c.read_answer, c.end) for c in whole[0]] == [
        (c.received, c.read_answer, c.end) for c in cutted[0]
    ]
    assert (cutted[1].stats.gaps, cutted[1].stats.malformed) == (0, 0)


def test_a_lost_write_is_a_gap_and_the_next_write_is_read_again():
    shim = Shim()
    first = shim.ask("State", C1)
    shim.answer(first, proto((3, 7)))
    shim.ask("State", C2)
    shim.ask("Exec", C1, E1)
    records = [r for r in shim.records if not (r.direction == "send" and C2.encode() in r.data)]
    found, stage = calls(records)
    assert [call.method for call in found] == ["State", "Exec"]
    assert stage.stats.gaps == 1
    assert found[1].received is not None  # by its place in the bytes


def test_a_lost_answer_leaves_its_call_open_until_the_connection_ends():
    shim = Shim()
    first = shim.ask("State", C1)
    shim.answer(first)
    second = shim.ask("State", C1)
    shim.answer(second)
    shim.close()
    records = [
        r
        for r in shim.records
        if not (isinstance(r, Data) and r.side == "server" and r.direction == "send" and r.offset == 0)
    ]
    found, stage = calls(records)
    assert [(call.lost, call.status) for call in found] == [(True, None), (False, "OK")]
    assert found[0].end == shim.time
    assert stage.open_calls() == []


def test_bytes_that_were_not_recorded_are_a_gap_and_nothing_is_made_of_their_rest():
    shim = Shim()
    shim.ask("State", C1)
    shim.records = [dataclasses.replace(each, data=each.data[:20]) for each in shim.records]
    shim.answer(shim.ask("Kill", C1))
    found, stage = calls(shim.records)
    assert [call.method for call in found] == ["Kill"]
    assert stage.stats.gaps == 1


def test_a_gap_that_ends_in_the_middle_of_a_message_makes_no_call_of_its_rest():
    shim = Shim()
    shim.send("client", request(1, "State", proto((1, C1)))[:30], read=False)
    shim.offsets["client", "send"] += 17
    shim.send("client", request(3, "State", proto((1, C1)))[60:], read=False)
    shim.send("client", request(5, "State", proto((1, C2))), read=False)
    assert [call.stream for call in calls(shim.records)[0]] == [5]


def test_an_answer_recorded_before_its_request_is_that_requests():
    shim = Shim()
    shim.answer(shim.ask("Create", C1), proto((1, 7)))
    sent, read, *answered = shim.records
    found, _ = calls([answered[0], sent, read, answered[1]])
    (call,) = found
    assert (call.status, call.pid) == ("OK", 7)
    assert call.answered >= call.start
    assert call.end == answered[1].time


def test_a_read_recorded_before_its_send_is_not_earlier_than_it():
    shim = Shim()
    shim.ask("Create", C1)
    shim.ask("Start", C1)
    first, read_first, second, read_second = shim.records
    late = dataclasses.replace(second, time=read_second.time + 20_000)
    found, _ = calls([first, read_first, read_second, late])
    assert found[1].received == found[1].sent == late.time


def test_an_answer_stamped_before_its_request_is_not_earlier_than_it():
    shim = Shim()
    shim.answer(shim.ask("Kill", C1, read=False), read=False)
    asked, answered = shim.records
    (call,), _ = calls([asked, dataclasses.replace(answered, time=asked.time - 1)])
    assert (call.sent, call.answered) == (asked.time, asked.time)


def test_answers_without_requests_are_kept_up_to_a_limit():
    shim = Shim()
    shim.ask("State", C1)
    for stream in range(3, 3 + 4 * MAX_EARLY, 2):
        shim.answer(stream)
    _, stage = calls(shim.records)
    assert len(stage._connections["t1"].early) == MAX_EARLY


# connections older than the tracer


def older(shim, client=1000, server=1300):
    """The same connection met later: streams go on, and each end's count begins anew where it was met."""
    shim.stream = 3793
    shim.offsets = {
        ("client", "send"): client,
        ("server", "recv"): server,
        ("server", "send"): 77,
        ("client", "recv"): 5,
    }
    return shim


def test_a_reader_older_than_the_tracer_is_placed_by_what_it_reads():
    shim = older(Shim())
    shim.answer(shim.ask("State", C1))
    shim.ask("Exec", C1, E1, read=False)
    found, _ = calls(shim.records)
    assert [call.received is not None for call in found] == [True, False]
    assert found[0].read_answer == found[0].end


def test_before_its_reader_is_placed_a_call_ends_with_its_answer_and_its_reading_is_unknown():
    shim = older(Shim())
    stream = shim.ask("State", C1, read=False)
    shim.read("server", b"the rest of something older, cut" * 2)
    shim.answer(stream, read=False)
    call = one(shim)
    assert (call.received, call.read_answer) == (None, None)
    assert call.end == call.answered


def test_the_first_bytes_of_an_older_connection_may_be_the_rest_of_a_message():
    shim = older(Shim())
    shim.send("client", b"\x12\x40" + b"c" * 64)
    shim.answer(shim.ask("State", C1))
    found, stage = calls(shim.records)
    assert [call.id for call in found] == [C1]
    assert stage.stats.malformed == 0


def test_a_stopped_shims_process_is_known_from_its_other_connections():
    before = Shim()
    before.answer(before.ask("State", C1))
    shim = older(Shim(connection="t2"))
    shim.ask("State", C1, read=False)
    found, _ = calls([*before.records, *shim.records])
    assert found[1].server_pid == 8413


def test_a_shim_that_is_met_late_gives_its_process_to_the_calls_that_wait():
    shim = Shim()
    shim.ask("State", C1, read=False)
    call, stage = calls(shim.records)[0][0], None
    assert call.server_pid is None
    shim.read("server", shim.records[0].data)
    found, stage = calls(shim.records)
    assert found[0].server_pid == 8413
    assert stage.stats.calls == 1


def test_the_end_of_a_shim_ends_calls_on_connections_where_it_was_not_seen_itself():
    before = Shim()
    before.answer(before.ask("State", C1))
    shim = older(Shim(connection="t2"))
    shim.ask("Kill", C1, read=False)
    found, stage = calls([*before.records, *shim.records, Exit(shim.time, 8413, 1, "containerd-shim", 9)])
    assert found[1].lost
    assert stage.open_calls() == []


def test_a_connection_whose_name_is_used_again_is_another_one():
    """Captures of other programs name connections by their sockets, and tell no end."""
    shim = Shim()
    shim.ask("Wait", C1)
    shim.stream = -1
    shim.answer(shim.ask("Create", C2), proto((1, 7)))
    shim.stream = -1
    shim.ask("Create", C1)
    found, stage = calls(shim.records)
    assert [(call.method, call.lost, call.pid) for call in found] == [
        ("Wait", True, None), ("Create", False, 7), ("Create", False, None),
    ]  # fmt: skip
    assert len({call.name for call in found}) == 3
    assert [call.read_answer is not None for call in found] == [False, True, False]
    assert stage.open_calls() == [found[2]]


# streams, limits, bad input


def test_data_messages_do_not_end_a_streams_call():
    shim = Shim()
    shim.send("client", message(1, 1, proto((1, "s.v1.S"), (2, "Stream")), flags=2))
    shim.send("server", message(1, 3, b"some data"))
    shim.send("client", message(1, 3, b"", flags=5))
    found, stage = calls(shim.records)
    assert (len(found), found[0].end) == (1, None)
    shim.answer(1)
    found, stage = calls(shim.records)
    assert found[0].status == "OK"
    assert stage.stats.malformed == 0


def test_a_message_larger_than_what_is_kept_still_tells_its_ids():
    shim = Shim()
    stream = shim.ask("Create", C1, more=proto((8, b"x" * (MAX_KEPT * 3))))
    shim.answer(stream, proto((1, 7)))
    shim.ask("Start", C1)
    found, stage = calls(cut(shim.records, [4096]))
    assert [(call.method, call.id, call.pid) for call in found] == [("Create", C1, 7), ("Start", C1, None)]
    assert stage.stats.malformed == 0


def test_a_connections_oldest_call_is_forgotten_beyond_the_limit():
    shim = Shim()
    for _ in range(MAX_OPEN + 1):
        shim.ask("Wait", C1)
    found, stage = calls(shim.records)
    assert [call.stream for call in found if call.lost] == [1]
    assert stage.stats.evicted == 1


def test_the_connection_that_was_silent_for_longest_is_forgotten_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(ttrpc, "MAX_CONNECTIONS", 2)
    stage, found = Ttrpc(), []
    for at in range(3):
        shim = Shim(connection=f"t{at}", time=at * 1_000_000_000)
        shim.ask("Wait", C1)
        for record in shim.records:
            found += stage.feed(record)
    assert {call.connection for call in found if call.lost} == {"t0"}


def test_a_request_that_names_nothing_is_no_call():
    shim = Shim()
    shim.ask("State", C1)
    shim.send("client", message(3, 1, proto((3, b"payload"))))
    shim.stream = 3
    shim.ask("Kill", C1)
    found, stage = calls(shim.records)
    assert [call.method for call in found] == ["State", "Kill"]
    assert stage.stats.malformed == 1


def test_a_shim_that_ended_loses_its_calls_when_nobody_saw_the_connection_close():
    shim, other = Shim(), Shim(connection="t2", server=(9, "containerd-shim"))
    shim.ask("Shutdown", C1)
    other.ask("Wait", C2)
    found, stage = calls([*shim.records, *other.records, Exit(other.time, 8413, 1, "containerd-shim", 0)])
    assert [(call.method, call.lost, call.end) for call in found] == [
        ("Shutdown", True, other.time), ("Wait", False, None),
    ]  # fmt: skip
    assert len(stage.open_calls()) == 1


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["client", "server"]), st.binary(max_size=80)), max_size=12))
def test_whatever_is_sent_nothing_raises_and_nothing_is_kept_for_ever(writes):
    shim = Shim()
    for side, data in writes:
        shim.send(side, data)
    found, stage = calls(shim.records)
    shim.close()
    stage.feed(shim.records[-1])
    assert stage.open_calls() == []
    assert all(call.service and call.method for call in found)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 7), st.integers(0, 400), st.integers(1, 255))
def test_a_flipped_byte_never_raises(which, at, flip):
    records = talk().records
    broken = records[which * 2 % len(records)]
    data = bytearray(broken.data)
    data[at % len(data)] ^= flip
    records[which * 2 % len(records)] = dataclasses.replace(broken, data=bytes(data))
    calls(records)


@pytest.mark.parametrize(
    "data", [b"\x0a\x05abc", b"\x0a", b"\x08", b"\x02\x01x", b"\x0b", b"\x09\x01", b"\x08" + b"\xff" * 11]
)
def test_what_is_no_message_is_malformed(data):
    with pytest.raises(Malformed):
        list(fields(data))


def test_numbers_of_several_bytes_and_fixed_ones_are_read():
    data = number(1000 << 3) + number(1 << 35) + b"\x15abcd" + b"\x19abcdefgh" + proto((2, "x" * 200))
    assert list(fields(data)) == [(8000, 1 << 35, b""), (2 << 3 | 2, 0, b"x" * 200)]


def test_an_answer_told_twice_is_one():
    shim = Shim()
    shim.answer(shim.ask("State", C1))
    again = [r for r in shim.records if r.side == "server" and r.direction == "send"]
    found, stage = calls([*shim.records, *again])
    assert len(found) == 1
    assert stage.stats.messages == 2
    assert answer(1)[8] == 2
