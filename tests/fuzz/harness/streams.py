"""Streams: every direction's bytes come in order, each once or as a gap; and they are the bytes that were sent."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from tests.fuzz.contract import Growing, limits
from tests.fuzz.mutation import mutate
from tests.fuzz.samples import grpc, scripts
from tests.fuzz.script import Scene, scene
from tracer import placing
from tracer import streams as module
from tracer.records import Data
from tracer.streams import Chunk, Ended, Gap, Item, Read, Streams

AHEAD, HELD, CONNECTIONS = 3000, 6000, 4


def run(data: bytes) -> None:
    with limits(module, MAX_AHEAD_BYTES=AHEAD, MAX_AHEAD=30, MAX_HELD_BYTES=HELD, MAX_CONNECTIONS=CONNECTIONS):
        with limits(placing, MAX_PLACING_BYTES=8000, MAX_OPENING=100, MAX_MARKS=2):
            _feed(scene(data))


def _feed(seen: Scene) -> None:
    streams = Streams()
    growing = Growing(streams.stats)
    at: defaultdict[str, dict[str, int]] = defaultdict(partial(dict, request=0, response=0))
    evicted: set[str] = set()
    for record in seen.records:
        for item in streams.feed(record):
            _check(item, at[item.connection])
            if isinstance(item, Ended):
                del at[item.connection]
                evicted.add(item.connection)
            elif isinstance(item, Chunk) and seen.honest and item.connection not in evicted:
                key = (item.connection, item.way)
                true = seen.sent[key][item.offset : item.offset + len(item.data)]
                assert not item.filled or key not in seen.sure or item.data == true, "bytes that were not sent"
                assert item.filled or item.data == true, "bytes that were not sent"
        growing.check()
        assert streams.open <= CONNECTIONS
        _bounded(streams, len(record.data) if isinstance(record, Data) else 0)
        if isinstance(record, Data):
            assert streams.known(record.connection) is not None


def _check(item: Item, at: dict[str, int]) -> None:
    if isinstance(item, Ended):
        return
    if isinstance(item, Read):
        assert item.begin <= item.offset
        return
    assert item.offset == at[item.way], "bytes out of order"
    length = item.length if isinstance(item, Gap) else len(item.data)
    assert length > 0
    at[item.way] += length


def _bounded(streams: Streams, latest: int) -> None:
    for connection in streams._connections.values():
        flows = (connection.request, connection.response)
        held = sum(len(record.data) for flow in flows for record in flow.pending)
        assert held == connection.held_bytes or not held
        assert held <= HELD + latest
        for flow in flows:
            assert flow.ahead_bytes == sum(len(data) for *_, data in flow.ahead)
            assert flow.ahead_bytes <= AHEAD
            assert len(flow.ahead) <= 30


def seeds() -> Iterator[bytes]:
    return scripts(grpc, 8, 24)


__all__ = ["mutate", "run", "seeds"]
