"""gRPC connections of the driver, of two makes.

`GoChannel` writes what grpc-go (the kubelet's library) writes: its order of headers, its form of `grpc-timeout`, plain
read(2) and write(2), RST_STREAM(CANCEL) when a call is given up. It takes its stamps at the socket itself, so the time
that an answer then waits for a Python thread does not count. `CoreChannel` is grpcio: gRPC's C library.
"""

import contextlib
import os
import queue
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import grpc
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

MAX_RECEIVE_BYTES = 16 * 1024 * 1024
"""The kubelet's cri-client `maxMsgSize`; also the flow-control windows, so that no answer waits for credit."""

BUFFER_BYTES = 32 * 1024
"""What grpc-go reads or writes at once."""

_UNITS = (("n", 10**9), ("u", 10**6), ("m", 10**3), ("S", 1))
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(slots=True)
class Exchange:
    """One call: stamps in monotonic ns, how it `ended`, the answer's messages.

    Ends: ok; error (the server's status); cancelled, deadline (by this client); connection (lost meanwhile); unsent
    (there was none).
    """

    start: int = 0
    end: int = 0
    status: str = "UNKNOWN"
    ended: str = "error"
    details: str = ""
    messages: list[bytes] = field(default_factory=list)


class Channel(Protocol):
    """One connection. `deadline` and `cancel_after` in seconds; None: never."""

    def exchange(self, path: str, message: bytes, deadline: float | None, cancel_after: float | None) -> Exchange:
        """Make a call and wait for its end, whatever that is."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Stream:
    exchange: Exchange = field(default_factory=Exchange)
    headers: dict[str, str] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    over: threading.Event = field(default_factory=threading.Event)

    def begin(self, now: int) -> None:
        self.exchange.start = now

    def finish(self, now: int) -> None:
        if now:
            self.exchange.end = now
            self.over.set()


class GoChannel:
    """Calls may be made from any thread. One thread reads and one writes, as in grpc-go: a single one for both would
    stand still when neither side has room for what the other sends."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self.over = False
        """the connection has ended: calls are not sent any more"""
        self._lock = threading.Condition()  # holds what follows but the queue
        self._streams: dict[int, _Stream] = {}
        configuration = H2Configuration(client_side=True, header_encoding="utf-8", validate_inbound_headers=False)
        self._connection = H2Connection(configuration)
        self._outbox: queue.SimpleQueue[tuple[bytes, Callable[[int], None] | None]] = queue.SimpleQueue()
        self._connection.initiate_connection()
        self._connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: MAX_RECEIVE_BYTES})
        self._connection.increment_flow_control_window(MAX_RECEIVE_BYTES - 65535)
        self._flush()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, daemon=True).start()

    def exchange(self, path: str, message: bytes, deadline: float | None, cancel_after: float | None) -> Exchange:
        stream = _Stream()
        unsent = memoryview(b"\0" + struct.pack(">I", len(message)) + message)
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("user-agent", "criscope-rig"),
            ("te", "trailers"),
            ("grpc-accept-encoding", "gzip"),
        ]
        if deadline is not None:
            headers.append(("grpc-timeout", _timeout(deadline)))
        with self._lock:
            if self.over:
                return unsent_call("the connection has ended")
            number = self._connection.get_next_available_stream_id()
            self._streams[number] = stream
            self._connection.send_headers(number, headers)
            unsent = self._send(number, unsent)
            self._flush(stream.begin)
            while unsent and number in self._streams:
                self._lock.wait()  # for credit
                unsent = self._send(number, unsent)
                self._flush()
        waits = [(seconds, name) for seconds, name in ((deadline, "deadline"), (cancel_after, "cancelled")) if seconds]
        patience, ended = min(waits, default=(None, ""))
        if not stream.over.wait(patience):
            self._give_up(number, stream, ended)
        return stream.exchange

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the reader, which ends the writer

    def _send(self, number: int, unsent: memoryview) -> memoryview:
        """Hand over as much as there is credit for; the rest is the answer."""
        while unsent and number in self._streams:
            credit = self._connection.local_flow_control_window(number)
            size = min(len(unsent), credit, self._connection.max_outbound_frame_size)
            if size <= 0:
                break
            self._connection.send_data(number, bytes(unsent[:size]), end_stream=size == len(unsent))
            unsent = unsent[size:]
        return unsent

    def _flush(self, mark: Callable[[int], None] | None = None) -> None:
        """Give the writer what there is to send; it calls `mark` with the time at which it begins to send this, and
        again with 0 if the connection took none of it."""
        if data := self._connection.data_to_send():
            self._outbox.put((data, mark))

    def _give_up(self, number: int, stream: _Stream, ended: str) -> None:
        with self._lock:
            if self._streams.pop(number, None) is not None:
                stream.exchange.ended = ended
                stream.exchange.status = "DEADLINE_EXCEEDED" if ended == "deadline" else "CANCELLED"
                stream.exchange.details = "by this client"
                self._connection.reset_stream(number, ErrorCodes.CANCEL)
                self._flush(stream.finish)
            # else the answer came at this moment
        stream.over.wait()

    def _write(self) -> None:
        while True:
            data, mark = self._outbox.get()
            if not data:
                break
            if mark:
                mark(time.monotonic_ns())
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(self._socket.fileno(), left[:BUFFER_BYTES]) :]
            except OSError:  # the reader meets the end too, and tells it
                if mark and len(left) == len(data):
                    mark(0)
        self._socket.close()

    def _read(self) -> None:
        # ConnectionResetError: the server left unread what was sent. ProtocolError: more came after its GOAWAY.
        with contextlib.suppress(OSError, ProtocolError):
            while data := os.read(self._socket.fileno(), BUFFER_BYTES):
                now = time.monotonic_ns()
                with self._lock:
                    for event in self._connection.receive_data(data):
                        self._take(event, now)
                    self._flush()
                    self._lock.notify_all()
        now = time.monotonic_ns()
        with self._lock:
            self.over = True
            self._outbox.put((b"", None))  # the last: nothing is sent once it is over
        self.close()
        self._writer.join()  # so that it is known what was sent
        with self._lock:
            for number, stream in list(self._streams.items()):
                ended = "connection" if stream.exchange.start else "unsent"
                stream.exchange.start = stream.exchange.start or now
                self._end(number, now, "UNAVAILABLE", "the connection has ended", ended)
            self._lock.notify_all()

    def _take(self, event: object, now: int) -> None:
        stream = self._streams.get(getattr(event, "stream_id", 0))
        if isinstance(event, DataReceived):
            self._connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if stream is None:
            return
        if isinstance(event, DataReceived):
            stream.data += event.data
        elif isinstance(event, ResponseReceived | TrailersReceived):
            stream.headers |= dict(event.headers)
        elif isinstance(event, StreamEnded):
            status = _CODES[int(stream.headers.get("grpc-status", "2"))]
            self._end(event.stream_id, now, status, urllib.parse.unquote(stream.headers.get("grpc-message", "")))
        elif isinstance(event, StreamReset):
            self._end(event.stream_id, now, "INTERNAL", f"reset by the server: {event.error_code}")

    def _end(self, number: int, now: int, status: str, details: str, ended: str = "error") -> None:
        stream = self._streams.pop(number)
        stream.exchange.status, stream.exchange.details = status, details
        stream.exchange.ended = "ok" if status == "OK" else ended
        stream.exchange.messages = _messages(stream.data)
        stream.finish(now)


class CoreChannel:
    """grpcio. Its stamps stand around the call in Python."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.insecure_channel(
            f"unix://{path}",
            options=[("grpc.max_receive_message_length", MAX_RECEIVE_BYTES), ("grpc.use_local_subchannel_pool", 1)],
        )

    def exchange(self, path: str, message: bytes, deadline: float | None, cancel_after: float | None) -> Exchange:
        call = self._channel.unary_unary(path, None, None)
        exchange = Exchange(start=time.monotonic_ns())
        future = call.future(message, timeout=deadline)
        try:
            exchange.messages = [future.result(cancel_after)]
            exchange.status, exchange.ended = "OK", "ok"
        except grpc.FutureTimeoutError:
            future.cancel()
            exchange.status, exchange.ended = "CANCELLED", "cancelled"
        except grpc.RpcError as error:
            exchange.status, exchange.details = error.code().name, error.details() or ""
        exchange.end = time.monotonic_ns()
        return exchange

    def close(self) -> None:
        self._channel.close()


def unsent_call(details: str) -> Exchange:
    """A call for which there was no connection."""
    now = time.monotonic_ns()
    return Exchange(start=now, end=now, status="UNAVAILABLE", ended="unsent", details=details)


def _timeout(seconds: float) -> str:
    """grpc-go's `EncodeDuration`: the finest unit in which it has at most eight digits."""
    unit, factor = next((unit, factor) for unit, factor in _UNITS if round(seconds * factor) < 10**8)
    return f"{round(seconds * factor)}{unit}"


def _messages(data: bytearray) -> list[bytes]:
    found = []
    offset = 0
    while offset < len(data):
        size = struct.unpack_from(">I", data, offset + 1)[0]
        found.append(bytes(data[offset + 5 : offset + 5 + size]))
        offset += 5 + size
    return found
