"""Memory stays within named limits whatever the peers send, and what is given up is counted."""

import random
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.conversation import Conversation, grpc
from tests.unit.decode import events
from tests.unit.wire.talk import Talk
from tracer import kept, reading, rpc, streams
from tracer.calls import Finished
from tracer.records import Data
from tracer.rpc import Rpc
from tracer.streams import Streams

STATUS = "/runtime.v1.RuntimeService/Status"


def test_calls_that_are_never_answered_make_room_for_new_ones(monkeypatch):
    monkeypatch.setattr(rpc, "MAX_STREAMS", 10)
    talk = Conversation().open()
    for _ in range(25):
        talk.request(STATUS)
    found, stage, _ = events(talk.records)
    ended = [event.call for event in found if isinstance(event, Finished)]
    assert [(call.stream, call.ended_by, call.complete) for call in ended] == [
        (n * 2 + 1, "unknown", False) for n in range(15)
    ]
    assert len(stage.open_calls()) == 10
    assert stage.stats.evicted == 15


def test_calls_of_all_connections_together_are_limited(monkeypatch):
    monkeypatch.setattr(rpc, "MAX_OPEN", 20)
    records = []
    for number in range(5):
        talk = Conversation(f"c{number}").open()
        for _ in range(10):
            talk.request(STATUS)
        records += talk.records
    _, stage, _ = events(records)
    assert len(stage.open_calls()) <= 20 + 5  # a connection keeps its newest
    assert stage._open == len(stage.open_calls())
    assert stage.stats.evicted == 50 - len(stage.open_calls())


def test_a_reader_that_is_never_seen_again_holds_no_more_than_its_limit(monkeypatch):
    monkeypatch.setattr(reading, "MAX_WAITING", 50)
    talk = Conversation().open()
    talk.call(STATUS)
    before = len(talk.records)
    for _ in range(200):
        talk.call(STATUS)
    records = talk.records[:before] + [r for r in talk.records[before:] if r.direction == "send"]
    _, stage, _ = events(records)
    (connection,) = stage._connections.values()
    assert len(connection.request.reading.waiting) <= 50
    assert len(connection.response.reading.waiting) <= 50


def test_unfinished_messages_are_kept_within_one_limit(monkeypatch):
    monkeypatch.setattr(kept, "MAX_KEPT", 100_000)
    talk = Conversation().open()
    for _ in range(50):
        talk.stream += 2
        block = talk.client.encode(talk.request_fields(STATUS))
        half = grpc(b"x" * 20_000)[:10_000]
        talk.write("client", talk.headers(talk.stream, block) + talk.data(talk.stream, half))
    _, stage, _ = events(talk.records)
    assert len(stage.open_calls()) == 50
    assert stage._kept.bytes <= 100_000
    talk.close()
    _, stage, _ = events(talk.records)
    assert stage._kept.bytes == 0


def test_connections_that_never_end_make_room_with_all_they_hold(monkeypatch):
    monkeypatch.setattr(streams, "MAX_CONNECTIONS", 5)
    records = []
    for number in range(50):
        talk = Conversation(f"c{number}").open()
        talk.call(STATUS)
        talk.request(STATUS)
        records += talk.records
    found, stage, stage_streams = events(records)
    assert (stage_streams.open, len(stage._connections), stage_streams.stats.evicted) == (5, 5, 45)
    assert len(stage.open_calls()) == 5
    ended = [event.call.ended_by for event in found if isinstance(event, Finished)]
    assert (ended.count("server"), ended.count("unknown")) == (50, 45)


@given(st.integers(0, 2**32), st.sampled_from([1, 3, 30]))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_damaged_bytes_never_raise_and_leave_nothing_behind(seed, damages):
    """Of a valid conversation some bytes are changed, removed, repeated."""
    talk, rng = Talk(seed, count=6), random.Random(seed)
    records = [record for record in talk.records if isinstance(record, Data)]
    for _ in range(damages):
        place = rng.randrange(len(records))
        record = records[place]
        data = bytearray(record.data or b"\0")
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(20))
            case 2:
                del data[at : at + rng.randrange(20)]
            case 3:
                data[at:at] = bytes(rng.choice(records).data)[: rng.randrange(200)]
            case _:
                data[at : at + 9] = bytes([rng.choice([0, 0, 0, 1, 0x40, 0xFF]) for _ in range(9)])
        record.data, record.length = bytes(data), len(data)
    offsets: dict[tuple[str, str], int] = {}
    for record in records:
        record.offset = offsets.get((record.side, record.direction), 0)
        offsets[record.side, record.direction] = record.offset + record.length
        if rng.random() < 0.02:
            offsets[record.side, record.direction] += rng.choice([-5, 7, 1 << 40])
            offsets[record.side, record.direction] = max(0, offsets[record.side, record.direction])
    _, stage, stage_streams = events([*records, talk.records[-1]])
    assert stage.open_calls() == []
    assert (stage._kept.bytes, stage._open, len(stage._connections), stage_streams.open) == (0, 0, 0, 0)


def test_a_long_life_costs_no_more_memory_than_a_short_one():
    stage_streams, stage = Streams(), Rpc()
    talk = Conversation().open()

    def live(count):
        for number in range(count):
            talk.call(STATUS, b"q" * 50, b"a" * 500, timeout=f"{number % 700}m")
            if number % 7 == 0:
                talk.fail(talk.request(STATUS), 2, f"failure {number}")
        for record in talk.records:
            for item in stage_streams.feed(record):
                stage.feed(item, stage_streams.known(item.connection))
        talk.records.clear()

    live(700)  # as many as there are different headers
    tracemalloc.start()
    try:
        live(300)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(4):
            live(300)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000
