"""Builds valid conversations: frames by hyperframe, header blocks by hpack's encoder, which indexes every field as Go's
does; so the bytes come from independent code. Gives them as records of both ends."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tracer.records import Closed, Data, Record
from tracer.streams import PREFACE

PATH = "/run/containerd/containerd.sock"
STEP = 100_000  # ns between an operation and the other end's


def grpc(message: bytes, *, compressed: bool = False) -> bytes:
    return struct.pack(">BI", compressed, len(message)) + message


@dataclass
class Conversation:
    """One connection. Every write advances the clock by `STEP`; the reader reads each write whole, `STEP` later."""

    connection: str = "c1"
    path: str = PATH
    comm: str = "kubelet"
    time: int = 1_000_000_000
    records: list[Record] = field(default_factory=list)
    client: Encoder = field(default_factory=Encoder)
    server: Encoder = field(default_factory=Encoder)
    stream: int = -1
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)

    def write(self, side: str, data: bytes, *, read: bool = True) -> int:
        """Bytes of one send, and the other end's read of them; returns the time of the send."""
        self.time += STEP
        sent = self.time
        self._record(side, "send", data)
        if read:
            self.read("server" if side == "client" else "client", data)
        return sent

    def read(self, side: str, data: bytes) -> int:
        self.time += STEP
        self._record(side, "recv", data)
        return self.time

    def _record(self, side: str, direction: str, data: bytes) -> None:
        offset = self.offsets.get((side, direction), 0)
        self.offsets[side, direction] = offset + len(data)
        pid, comm = (100, self.comm) if side == "client" else (200, "containerd")
        self.records.append(
            Data(self.time, self.connection, side, direction, self.path, pid, pid, comm, 7, offset, len(data), data)
        )

    def open(self) -> "Conversation":
        self.write("client", PREFACE)
        self.write("client", SettingsFrame(0).serialize())
        self.write("server", SettingsFrame(0, settings={SettingsFrame.MAX_FRAME_SIZE: 16384}).serialize())
        return self

    def close(self) -> None:
        self.time += STEP
        self.records.append(Closed(self.time, self.connection, "client", 100, 0))

    def request_fields(self, method: str, timeout: str | None = "120000m", **extra: str) -> list[tuple[str, str]]:
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.79.3"),
            ("te", "trailers"),
        ]
        if timeout:
            fields.append(("grpc-timeout", timeout))
        return fields + [(name.replace("_", "-"), value) for name, value in extra.items()]

    def request(self, method: str, message: bytes = b"", timeout: str | None = "120000m", **extra: str) -> int:
        """Headers and message in one write; returns the stream id."""
        self.stream += 2
        headers = self.client.encode(self.request_fields(method, timeout, **extra))
        frames = self.headers(self.stream, headers) + self.data(self.stream, grpc(message), end=True)
        self.write("client", frames)
        return self.stream

    def response_headers(self, stream: int, **extra: str) -> bytes:
        fields = [(":status", "200"), ("content-type", "application/grpc")]
        fields += [(name.replace("_", "-"), value) for name, value in extra.items()]
        return self.headers(stream, self.server.encode(fields))

    def trailers(self, stream: int, status: int = 0, text: str | None = None) -> bytes:
        fields = [("grpc-status", str(status)), *([("grpc-message", text)] if text else [])]
        return self.headers(stream, self.server.encode(fields), end=True)

    def respond(self, stream: int, message: bytes = b"", status: int = 0, text: str | None = None) -> None:
        self.write(
            "server",
            self.response_headers(stream) + self.data(stream, grpc(message)) + self.trailers(stream, status, text),
        )

    def fail(self, stream: int, status: int, text: str) -> None:
        """Trailers only."""
        fields = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", str(status)),
            ("grpc-message", text),
        ]
        self.write("server", self.headers(stream, self.server.encode(fields), end=True))

    def call(self, method: str, message: bytes = b"", answer: bytes = b"", **options: str) -> int:
        stream = self.request(method, message, **options)
        self.respond(stream, answer)
        return stream

    @staticmethod
    def headers(
        stream: int,
        block: bytes,
        *,
        end: bool = False,
        pad: int | None = None,
        priority: bool = False,
        cuts: Sequence[int] = (),
    ) -> bytes:
        """HEADERS, and CONTINUATION frames from each of `cuts` on."""
        borders = [0, *cuts, len(block)]
        pieces = [block[begin:stop] for begin, stop in pairwise(borders)]
        first = HeadersFrame(stream, data=pieces[0])
        if end:
            first.flags.add("END_STREAM")
        if pad is not None:
            first.flags.add("PADDED")
            first.pad_length = pad
        if priority:
            first.flags.add("PRIORITY")
            first.depends_on, first.stream_weight, first.exclusive = 1, 17, True
        frames: list[Frame] = [first, *(ContinuationFrame(stream, data=piece) for piece in pieces[1:])]
        frames[-1].flags.add("END_HEADERS")
        return b"".join(frame.serialize() for frame in frames)

    @staticmethod
    def data(stream: int, payload: bytes, *, end: bool = False, most: int = 16384, pad: int | None = None) -> bytes:
        """DATA frames of at most `most` bytes of payload."""
        out = b""
        pieces = [payload[at : at + most] for at in range(0, len(payload), most)] or [b""]
        for number, piece in enumerate(pieces, 1):
            frame = DataFrame(stream, data=piece)
            if end and number == len(pieces):
                frame.flags.add("END_STREAM")
            if pad is not None:
                frame.flags.add("PADDED")
                frame.pad_length = pad
            out += frame.serialize()
        return out


def rst(stream: int, code: int = 8) -> bytes:
    return RstStreamFrame(stream, error_code=code).serialize()


def goaway(last: int) -> bytes:
    return GoAwayFrame(0, last_stream_id=last).serialize()


def chatter() -> bytes:
    """What grpc-go sends after each DATA frame it receives."""
    return (
        WindowUpdateFrame(0, window_increment=7).serialize()
        + PingFrame(0, opaque_data=b"\x02\x04\x10\x10\x09\x0e\x07\x07").serialize()
    )


__all__ = [
    "PATH", "STEP", "ContinuationFrame", "Conversation", "DataFrame", "Frame", "HeadersFrame", "PingFrame",
    "PriorityFrame", "SettingsFrame", "chatter", "goaway", "grpc", "rst",
]  # fmt: skip
