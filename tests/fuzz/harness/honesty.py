"""Honesty: whatever of a real conversation is lost, late, repeated, cut or before the tracer's time, no call that is
told is wrong; it equals what the whole conversation says, or is visibly not the whole of it."""

import random
from collections.abc import Iterator
from functools import cache

from tests.fuzz import mishaps
from tests.fuzz.samples import CAPTURES, grpc, records
from tests.unit.wire.talk import Talk
from tracer.calls import Call, Finished, Opened
from tracer.records import Record
from tracer.rpc import Rpc
from tracer.streams import Streams

COUNT, LENGTH = 16, 70  # conversations, and records of each


def run(data: bytes) -> None:
    if not data:
        return
    number = data[0] % COUNT
    true = _truth(number)
    for name, call in _decoded(mishaps.befallen(_conversation(number), data[1:])).items():
        assert name in true, f"{name} never was"
        _equal(call, true[name])


@cache
def _conversation(number: int) -> list[Record]:
    if number < len(CAPTURES):
        return [record for record in records(CAPTURES[number]) if grpc(record)][:LENGTH]
    return list(Talk(number, count=7).records)


@cache
def _truth(number: int) -> dict[str, Call]:
    return _decoded(_conversation(number))


def _decoded(found: list[Record]) -> dict[str, Call]:
    """By id: also those still open, as far as they are known."""
    streams, rpc = Streams(), Rpc()
    calls: dict[str, Call] = {}
    ended: set[str] = set()
    for record in found:
        for item in streams.feed(record):
            for event in rpc.feed(item, streams.known(item.connection)):
                if isinstance(event, Opened):
                    assert event.call.id not in calls, "a call twice"
                    calls[event.call.id] = event.call
                elif isinstance(event, Finished):
                    assert event.call.id not in ended, "a call that ends twice"
                    ended.add(event.call.id)
    return calls


def _equal(call: Call, true: Call) -> None:
    for field in ("path", "status", "error", "deadline_ns", "trace"):
        assert getattr(call, field) in (None, getattr(true, field)), field
    if call.complete and call.ended_by == "server":
        assert call.request_bytes == true.request_bytes
        assert call.response_bytes == true.response_bytes
        assert call.responses == true.responses
    if call.request is not None and call.request.data is not None and true.request is not None:
        assert call.request.data == true.request.data
    assert call.request_bytes <= true.request_bytes
    assert call.response_bytes <= true.response_bytes


def mutate(data: bytes, size: int, seed: int, change: object = None) -> bytes:
    chance = random.Random(seed)
    number = data[0] if data and chance.random() < 0.95 else chance.randrange(COUNT)
    return bytes([number]) + mishaps.mutate(data[1:], size - 1, chance)


def seeds() -> Iterator[bytes]:
    for number in range(COUNT):
        yield bytes([number])
        for what in range(8):
            yield bytes([number, what, 10 * what + number, 0, 90])
