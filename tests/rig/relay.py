"""HTTP/2 from a client to a runtime and back, call by call: what a proxy does between its two sockets.

Each client connection gets a connection of its own to the runtime, and the end of one ends the other. Headers
(deadlines among them), messages, statuses and cancellations go across as they came. A request goes on once it is whole:
no method of the CRI streams its request.
"""

import asyncio
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

WINDOW_BYTES = 1 << 24
"""Flow control of both sides: gRPC's usual largest message, so that the proxy adds no waiting for credit."""

MAX_STREAMS = 1 << 20
"""More than a client has open when everything hangs."""

_UNESCAPED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""gRPC over HTTP/2, Responses: `Percent-Byte-Unencoded`."""

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Call:
    """One call on its way. `stream` is the client's number, `onward` the runtime's once it was passed on."""

    stream: int
    headers: Headers
    request: bytearray = field(default_factory=bytearray)
    answer: bytearray = field(default_factory=bytearray)
    onward: int | None = None
    held: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        return dict(self.headers)[b":path"].decode()


class Relay:
    """One client's connection. `handle` is given each call whose request is whole, and does one of the four below."""

    def __init__(
        self,
        runtime: Path,
        handle: Callable[["Relay", Call], Awaitable[None] | None],
        answered: Callable[[Call], None],
    ) -> None:
        self._runtime = runtime
        self._handle = handle
        self._answered = answered
        self._calls: dict[int, Call] = {}
        self._onward: dict[int, Call] = {}
        self._connecting: asyncio.Future[None] | None = None  # held, or it may be collected while it runs
        self.client = _Side(self._from_client, self._connect, self._ended, client_side=False)
        self._server = _Side(self._from_runtime, lambda: None, self._ended, client_side=True)

    def pass_on(self, call: Call) -> None:
        call.onward = self._server.connection.get_next_available_stream_id()
        self._onward[call.onward] = call
        self._server.send(call.onward, call.headers, end=False)
        self._server.send(call.onward, bytes(call.request), end=True)

    def answer(self, call: Call, code: int, message: str) -> None:
        """End the call with a status of the proxy's own, in one block of trailers (gRPC's `Trailers-Only`)."""
        del self._calls[call.stream]
        headers = [
            (b":status", b"200"),
            (b"content-type", b"application/grpc"),
            (b"grpc-status", b"%d" % code),
            (b"grpc-message", urllib.parse.quote(message, safe=_UNESCAPED).encode()),
        ]
        self.client.send(call.stream, headers, end=True)

    def reset(self, call: Call) -> None:
        """End the call's stream without an answer."""
        del self._calls[call.stream]
        self.client.reset(call.stream, ErrorCodes.INTERNAL_ERROR)

    def sever(self) -> None:
        """End the client's connection with everything on it."""
        self.client.close()

    def _connect(self) -> None:
        async def connect() -> None:
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda: self._server, str(self._runtime))
            except OSError:
                self._ended()

        self._connecting = asyncio.ensure_future(connect())

    def _ended(self) -> None:
        for call in self._calls.values():
            if call.held is not None:
                call.held.cancel()
        self._calls.clear()
        self.client.close()
        self._server.close()

    def _from_client(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._calls[event.stream_id] = Call(event.stream_id, list(event.headers))
            return
        call = self._calls.get(getattr(event, "stream_id", 0))
        if call is None:
            return
        if isinstance(event, DataReceived):
            call.request += event.data
        elif isinstance(event, StreamEnded):
            waiting = self._handle(self, call)
            if waiting is not None:
                call.held = asyncio.ensure_future(waiting)
        elif isinstance(event, StreamReset):
            del self._calls[call.stream]
            if call.onward is not None:
                del self._onward[call.onward]
                self._server.reset(call.onward, event.error_code)
            elif call.held is not None:
                call.held.cancel()

    def _from_runtime(self, event: Event) -> None:
        call = self._onward.get(getattr(event, "stream_id", 0))
        if call is None:
            return
        ended = getattr(event, "stream_ended", None) is not None
        if isinstance(event, ResponseReceived | TrailersReceived):
            self.client.send(call.stream, list(event.headers), end=ended)
        elif isinstance(event, DataReceived):
            call.answer += event.data
            self.client.send(call.stream, event.data, end=ended)
        elif isinstance(event, StreamReset):
            self.client.reset(call.stream, event.error_code)
            ended = True
        if ended:
            self._answered(call)
            del self._onward[event.stream_id], self._calls[call.stream]


class _Side(asyncio.Protocol):
    """One of the two connections: events in, frames out as far as there is credit."""

    def __init__(
        self,
        take: Callable[[Event], None],
        made: Callable[[], None],
        lost: Callable[[], None],
        *,
        client_side: bool,
    ) -> None:
        # Headers are passed on as they are, whatever they are.
        configuration = H2Configuration(
            client_side=client_side,
            header_encoding=None,
            validate_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_inbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.connection = H2Connection(configuration)
        self._take = take
        self._made = made
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._unsent: dict[int, deque[tuple[Headers | bytes, bool]]] = {}
        self.connection.initiate_connection()
        settings = {SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES, SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS}
        if client_side:
            del settings[SettingCodes.MAX_CONCURRENT_STREAMS]
        self.connection.update_settings(settings)
        self.connection.increment_flow_control_window(WINDOW_BYTES - 65535)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._made()
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self.connection.receive_data(data):
                if isinstance(event, DataReceived):
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamReset):
                    self._unsent.pop(event.stream_id, None)
                self._take(event)
            self._pump()
        except ProtocolError:
            self._lost()

    def connection_lost(self, _: Exception | None) -> None:
        self._lost()

    def send(self, stream: int, part: Headers | bytes, *, end: bool) -> None:
        self._unsent.setdefault(stream, deque()).append((part, end))
        self._pump()

    def reset(self, stream: int, code: ErrorCodes | int) -> None:
        self._unsent.pop(stream, None)
        self.connection.reset_stream(stream, code)
        self._flush()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _pump(self) -> None:
        for stream, parts in list(self._unsent.items()):
            while parts and self._send(stream, parts):
                pass
            if not parts:
                del self._unsent[stream]
        self._flush()

    def _send(self, stream: int, parts: deque[tuple[Headers | bytes, bool]]) -> bool:
        """The next part or a piece of it; whether there was credit."""
        part, end = parts.popleft()
        if isinstance(part, list):
            self.connection.send_headers(stream, part, end_stream=end)
            return True
        credit = min(self.connection.local_flow_control_window(stream), self.connection.max_outbound_frame_size)
        piece, rest = part[: max(credit, 0)], part[max(credit, 0) :]
        if piece or not rest:
            self.connection.send_data(stream, piece, end_stream=end and not rest)
        if rest:
            parts.appendleft((rest, end))
        return bool(piece) or not rest

    def _flush(self) -> None:
        if self._transport is not None and (data := self.connection.data_to_send()):
            self._transport.write(data)
