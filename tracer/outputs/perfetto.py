"""A trace for the Perfetto UI: a track a lane, slices in slices.

The format is protobuf (perfetto's `trace_packet.proto`, `track_event.proto`); the few messages needed are written here
field by field, as the library that has them all is half a megabyte. A test reads them back with that library.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import pack
from typing import Any

from tracer.rows import Row

SEQUENCE = 1
FOREVER = 1 << 63
BEGIN, END, INSTANT = 1, 2, 3  # TrackEvent.Type
REALTIME, BOOTTIME = 1, 6  # BuiltinClock
EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
CLEARED = 1  # TracePacket.SequenceFlags

LANES = ("findings", "node", "PLEG", "image pulls", "pods", "other activities", "other clients")
"""Tracks at the top, in their order; pods have one each below theirs, other activities one a kind, clients one each."""

FACTS = (
    "id", "status", "ended_by", "error", "method_source", "outcome", "trigger", "kind", "severity", "confidence", "pid",
    "exit_code", "command", "container_id", "sandbox_id", "request_wait_seconds", "service_seconds",
    "response_wait_seconds", "request_bytes", "response_bytes", "deadline_seconds", "relist", "summary", "text",
)  # fmt: skip
"""Fields shown with a slice."""


INSTANTS = ("pleg_event", "node_event", "exit")


@dataclass(slots=True)
class _Slice:
    row: Row
    name: str
    category: str
    children: list["_Slice"] = field(default_factory=list)

    @property
    def until(self) -> int:
        return FOREVER if self.row.end is None else self.row.end


def trace(rows: Iterable[Row]) -> Iterator[bytes]:
    """The file in pieces. Rows may come in any order; of rows with one kind and id only one may come."""
    lanes = _lanes(list(rows))
    yield _packet(_clock_snapshot(), first=True)
    tracks = _Tracks()
    for rank, lane in enumerate(LANES):
        yield tracks.descriptor((lane,), rank)
    for path in sorted(lanes):
        slices, instants = lanes[path]
        yield from tracks.descriptors(path)
        yield from _draw(tracks, path, slices)
        for row in instants:
            yield _event(tracks.uuid(path), row, INSTANT, row.start, _name(row), row.kind)


def _lanes(rows: list[Row]) -> dict[tuple[str, ...], tuple[list[_Slice], list[Row]]]:
    """Path of each track -> its outermost slices, and its instants."""
    lanes: dict[tuple[str, ...], tuple[list[_Slice], list[Row]]] = defaultdict(lambda: ([], []))
    by_id = {(row.kind, row.id): _Slice(row, _name(row), row.kind) for row in rows if row.kind not in INSTANTS}
    holders = {
        call: slice_
        for slice_ in by_id.values()
        if slice_.row.kind in ("relist", "sync_pass")
        for call in slice_.row.fields["calls"]
    }
    for slice_ in by_id.values():
        row, parent = slice_.row, None
        if row.kind == "call":
            parent = holders.get(row.id)
        elif row.kind == "step":
            parent = by_id.get(("step", row.fields["parent"])) or by_id.get(("call", row.fields["call"]))
        if parent is not None and parent.row.start <= row.start and slice_.until <= parent.until:
            parent.children.append(slice_)
        else:
            lanes[_path(row)][0].append(slice_)
    for row in rows:
        if row.kind in INSTANTS:
            lanes[_path(row)][1].append(row)
    return lanes


def _path(row: Row) -> tuple[str, ...]:
    fields = row.fields
    pod = fields.get("pod")
    name = f"{pod['namespace']}/{pod['name']}" if pod else "no pod"
    match row.kind:
        case "finding":
            return ("findings",)
        case "node_event":
            return ("node",)
        case "exit":
            return ("pods", name)
        case "relist" | "pleg_event":
            return ("PLEG",)
        case "sync_pass" | "step":
            return ("pods", name)
    if fields["client"]["role"] != "kubelet":
        return ("other clients", f"{fields['client']['comm'] or 'unknown'} ({fields['client']['pid']})")
    activity = fields["activity"]["kind"]
    if activity == "image_pull":
        return ("image pulls",)
    if activity in ("sync", "terminate", "lifecycle_hook", "probe") and pod:
        return ("pods", name)
    return ("other activities", activity)


def _name(row: Row) -> str:
    fields = row.fields
    match row.kind:
        case "call":
            return fields["method"] or "unknown method"
        case "relist":
            return f"relist ({fields['kind']})"
        case "sync_pass":
            return f"sync: {fields['kind']}"
        case "step":
            return f"{fields['kind']}: {fields['name']}"
        case "pleg_event":
            return str(fields["type"])
        case "exit":
            return "exit"
    return str(fields["kind"])


class _Tracks:
    """Numbers of tracks by their path."""

    def __init__(self) -> None:
        self._uuids: dict[tuple[str, ...], int] = {}

    def uuid(self, path: tuple[str, ...]) -> int:
        return self._uuids.setdefault(path, len(self._uuids) + 1)

    def descriptors(self, path: tuple[str, ...]) -> Iterator[bytes]:
        """Of the track and of those above it that have none yet."""
        for depth in range(1, len(path) + 1):
            if path[:depth] not in self._uuids:
                yield self.descriptor(path[:depth], 0)

    def descriptor(self, path: tuple[str, ...], rank: int) -> bytes:
        body = _number(1, self.uuid(path)) + _text(2, path[-1].split("\0")[0])
        if len(path) > 1:
            body += _number(5, self.uuid(path[:-1]))
        body += _number(11, EXPLICIT) + _number(12, rank)
        return _packet(_message(60, body))


def _draw(tracks: _Tracks, path: tuple[str, ...], slices: list[_Slice]) -> Iterator[bytes]:
    """Slices on as few tracks as keep them properly nested; the further ones of a lane lie below its own."""
    ends: list[int] = []  # until when each track is taken
    for slice_ in sorted(slices, key=lambda each: (each.row.start, -each.until)):
        number = next((n for n, end in enumerate(ends) if end <= slice_.row.start), len(ends))
        if number == len(ends):
            ends.append(0)
        ends[number] = slice_.until
        own = path if number == 0 else (*path, f"{path[-1]}\0{number}")
        yield from tracks.descriptors(own)
        yield from _nested(tracks, own, slice_)


def _nested(tracks: _Tracks, path: tuple[str, ...], slice_: _Slice) -> Iterator[bytes]:
    """A slice, in it those of its children that follow one another; children beside them get tracks of their own."""
    row = slice_.row
    inside, beside, taken = [], [], row.start
    for child in sorted(slice_.children, key=lambda each: (each.row.start, -each.until)):
        if child.row.start >= taken:
            inside.append(child)
            taken = child.until
        else:
            beside.append(child)
    yield _event(tracks.uuid(path), row, BEGIN, row.start, slice_.name, slice_.category)
    for child in inside:
        yield from _nested(tracks, path, child)
    if row.end is not None:
        yield _event(tracks.uuid(path), row, END, row.end, None, None)
    if beside:
        yield from _draw(tracks, (*path, f"beside {slice_.name}"), beside)


def _event(track: int, row: Row, kind: int, time: int, name: str | None, category: str | None) -> bytes:
    body = _number(9, kind) + _number(11, track)
    if name is not None:
        body += _text(22, category or "") + _text(23, name) + _facts(row.fields)
    return _packet(_number(8, time) + _message(11, body))


def _facts(fields: dict[str, Any]) -> bytes:
    body = b""
    for name in FACTS:
        value = fields.get(name)
        if value is None:
            continue
        annotation = _text(10, name)
        if isinstance(value, bool):
            annotation += _number(2, value)
        elif isinstance(value, int):
            annotation += _number(4, value)
        elif isinstance(value, float):
            annotation += _varint(5 << 3 | 1) + pack("<d", value)
        else:
            annotation += _text(6, str(value))
        body += _message(4, annotation)
    return body


def _clock_snapshot() -> bytes:
    """Times are Unix ns; the UI takes them for the boot clock's, so both are said to be the same."""
    clocks = b"".join(_message(1, _number(1, clock) + _number(2, 0)) for clock in (REALTIME, BOOTTIME))
    return _message(6, clocks)


def _packet(body: bytes, *, first: bool = False) -> bytes:
    flags = _number(13, CLEARED) if first else b""
    return _message(1, body + _number(10, SEQUENCE) + flags)


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _text(number: int, value: str) -> bytes:
    return _message(number, value.encode())


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body
