"""Builds valid conversations: frames by hyperframe, header blocks by hpack's encoder, which indexes every field as Go's
does; so the bytes come from independent code. Gives them as records of both ends."""

import struct
from dataclasses import dataclass, field

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

    def respond(self, stream: int, message: bytes = b"", status: int = 0, text: str | None = None) -> None:
        headers = self.server.encode([(":status", "200"), ("content-type", "application/grpc")])
        trailers = [("grpc-status", str(status)), *([("grpc-message", text)] if text else [])]
        self.write(
            "server",
            self.headers(stream, headers)
            + self.data(stream, grpc(message))
            + self.headers(stream, self.server.encode(trailers), end=True),
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
    def headers(stream: int, block: bytes, *, end: bool = False) -> bytes:
        frame = HeadersFrame(stream, data=block)
        frame.flags.add("END_HEADERS")
        if end:
            frame.flags.add("END_STREAM")
        return frame.serialize()

    @staticmethod
    def data(stream: int, payload: bytes, *, end: bool = False, most: int = 16384) -> bytes:
        out = b""
        pieces = [payload[at : at + most] for at in range(0, len(payload), most)] or [b""]
        for number, piece in enumerate(pieces, 1):
            frame = DataFrame(stream, data=piece)
            if end and number == len(pieces):
                frame.flags.add("END_STREAM")
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
