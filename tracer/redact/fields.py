"""Header fields: values that may hold a secret are overwritten in the block itself, so that it decodes to as much text.

A string is plain or Huffman-coded (RFC 7541, section 5.2). "X" is eight bits in that code (Appendix B: 0xFC), so any
string of n bytes can become n of them.
"""

import re
from urllib.parse import unquote

from hpack.hpack import decode_integer

from tracer.headers import Block, block_fragment
from tracer.heads import END_HEADERS, HEADERS, PADDED, PRIORITY_FLAG
from tracer.http2 import Frame
from tracer.table import UNKNOWN, Field
from tracer.texts import redact

HUFFMAN_X = b"\xfc"
PLAIN_X = b"x"

_HARMLESS = frozenset({
    b":method", b":scheme", b":path", b":authority", b":status", b"content-type", b"user-agent", b"te", b"grpc-timeout",
    b"grpc-encoding", b"grpc-accept-encoding", b"grpc-status", b"traceparent", b"tracestate", b"containerd-namespace",
    b"content-length", b"date", b"accept-encoding", b"trailer",
})  # fmt: skip


_STATUS = re.compile(rb"\d{1,2}")
_PLAIN_FORMS = re.compile(
    rb"\d{1,8}[HMSmun]|\d{1,2}|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
    rb"|/[A-Za-z_]\w*(?:\.\w+)+/[A-Za-z_]\w*|(?:trailers|gzip|identity|application/grpc)"
)
"""Values that are no secret in any field: a timeout, a status, a traceparent, a method's path, words of gRPC."""


def secret(name: bytes, value: bytes, before: Field, *, answer: bool, command: bool) -> bool:
    """Whether the value of this field may hold a secret; `before` is the field before it.

    An error's text does when `texts.redact` finds something in it, or when it may repeat a command line (`command`).
    """
    if not value or value[:1] == UNKNOWN or name in _HARMLESS:
        return False
    nameless = name[:1] == UNKNOWN  # the name is an older entry's
    if nameless and _PLAIN_FORMS.fullmatch(value):
        return False
    # grpc-go writes grpc-message behind grpc-status (as `metadata.response_head` reads it).
    follows = before[0] == b"grpc-status" or (before[0][:1] == UNKNOWN and _STATUS.fullmatch(before[1]))
    if name == b"grpc-message" or (nameless and answer and follows):
        text = unquote(value.decode("ascii", "replace"), errors="replace")
        return command or redact(text) != text
    return True


def covered(frame: Frame, block: Block, *, answer: bool, command: bool) -> bytes | None:
    """The frame's payload without secret values; None when it cannot be told where they stand in it."""
    befores = [(b"", b""), *block.fields]
    secrets = [
        secret(name, value, before, answer=answer, command=command)
        for (name, value), before in zip(block.fields, befores, strict=False)
    ]
    if not any(secrets):
        return frame.payload
    if frame.type != HEADERS or not frame.flags & END_HEADERS:
        return None
    fragment = block_fragment(frame)
    if fragment is None:
        return None
    begin = bool(frame.flags & PADDED) + (5 if frame.flags & PRIORITY_FLAG else 0)
    payload = bytearray(frame.payload)
    for hidden, (start, end, huffman) in zip(secrets, _values(fragment), strict=False):
        if hidden:
            payload[begin + start : begin + end] = (HUFFMAN_X if huffman else PLAIN_X) * (end - start)
    return bytes(payload)


def _values(fragment: bytes) -> list[tuple[int, int, bool]]:
    """Of each field in wire order: where its value stands and whether it is Huffman-coded; (0, 0, False) if indexed."""
    found = []
    at = 0
    while at < len(fragment):
        byte = fragment[at]
        if byte & 0x80:
            at += decode_integer(fragment[at:], 7)[1]
            found.append((0, 0, False))
            continue
        if byte & 0xE0 == 0x20:
            at += decode_integer(fragment[at:], 5)[1]
            continue
        index, used = decode_integer(fragment[at:], 6 if byte & 0x40 else 4)
        at += used
        if not index:
            length, used = decode_integer(fragment[at:], 7)
            at += used + length
        huffman = bool(fragment[at] & 0x80)
        length, used = decode_integer(fragment[at:], 7)
        at += used
        found.append((at, at + length, huffman))
        at += length
    return found
