"""Scripts: records of a few connections as bytes that a fuzzer can change and still have records.

An entry is a head of six bytes and a payload:

    0  what (low four bits), connection (three), 0x80: the record is lost
    1  0x01 the server's end, 0x02 a receive; the exponent of the time since the entry before (six bits)
    2  the mantissa of that time
    3  how many entries later the record comes
    4  bytes of the payload (two, little-endian)

What one end sends goes into the other end's queue; `READ` takes from it, so that both ends tell the same bytes unless
an entry says otherwise.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tracer.heads import PREFACE
from tracer.records import Closed, Data, Exec, Exit, Lost, Opened, Record

DATA, PART, JUMP, READ, AGAIN, OPENED, CLOSED, EXEC, EXIT, LOST = range(10)

SERVER, RECEIVE, GONE = 0x01, 0x02, 0x80

PATHS = (
    *["/run/containerd/containerd.sock"] * 4, "/var/run/crio/crio.sock", "",
    "/run/containerd/containerd.sock.ttrpc", "/run/containerd/s/" + "5a" * 32,
)  # fmt: skip
CLIENTS = ("kubelet", "kubelet", "kubelet", "crictl", "kubelet", "kubelet", "containerd-shim", "containerd")

MAX_PAYLOAD = 0xFFFF
MAX_ENTRIES = 400
MAX_LATE = 7
FIRST = 1_000_000_000

_HEAD = struct.Struct("<BBBBH")


@dataclass(slots=True)
class Entry:
    what: int
    end: int
    step: int  # mantissa
    late: int
    payload: bytes

    def packed(self) -> bytes:
        payload = self.payload[:MAX_PAYLOAD]
        return _HEAD.pack(self.what, self.end, self.step, self.late, len(payload)) + payload


def entries(data: bytes) -> list[Entry]:
    found: list[Entry] = []
    at = 0
    while at + _HEAD.size <= len(data) and len(found) < MAX_ENTRIES:
        *head, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        found.append(Entry(*head, data[at : at + length]))
        at += length
    return found


def packed(found: Iterable[Entry]) -> bytes:
    return b"".join(entry.packed() for entry in found)


@dataclass
class Scene:
    """What a script means: the records, and for each connection and direction the bytes that really went."""

    records: list[Record] = field(default_factory=list)
    sent: defaultdict[tuple[str, str], bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    honest: bool = True  # both ends tell the same
    sure: set[tuple[str, str]] = field(default_factory=set)  # both ends' first record is there and begins HTTP/2


def scene(data: bytes) -> Scene:
    return _Stage().play(entries(data))


class _Stage:
    def __init__(self) -> None:
        self.scene = Scene()
        self.time = FIRST
        self.offsets: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.taken: defaultdict[tuple[str, str], int] = defaultdict(int)  # bytes of `sent` the reader has read
        self.closed: set[int] = set()
        self.generation: defaultdict[int, int] = defaultdict(int)
        self.last: Record | None = None
        self.begun: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def play(self, found: list[Entry]) -> Scene:
        due: list[tuple[int, int, Record]] = []
        for number, entry in enumerate(found):
            exponent = entry.end >> 2
            self.time += ((256 + entry.step) << min(exponent, 44)) >> 10 if exponent else 0
            record = self._record(entry)
            if record is not None and not entry.what & GONE:
                due.append((number + entry.late % (MAX_LATE + 1), number, record))
            ready = sorted(each for each in due if each[0] <= number)
            due = [each for each in due if each[0] > number]
            self.scene.records += [record for _, _, record in ready]
        self.scene.records += [record for _, _, record in sorted(due, key=lambda each: each[:2])]
        return self.scene

    def _record(self, entry: Entry) -> Record | None:
        what, place = entry.what & 0x0F, entry.what >> 4 & 7
        side = "server" if entry.end & SERVER else "client"
        comm = CLIENTS[place] if side == "client" else "containerd"
        pid = (100 if side == "client" else 200) + (place if side == "client" else 0)
        text = entry.payload.decode("utf-8", "replace")
        if place in self.closed and what in (DATA, PART, JUMP, READ, OPENED):
            # Nothing follows on a connection of which an end has read the end.
            self.closed.remove(place)
            self.generation[place] += 1
        if what == OPENED:
            return Opened(self.time, self._name(place), side, PATHS[place], pid, comm)
        if what == CLOSED:
            self.closed.add(place)
            return Closed(self.time, self._name(place), side, pid, len(entry.payload))
        if what == EXEC:
            words = text.split("\0")
            return Exec(self.time, pid, 1, words[0][:15], words[1:], {"CNI_ARGS": words[-1]} if place & 1 else {})
        if what == EXIT:
            return Exit(self.time, pid, 1, text[:15], len(entry.payload))
        if what == LOST:
            return Lost(self.time, "socket", len(entry.payload))
        if what == AGAIN:
            return None if place in self.closed else self.last
        record = self.last = self._data(what, entry, self._name(place), side, PATHS[place], pid, comm)
        return record

    def _name(self, place: int) -> str:
        return f"c{place}.{self.generation[place]}"

    def _data(self, what: int, entry: Entry, name: str, side: str, path: str, pid: int, comm: str) -> Data | None:
        receiving = bool(entry.end & RECEIVE) or what == READ
        way = "request" if (side == "client") != receiving else "response"
        key = (name, way)
        payload = kept = entry.payload
        if what == READ:
            count = int.from_bytes(payload[:2], "little")
            at = self.taken[key]
            payload = bytes(self.scene.sent[key][at : at + count])
            kept = payload if len(entry.payload) < 3 else payload[: entry.payload[2]]
            self.taken[key] += len(payload)
            if not payload:
                return None
        elif receiving:
            self.scene.honest = False
        elif what != JUMP:
            self.scene.sent[key] += payload
        if what == PART and payload:
            kept = payload[: len(payload) * payload[-1] // 256]
        end = (name, side, "recv" if receiving else "send")
        if what == JUMP:
            self.scene.honest = False
            self.offsets[end] = int.from_bytes(payload[:8], "little") >> 1
        offset = self.offsets[end]
        self.offsets[end] += len(payload)
        if offset == 0 and kept is payload and not entry.what & GONE and not entry.late:
            whole = payload.startswith(PREFACE) if way == "request" else _begins_with_settings(payload)
            if whole:
                self.begun[key].add(end[2])
                if len(self.begun[key]) == 2:
                    self.scene.sure.add(key)
        return Data(self.time, name, side, end[2], path, pid, pid, comm, 7, offset, len(payload), kept)  # type: ignore[arg-type]


def _begins_with_settings(data: bytes) -> bool:
    length = int.from_bytes(data[:3], "big")
    return data[3:9] == b"\x04\x00\0\0\0\0" and length % 6 == 0 and len(data) >= 9 + length


def script(records: Iterable[Record]) -> bytes:
    """Real records as a script; of what a reader read only how much, where the sender's record is there."""
    places: dict[str, int] = {}
    sent: defaultdict[tuple[str, str], bytearray] = defaultdict(bytearray)
    taken: defaultdict[tuple[str, str], int] = defaultdict(int)
    out: list[Entry] = []
    before: int | None = None
    for record in records:
        step = 0 if before is None else max(0, record.time - before)
        before = record.time
        exponent, mantissa = _float(step)
        if not isinstance(record, Data):
            if isinstance(record, Exec):
                words = [record.comm, *record.argv, record.env.get("CNI_ARGS", "")]
                out.append(Entry(EXEC | 0x10, exponent << 2, mantissa, 0, "\0".join(words).encode()))
            continue
        if record.connection not in places:
            taken_places = set(places.values())
            suited = [at for at, path in enumerate(PATHS) if (path[-6:] == record.path[-6:]) and at not in taken_places]
            if not suited:
                suited = [7] if "/containerd/s/" in record.path else [0]
            places[record.connection] = suited[0]
        place = places[record.connection]
        receiving = record.direction == "recv"
        key = (record.connection, "request" if (record.side == "client") != receiving else "response")
        end = (SERVER if record.side == "server" else 0) | (RECEIVE if receiving else 0) | exponent << 2
        what, payload = DATA, record.data
        if receiving and sent[key][taken[key] : taken[key] + record.length] == record.data:
            what, payload = READ, record.length.to_bytes(2, "little")
            taken[key] += record.length
        elif not receiving:
            sent[key] += record.data
        out.append(Entry(what | place << 4, end, mantissa, 0, payload))
    return packed(out)


def _float(step: int) -> tuple[int, int]:
    """Exponent and mantissa of a time, as heads have it: (256 + mantissa) << exponent >> 10, nearly."""
    if step < 1:
        return 0, 0
    exponent = max(1, (step << 10).bit_length() - 9)
    return min(exponent, 44), max(0, min(255, ((step << 10) >> exponent) - 256))
