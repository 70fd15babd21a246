"""Spans: what a group of rows is in OpenTelemetry's words. Pure, and without its library.

Ids are hashes of what the row is and when it began, so that whoever exports the same rows again exports the same spans.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from tracer.outputs.otlp.attributes import Attributes, of_call, of_event, of_relist, of_step, of_sync_pass
from tracer.rows import Row, unix_ns

_TRACE_BYTES, _SPAN_BYTES = 16, 8
"""Of ids (W3C Trace Context, sections 3.2.2.3 and 3.2.2.4)."""


@dataclass(frozen=True, slots=True)
class Link:
    """To a span of the client's own."""

    trace: int
    span: int


@dataclass(frozen=True, slots=True)
class Event:
    """`time` in Unix ns."""

    time: int
    name: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Span:
    """Times in Unix ns. `remote`: the parent is the client's own span. `error`: why it failed; None when it did not."""

    trace: int
    ident: int
    parent: int | None
    remote: bool
    name: str
    kind: Literal["client", "internal"]
    start: int
    end: int
    attributes: Attributes
    events: tuple[Event, ...]
    links: tuple[Link, ...]
    error: str | None


def trace_id(root: Row | None, calls: Iterable[Row]) -> int:
    """The client's own trace when all its calls share one; else one of the group's own."""
    calls = list(calls)
    shared = {call.fields["trace_id"] for call in calls} - {None}
    if len(shared) == 1:
        return int(shared.pop(), 16)
    return _hash(root or calls[0], _TRACE_BYTES)


def tree(root: Row | None, calls: Iterable[Row], steps: Iterable[Row]) -> list[Span]:
    """Every row's span, parents first. All rows have ended; without a root there is one call."""
    calls = sorted(calls, key=lambda row: row.start)
    trace = trace_id(root, calls)
    spans = [] if root is None else [_root(trace, root)]
    above = None if root is None else spans[0].ident
    stages = _stages(root)
    idents = {row.id: _span_id(row) for row in calls}
    spans += [_call(trace, above, row, stages.get(row.id)) for row in calls]
    steps = sorted(steps, key=lambda row: row.start)
    parts = {row.id: _span_id(row) for row in steps}
    spans += [_step(trace, parts.get(row.fields["parent"], idents[row.fields["call"]]), row) for row in steps]
    return spans


def _root(trace: int, row: Row) -> Span:
    fields = row.fields
    relist = row.kind == "relist"
    events = fields["events"] if relist else ()
    return Span(
        trace=trace,
        ident=_span_id(row),
        parent=None,
        remote=False,
        name=f"relist {fields['kind']}" if relist else f"sync {fields['kind']}",
        kind="internal",
        start=row.start,
        end=_end(row),
        attributes=of_relist(fields) if relist else of_sync_pass(fields),
        events=tuple(Event(unix_ns(event["time"]), event["type"], of_event(event)) for event in events),
        links=(),
        error="" if fields["outcome"] == "failed" else None,
    )


def _call(trace: int, above: int | None, row: Row, stage: str | None) -> Span:
    """In a relist or pass its child, linked to the client's own span around the call; else that one's child."""
    fields = row.fields
    own = None if fields["span_id"] is None else Link(int(fields["trace_id"], 16), int(fields["span_id"], 16))
    joins = above is None and own is not None
    method = fields["method"] or "unknown"
    return Span(
        trace=trace,
        ident=_span_id(row),
        parent=own.span if joins and own is not None else above,
        remote=joins,
        name=f"{fields['service']}/{method}" if fields["service"] else method,
        kind="client",
        start=row.start,
        end=_end(row),
        attributes=of_call(fields, stage),
        events=(),
        links=() if joins or own is None else (own,),
        error=_failure(row),
    )


def _step(trace: int, parent: int, row: Row) -> Span:
    fields = row.fields
    name = f"{fields['kind']} {fields['name']}"
    failed = bool(fields["exit_code"] or fields["signal"]) or fields["status"] not in (None, "OK")
    return Span(
        trace=trace,
        ident=_span_id(row),
        parent=parent,
        remote=False,
        name=f"{name} {fields['command']}" if fields["command"] else name,
        kind="internal",
        start=row.start,
        end=_end(row),
        attributes=of_step(fields),
        events=(),
        links=(),
        error=(fields["error"] or "") if failed else None,
    )


def failed(call: Row) -> bool:
    """A status other than OK, or ended by something else than an answer."""
    status, ended_by = call.fields["status"], call.fields["ended_by"]
    return status not in (None, "OK") or ended_by in ("client_cancel", "deadline", "connection")


def _failure(call: Row) -> str | None:
    return (call.fields["error"] or "") if failed(call) else None


def _stages(root: Row | None) -> dict[str, str]:
    """Id of each call of a sync pass -> the stage it is a part of."""
    stages = [] if root is None else root.fields.get("stages", [])
    return {call: stage["name"] for stage in stages for call in stage["calls"]}


def _end(row: Row) -> int:
    """Never before the start: stamps of two CPUs may cross by microseconds."""
    assert row.end is not None
    return max(row.start, row.end)


def _span_id(row: Row) -> int:
    return _hash(row, _SPAN_BYTES)


def _hash(row: Row, size: int) -> int:
    """Never 0, which is no id."""
    digest = blake2b(f"{row.kind} {row.id} {row.start}".encode(), digest_size=size)
    return int.from_bytes(digest.digest()) or 1
