"""gRPC calls: each opens once and ends once, its stamps are in order, and nothing stays kept when all are over."""

import dataclasses
from collections.abc import Iterable, Iterator

from tests.fuzz.contract import Growing, limits, text
from tests.fuzz.mutation import mutate
from tests.fuzz.samples import grpc, scripts
from tests.fuzz.script import Entry, entries, packed, scene
from tracer import kept, reading
from tracer import records as records_module
from tracer import rpc as module
from tracer.calls import Call, Event, Finished, Joined, Left, Opened, Requested, Responded
from tracer.metadata import STATUS
from tracer.records import Closed, Data, Record
from tracer.rpc import Rpc
from tracer.streams import Streams

STREAMS, OPEN, KEPT, WAITING = 6, 10, 30_000, 12


def run(data: bytes) -> None:
    small = limits(module, MAX_STREAMS=STREAMS, MAX_OPEN=OPEN)
    with small, limits(kept, MAX_KEPT=KEPT), limits(reading, MAX_WAITING=WAITING, MAX_AHEAD=8):
        records = scene(data).records
        _feed(records)
        _any_cut(data)


def _feed(records: list[Record]) -> None:
    streams, rpc = Streams(), Rpc()
    growing = Growing(rpc.stats)
    open_calls: dict[int, Call] = {}
    last = 0
    for record in [*records, *_ends(records)]:
        last = max(last, record.time)
        for item in streams.feed(record):
            for event in rpc.feed(item, streams.known(item.connection)):
                _follow(event, open_calls)
        growing.check()
        assert rpc.open_calls() == list(open_calls.values()) or set(map(id, rpc.open_calls())) == set(open_calls)
        assert rpc._open == len(open_calls) <= OPEN + len(rpc._connections)
        assert 0 <= rpc._kept.bytes <= KEPT
        for connection in rpc._connections.values():
            assert len(connection.request.reading.waiting) <= WAITING
            assert len(connection.response.reading.waiting) <= WAITING
    assert open_calls == {}
    assert (rpc._kept.bytes, rpc._open, len(rpc._connections), streams.open) == (0, 0, 0, 0)


def _follow(event: Event, open_calls: dict[int, Call]) -> None:
    if isinstance(event, (Joined, Left)):
        return
    call = event.call
    if isinstance(event, Opened):
        assert id(call) not in open_calls
        open_calls[id(call)] = call
        assert call.stream & 1
        return
    assert open_calls[id(call)] is call, "of a call that is not open"
    if isinstance(event, Responded):
        assert call.responses > 0
    elif isinstance(event, Requested):
        assert call.sent is None or call.sent >= call.start
    elif isinstance(event, Finished):
        del open_calls[id(call)]
        _finished(call)


def _finished(call: Call) -> None:
    assert call.ended_by is not None
    assert call.end is not None
    assert call.end >= call.start
    assert call.status is None or call.status in STATUS
    assert min(call.request_bytes, call.response_bytes, call.responses) >= 0
    known = [stamp for stamp in (call.answered, call.read_answer) if stamp is not None]
    assert known == sorted(known)
    assert call.sent is None or call.received is None or call.sent <= call.received
    if call.ended_by in ("client_cancel", "connection"):
        assert call.status is None or call.answered is not None or not call.complete
    for value in (call.path, call.error, call.trace):
        if value is not None:
            text(value)


def _ends(records: list[Record]) -> list[Record]:
    """Every connection ends."""
    time = max((record.time for record in records), default=0) + 1
    names = dict.fromkeys(each.connection for each in records if isinstance(each, (Data, records_module.Opened)))
    return [Closed(time, name, "client", 100, 0) for name in names]


def _any_cut(data: bytes) -> None:
    """What is sent and seen from its start gives the same calls when each record is cut in two."""
    sent = [Entry(each.what & 0x70, each.end & 0xFD, each.step, 0, each.payload) for each in entries(data)]
    sent = [each for each in sent if each.payload]
    whole = scene(packed(sent)).records
    if any(isinstance(record, Data) and record.offset == 0 and not _opening(record) for record in whole):
        return
    cut: list[Record] = []
    for number, record in enumerate(whole):
        assert isinstance(record, Data)
        at = 1 + number * 7 % len(record.data)
        for begin, end in ((0, at), (at, len(record.data))):
            if end > begin:
                piece = record.data[begin:end]
                cut.append(dataclasses.replace(record, offset=record.offset + begin, length=len(piece), data=piece))
    assert _facts(whole) == _facts(cut)


def _opening(record: Data) -> bool:
    if record.side == "client":
        return record.data.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    length = int.from_bytes(record.data[:3], "big")
    return record.data[3:9] == b"\4\0\0\0\0\0" and length % 6 == 0 and length < 600


def _facts(records: Iterable[Record]) -> list[tuple[object, ...]]:
    streams, rpc = Streams(), Rpc()
    found = []
    for record in records:
        for item in streams.feed(record):
            for event in rpc.feed(item, streams.known(item.connection)):
                if isinstance(event, Finished):
                    call = event.call
                    found.append((
                        call.id, call.path, call.deadline_ns, call.status, call.error, call.ended_by,
                        call.request_bytes, call.response_bytes, call.responses, call.complete, call.trace, call.end,
                    ))  # fmt: skip
    return found


def seeds() -> Iterator[bytes]:
    return scripts(grpc, 8, 24)


__all__ = ["mutate", "run", "seeds"]
