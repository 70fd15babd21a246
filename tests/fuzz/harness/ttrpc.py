"""ttrpc: each call begins once and ends once, its stamps are in order, and nothing is kept beyond its limit."""

from collections.abc import Iterator
from itertools import islice

from tests.fuzz.contract import Growing, limits, text
from tests.fuzz.mutation import mutate
from tests.fuzz.samples import CAPTURES, records
from tests.fuzz.samples import ttrpc as is_ttrpc
from tests.fuzz.script import scene, script
from tracer import ttrpc as module
from tracer.metadata import STATUS
from tracer.records import Closed, Data, Opened, Record
from tracer.shimcalls import ShimCall
from tracer.texts import MAX_ERROR
from tracer.ttrpc import HEAD, Ttrpc

KEPT, CONNECTIONS, OPEN, WAITING, EARLY = 600, 3, 6, 8, 4


def run(data: bytes) -> None:
    small = limits(
        module, MAX_KEPT=KEPT, MAX_CONNECTIONS=CONNECTIONS, MAX_OPEN=OPEN, MAX_WAITING=WAITING, MAX_EARLY=EARLY
    )
    with small:
        _feed(scene(data).records)


def _feed(found: list[Record]) -> None:
    stage = Ttrpc()
    growing = Growing(stage.stats)
    ended: dict[int, ShimCall] = {}
    time = 0
    for record in found:
        time = max(time, record.time)
        for call in stage.feed(record):
            _check(call, ended)
        growing.check()
        _bounded(stage)
    for name in {record.connection for record in found if isinstance(record, (Data, Opened))}:
        for call in stage.feed(Closed(time, name, "client", 1, 0)):
            _check(call, ended)
    assert stage.open_calls() == []
    assert not stage._connections


def _check(call: ShimCall, ended: dict[int, ShimCall]) -> None:
    assert call.stream & 1
    assert call.start <= call.sent
    assert call.received is None or call.received >= call.sent
    assert call.read_answer is None or call.answered is None or call.read_answer >= call.answered
    for stamp in (call.answered, call.end):
        assert stamp is None or stamp >= call.start
    assert call.status is None or call.status in STATUS
    for value in (call.service, call.method, call.error, call.id, call.exec_id, call.topic):
        if value is not None:
            text(value)
    assert len(call.error or "") <= MAX_ERROR
    if call.end is not None:
        ended[id(call)] = call
    else:
        assert id(call) not in ended, "it goes on after its end"


def _bounded(stage: Ttrpc) -> None:
    assert len(stage._connections) <= CONNECTIONS
    assert len(stage.open_calls()) <= OPEN * CONNECTIONS
    for connection in stage._connections.values():
        assert len(connection.early) <= EARLY
        for flow in (connection.request, connection.response):
            assert len(flow.kept) <= HEAD + KEPT
            assert len(flow.waiting) <= WAITING
            assert flow.skip >= 0


def seeds() -> Iterator[bytes]:
    for name in CAPTURES:
        connections: dict[str, list[Record]] = {}
        for record in records(name):
            if isinstance(record, Data) and is_ttrpc(record):
                connections.setdefault(record.connection, []).append(record)
        for found in islice(connections.values(), 6):
            yield script(found[:24])
            yield script(found[30:50])


__all__ = ["mutate", "run", "seeds"]
