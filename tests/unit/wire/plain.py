"""A second opinion: decodes what one end of each connection sent and received, with hpack's own decoder and nothing of
the product. Knows only connections that are seen from their start, without losses."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hpack import Decoder

from tracer.records import Data, Record

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@dataclass
class PlainCall:
    path: str = ""
    timeout: str | None = None
    trace: str | None = None
    status: str | None = None
    message: str | None = None
    request: bytes = b""
    response: bytes = b""


@dataclass
class _Half:
    data: bytearray = field(default_factory=bytearray)
    decoder: Decoder = field(default_factory=Decoder)


def decode(records: Iterable[Record], side: str) -> dict[str, PlainCall]:
    """Calls by id, as this side saw them."""
    halves: dict[tuple[str, str], _Half] = defaultdict(_Half)
    for record in records:
        if isinstance(record, Data) and record.side == side:
            way = "request" if (side == "client") == (record.direction == "send") else "response"
            halves[record.connection, way].data += record.data
    calls: dict[str, PlainCall] = {}
    for connection in {connection for connection, _ in halves}:
        request = halves[connection, "request"]
        if not request.data.startswith(PREFACE):
            continue
        del request.data[: len(PREFACE)]
        for stream, fields, payload in _frames(request):
            call = calls.setdefault(f"{connection}-{stream}", PlainCall())
            call.path = fields.get(":path", call.path)
            call.timeout = fields.get("grpc-timeout", call.timeout)
            call.trace = fields.get("traceparent", call.trace)
            call.request += payload
        for stream, fields, payload in _frames(halves[connection, "response"]):
            call = calls.setdefault(f"{connection}-{stream}", PlainCall())
            call.status = fields.get("grpc-status", call.status)
            call.message = fields.get("grpc-message", call.message)
            call.response += payload
    return calls


def _frames(half: _Half) -> Iterator[tuple[int, dict[str, str], bytes]]:
    data, at = bytes(half.data), 0
    while at + 9 <= len(data):
        length, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
        stream = int.from_bytes(data[at + 5 : at + 9], "big")
        payload = data[at + 9 : at + 9 + length]
        at += 9 + length
        assert not flags & 0x28, "no peer of the CRI pads or sets priorities"
        if kind == 1:
            assert flags & 4, "no peer of the CRI needs CONTINUATION"
            yield stream, dict(half.decoder.decode(payload)), b""
        elif kind == 0:
            yield stream, {}, payload
