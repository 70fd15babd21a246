"""Runs records through the wire stages."""

from collections.abc import Iterable

from tracer.records import Record
from tracer.rpc import Call, Event, Finished, Rpc
from tracer.streams import Streams


def events(records: Iterable[Record]) -> tuple[list[Event], Rpc, Streams]:
    streams, rpc = Streams(), Rpc()
    found: list[Event] = []
    for record in records:
        for item in streams.feed(record):
            found += rpc.feed(item, streams.known(item.connection))
    return found, rpc, streams


def calls(records: Iterable[Record]) -> list[Call]:
    """Finished calls in the order they ended."""
    return [event.call for event in events(records)[0] if isinstance(event, Finished)]


def one(records: Iterable[Record]) -> Call:
    """The only call there is."""
    found = calls(records)
    assert len(found) == 1
    return found[0]


def facts(call: Call) -> tuple[object, ...]:
    """What must be the same however the bytes were cut: everything but the stamps."""
    return (
        call.id, call.path, call.deadline_ns, call.status, call.error, call.ended_by, call.request_bytes,
        call.response_bytes, call.responses, call.complete, call.trace,
    )  # fmt: skip
