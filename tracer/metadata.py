"""What gRPC's header blocks say (PROTOCOL-HTTP2.md of gRPC): of a request, of an answer, and of its end."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from tracer.headers import Block, Old
from tracer.table import UNKNOWN

STATUS = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""Names of the status codes, by number (statuscodes.md of gRPC)."""

_STATUS = {b"%d" % code: name for code, name in enumerate(STATUS)}

_BEFORE_STATUS = frozenset({b"", b"content-type"})  # of trailers, and of trailers that are the whole answer

_METHOD = (b":method", b"POST")
_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_UNIT_NS = {b"H": 3_600_000_000_000, b"M": 60_000_000_000, b"S": 10**9, b"m": 10**6, b"u": 10**3, b"n": 1}
_METHOD_PATH = re.compile(rb"/[A-Za-z_]\w*(?:\.\w+)+/[A-Za-z_]\w*")
# W3C Trace Context, section 3.2.2: version ff and ids of nothing but zeros are invalid.
_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}.*", re.DOTALL
)

_PSEUDO = 4
"""A request has so many fields that begin with a colon, and they come first (RFC 9113, section 8.3)."""


@dataclass(slots=True)
class RequestHead:
    """`path` is None when it is only an older entry, `old_path` which one: in grpc-go's order, the third field.

    `hidden_deadline`: a field that is only an older entry may be grpc-timeout, so "no deadline" is not certain.
    """

    path: str | None = None
    old_path: Old | None = None
    deadline_ns: int | None = None
    hidden_deadline: bool = False
    trace: str | None = None
    span: str | None = None
    encoding: str = ""


@dataclass(slots=True)
class ResponseHead:
    """`status` counts only in the block that ends the stream."""

    status: str | None = None
    error: str | None = None
    encoding: str = ""


def request_head(block: Block) -> RequestHead | None:
    """None when the block is not a gRPC request's, which is always a POST."""
    head = block.meaning
    if not isinstance(head, RequestHead):
        if _METHOD not in block.fields:
            return None
        head = block.meaning = _read_request(block)
    return head


def response_head(block: Block) -> ResponseHead:
    head = block.meaning
    if not isinstance(head, ResponseHead):
        head = block.meaning = _read_response(block)
    return head


def _read_request(block: Block) -> RequestHead:
    head = RequestHead()
    timed = False
    for position, (name, value) in enumerate(block.fields):
        # Of some fields with an older entry's name the value's form leaves no doubt which they are.
        nameless = name[:1] == UNKNOWN
        if name == b":path" or (nameless and position < _PSEUDO and _METHOD_PATH.fullmatch(value)):
            if value[:1] == b"/":
                head.path = _text(value)
        elif name == b"grpc-timeout" or (nameless and _TIMEOUT.fullmatch(value)):
            match = _TIMEOUT.fullmatch(value)
            timed = True
            if match:
                head.deadline_ns = int(match[1]) * _UNIT_NS[match[2]]
        elif name == b"traceparent" or nameless:
            match = _TRACEPARENT.fullmatch(value)
            if match:
                head.trace, head.span = _text(match[1]), _text(match[2])
        elif name == b"grpc-encoding" and value[:1] != UNKNOWN:
            head.encoding = _text(value)
    for position, old in block.old:
        if position == 2 and head.path is None and {name for name, _ in block.fields[:2]} == {b":method", b":scheme"}:
            head.old_path = old
        elif not timed:
            head.hidden_deadline = True
    return head


def _read_response(block: Block) -> ResponseHead:
    head = ResponseHead()
    before = b""  # the field before; grpc-go writes grpc-status before all of its own, and grpc-message next
    alone = _alone(block)
    for position, (name, value) in enumerate(block.fields):
        nameless = name[:1] == UNKNOWN
        if alone and nameless and position >= 2:
            before = b"content-type" if position == 2 else b"grpc-status"
        if name == b"grpc-status" or (nameless and before in _BEFORE_STATUS and value in _STATUS):
            head.status = _STATUS.get(value)
            before = b"grpc-status"
            continue
        if name == b"grpc-message" or (nameless and before == b"grpc-status"):
            if value[:1] != UNKNOWN:
                head.error = unquote(_text(value), errors="replace") or None
        elif name == b"grpc-encoding" and value[:1] != UNKNOWN:
            head.encoding = _text(value)
        before = name
    return head


def _alone(block: Block) -> bool:
    """Whether it has the form of an error without a message before it, of which the names are older entries.

    grpc-go (`http2_server.go:writeStatus`) writes :status, content-type, grpc-status, grpc-message, in this order.
    """
    fields = block.fields
    return (
        3 <= len(fields) <= 4
        and fields[0][0] == b":status"
        and (fields[1][0] == b"content-type" or fields[1][0][:1] == UNKNOWN)
        and all(name[:1] == UNKNOWN for name, _ in fields[2:])
    )


def _text(value: bytes) -> str:
    return value.decode("ascii", "replace")
