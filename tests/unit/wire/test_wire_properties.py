"""What must hold for every conversation, however it was cut, begun late, or lost in part."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.decode import calls, events, facts
from tests.unit.wire.rewrite import bytewise, late, merged, split, trimmed, without
from tests.unit.wire.talk import Talk
from tracer.rpc import Call, Opened
from tracer.streams import Streams

seeds = st.integers(0, 2**32)


def by_id(found):
    table = {call.id: call for call in found}
    assert len(table) == len(found), "a call twice"
    return table


def check_honest(call: Call, truth: Call) -> None:
    """Equal, or visibly not the whole of it."""
    assert call.path in (truth.path, None)
    assert call.status in (truth.status, None)
    assert call.error in (truth.error, None)
    assert call.deadline_ns in (truth.deadline_ns, None)
    assert call.trace in (truth.trace, None)
    assert call.request_bytes <= truth.request_bytes
    assert call.response_bytes <= truth.response_bytes
    if call.complete:
        assert call.ended_by in (truth.ended_by, "unknown", None)
        assert (call.request_bytes, call.response_bytes) == (truth.request_bytes, truth.response_bytes)
        assert call.responses == truth.responses
        assert call.request == truth.request or (call.request.data, truth.request.data) == (truth.request.data,) * 2


def stamps_in_order(call: Call) -> None:
    known = [t for t in (call.start, call.sent, call.received, call.answered, call.read_answer) if t is not None]
    assert known == sorted(known)
    assert call.end is None or call.end >= known[-1] or call.ended_by != "server"


@given(seeds)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_cut_of_the_bytes_gives_the_same_calls(seed):
    talk = Talk(seed)
    whole = [facts(call) for call in calls(talk.records)]
    assert len(whole) == 12
    rng = random.Random(seed)
    pieces = split(
        talk.records, lambda record: [rng.randrange(1, len(record.data) + 1) for _ in range(rng.randrange(4))]
    )
    assert [facts(call) for call in calls(pieces)] == whole
    assert [facts(call) for call in calls(merged(talk.records))] == whole


@given(seeds)
@settings(max_examples=8, deadline=None, derandomize=True)
def test_one_byte_at_a_time_gives_the_same_calls(seed):
    talk = Talk(seed, count=4)
    whole = [facts(call) for call in calls(talk.records)]
    assert [facts(call) for call in calls(bytewise(talk.records))] == whole


@given(seeds, st.sampled_from([0.01, 0.1, 0.4]))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_whatever_is_lost_no_call_is_wrong(seed, share):
    talk = Talk(seed)
    truth = by_id(calls(talk.records))
    rng = random.Random(seed)
    lost = {place for place in talk.losable if rng.random() < share}
    found, rpc, _ = events(without(talk.records, lost))
    ours = by_id(rpc.open_calls() + [event.call for event in found if type(event).__name__ == "Finished"])
    assert ours.keys() <= truth.keys()
    for name, call in ours.items():
        check_honest(call, truth[name])
        stamps_in_order(call)


@given(seeds, st.sampled_from([0.05, 0.3]), st.booleans())
@example(seed=29, share=0.05, cut_reads=False)  # a frame of 14 bytes whose middle looks like two heads
@settings(max_examples=100, deadline=None, derandomize=True)
def test_whatever_is_lost_of_pieces_no_call_is_wrong(seed, share, cut_reads):
    """Records end in the middle of frames; of what is received only the first bytes are there."""
    talk = Talk(seed)
    truth = by_id(calls(talk.records))
    rng = random.Random(seed)
    pieces = split(
        talk.records, lambda record: [rng.randrange(1, len(record.data) + 1) for _ in range(rng.randrange(3))]
    )
    if cut_reads:
        pieces = trimmed(pieces, 40)
    safe = talk.records[-5].time
    lost = {place for place, record in enumerate(pieces) if record.time < safe and rng.random() < share}
    found, rpc, _ = events(without(pieces, lost))
    ours = by_id(rpc.open_calls() + [event.call for event in found if type(event).__name__ == "Finished"])
    assert ours.keys() <= truth.keys()
    for name, call in ours.items():
        check_honest(call, truth[name])
        stamps_in_order(call)


@given(seeds, st.integers(0, 10_000))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_joining_late_no_call_is_wrong_and_every_later_one_is_there(seed, at):
    talk = Talk(seed, count=25)
    at %= len(talk.records)
    truth = by_id(calls(talk.records))
    found, _, _ = events(late(talk.records, at))
    ours = by_id([event.call for event in found if type(event).__name__ == "Finished"])
    began = talk.records[at].time
    olds = {}
    for name, call in ours.items():
        check_honest(call, truth[name])
        stamps_in_order(call)
        if call.old_path is not None:
            assert call.path is None
            assert olds.setdefault(call.old_path, truth[name].path) == truth[name].path, "an identity of two entries"
        else:
            assert call.path is not None
    assert len(olds) == len(set(olds.values())), "two identities of one entry"
    assert {name for name, call in truth.items() if call.start > began} <= ours.keys()


@given(seeds, st.integers(0, 10_000))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_joining_in_the_middle_of_a_frame_no_call_is_wrong(seed, at):
    talk = Talk(seed, count=25)
    truth = by_id(calls(talk.records))
    rng = random.Random(seed)
    pieces = split(
        talk.records, lambda record: [rng.randrange(1, len(record.data) + 1) for _ in range(rng.randrange(4))]
    )
    at %= len(pieces)
    found, _, _ = events(late(pieces, at))
    opened = by_id([event.call for event in found if isinstance(event, Opened)])
    for name, call in opened.items():
        check_honest(call, truth[name])
        stamps_in_order(call)
    began = pieces[at].time
    after = [call for call in truth.values() if call.start > began]
    # The first frames may be needed to be certain.
    assert len([call for call in after if call.id not in opened]) <= 2


@given(seeds)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_after_a_gap_every_later_call_is_whole(seed):
    talk = Talk(seed, count=6)
    conversation = talk.conversation
    rng = random.Random(seed)
    records = list(talk.records[:-1])
    lost = rng.randrange(3, len(records))
    conversation.records = records
    before = conversation.stream
    for _ in range(5):
        conversation.call("/runtime.v1.RuntimeService/Version", b"x" * 10, b"y" * 100)
    truth = by_id(calls(conversation.records))
    # The record lost, and the other end's of the same bytes.
    gone = {lost}
    record = conversation.records[lost]
    for place, other in enumerate(conversation.records):
        same = (
            getattr(other, "offset", None) == getattr(record, "offset", 0)
            and getattr(other, "data", b"") == record.data
        )
        if same:
            gone.add(place)
    ours = by_id(calls(without(conversation.records, gone)))
    # The gap shows when the next record of its direction comes, which may be of the first of these calls.
    later = [name for name, call in truth.items() if call.stream > before + 2]
    assert len(later) == 4
    for name in later:
        assert ours[name].complete
        check_honest(ours[name], truth[name])
        assert (ours[name].path or ours[name].old_path) is not None


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.binary(max_size=200)), max_size=60))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_bytes_of_any_kind_never_raise_and_make_no_call(writes):
    """Random bytes are no HTTP/2: whatever they look like, nobody called."""
    from tests.unit.conversation import Conversation

    talk = Conversation()
    for client, read, data in writes:
        if data:
            talk.write("client" if client else "server", data, read=read)
    found, rpc, streams = events(talk.records)
    assert found == []
    assert rpc.open_calls() == []
    assert isinstance(streams, Streams)
