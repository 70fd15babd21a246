"""Builds ttrpc conversations by hand, and gives them as records of both ends."""

import struct
from dataclasses import dataclass, field
from itertools import pairwise

from tracer.records import Closed, Data, Record
from tracer.shimcalls import ShimCall
from tracer.ttrpc import Ttrpc

STEP = 100_000  # ns between an operation and the other end's
TASK = "containerd.task.v2.Task"
EVENTS = "containerd.services.events.ttrpc.v1.Events"
C1, C2, S1, S2 = "c1" * 32, "c2" * 32, "51" * 32, "52" * 32
E1, E2 = "e1" * 32, "e2" * 32


def number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def proto(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A message of these (number, value) fields."""
    out = b""
    for at, value in fields:
        if isinstance(value, int):
            out += number(at << 3) + number(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += number(at << 3 | 2) + number(len(raw)) + raw
    return out


def message(stream: int, kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">IIBB", len(body), stream, kind, flags) + body


def request(
    stream: int, method: str, payload: bytes, *, service: str = TASK, timeout: int = 0, namespaced: bool = True
) -> bytes:
    body = proto((1, service), (2, method), (3, payload))
    if timeout:
        body += proto((4, timeout))
    if namespaced:
        body += proto((5, proto((1, "containerd-namespace-ttrpc"), (2, "k8s.io"))))
    return message(stream, 1, body)


def answer(stream: int, payload: bytes = b"", status: int = 0, text: str = "") -> bytes:
    body = proto((1, proto((1, status), (2, text)))) if status else b""
    return message(stream, 2, body + (proto((2, payload)) if payload else b""))


def event(topic: str, inner: bytes) -> bytes:
    any_ = proto((1, "containerd.events.Task"), (2, inner))
    return proto((1, proto((1, proto((1, 1796069927))), (2, "k8s.io"), (3, topic), (4, any_))))


@dataclass
class Shim:
    """One connection between a runtime (client) and a shim (server); `events` is the other way round.

    Every operation advances the clock by `STEP`.
    """

    connection: str = "t1"
    path: str = "/run/containerd/s/0f0f"
    client: tuple[int, str] = (200, "containerd")
    server: tuple[int, str] = (8413, "containerd-shim")
    time: int = 1_000_000_000
    stream: int = -1
    records: list[Record] = field(default_factory=list)
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)

    def send(self, side: str, data: bytes, *, read: bool = True) -> int:
        self.time += STEP
        at = self.time
        self.record(side, "send", data)
        if read:
            self.read("server" if side == "client" else "client", data)
        return at

    def read(self, side: str, data: bytes) -> int:
        self.time += STEP
        self.record(side, "recv", data)
        return self.time

    def record(self, side: str, direction: str, data: bytes) -> None:
        offset = self.offsets.get((side, direction), 0)
        self.offsets[side, direction] = offset + len(data)
        pid, comm = self.client if side == "client" else self.server
        self.records.append(
            Data(self.time, self.connection, side, direction, self.path, pid, pid, comm, 7, offset, len(data), data)
        )

    def ask(self, method: str, *ids: str, more: bytes = b"", read: bool = True, **options: object) -> int:
        """Returns the stream."""
        self.stream += 2
        payload = proto(*((at, each) for at, each in enumerate(ids, 1) if each)) + more
        self.send("client", request(self.stream, method, payload, **options), read=read)
        return self.stream

    def answer(self, stream: int, payload: bytes = b"", status: int = 0, text: str = "", *, read: bool = True) -> None:
        self.send("server", answer(stream, payload, status, text), read=read)

    def tell(self, topic: str, *fields: tuple[int, int | str]) -> None:
        """An event, and its answer."""
        self.stream += 2
        self.send("client", request(self.stream, "Forward", event(topic, proto(*fields)), service=EVENTS))
        self.answer(self.stream)

    def close(self) -> None:
        self.time += STEP
        self.records.append(Closed(self.time, self.connection, "client", self.client[0], 0))


def calls(records: list[Record]) -> tuple[list[ShimCall], Ttrpc]:
    """Every call in the order of its beginning."""
    ttrpc = Ttrpc()
    found = dict.fromkeys(call for record in records for call in ttrpc.feed(record))
    return list(found), ttrpc


def cut(records: list[Record], sizes: list[int]) -> list[Record]:
    """The same bytes in the same order, in other pieces: sends and reads of `sizes`, over and over."""
    out: list[Record] = []
    turn = 0
    for each in records:
        if not isinstance(each, Data):
            out.append(each)
            continue
        borders = [0]
        while borders[-1] < each.length:
            borders.append(min(each.length, borders[-1] + sizes[turn % len(sizes)]))
            turn += 1
        for begin, end in pairwise(borders):
            part = each.data[begin:end]
            out.append(
                Data(
                    each.time, each.connection, each.side, each.direction, each.path, each.pid, each.tid, each.comm,
                    each.fd, each.offset + begin, len(part), part,
                )
            )  # fmt: skip
    return out
