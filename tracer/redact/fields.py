"""Header fields: values that may hold a secret are overwritten in the block itself, so that it decodes to as much text.

A string is plain or Huffman-coded (RFC 7541, section 5.2). "X" is eight bits in that code (Appendix B: 0xFC), so any
string of n bytes can become n of them.
"""

from hpack.hpack import decode_integer

from tracer.headers import Block, block_fragment
from tracer.http2 import END_HEADERS, HEADERS, Frame
from tracer.texts import redact

HUFFMAN_X = b"\xfc"
PLAIN_X = b"x"

_HARMLESS = frozenset({
    b":method", b":scheme", b":path", b":authority", b":status", b"content-type", b"user-agent", b"te", b"grpc-timeout",
    b"grpc-encoding", b"grpc-accept-encoding", b"grpc-status", b"traceparent", b"tracestate", b"containerd-namespace",
    b"content-length", b"date", b"accept-encoding", b"trailer",
})  # fmt: skip


def secret(name: bytes, value: bytes, *, command: bool) -> bool:
    """Whether the value of this field may hold a secret.

    An error's text does when `texts.redact` finds something in it, or when it may repeat a command line (`command`).
    """
    if name in _HARMLESS or name[:1] == b"\x00":
        return False  # a name that is an old entry's: its value decoded to what gRPC sends there, or it was refused
    if name == b"grpc-message":
        text = value.decode("ascii", "replace")
        return bool(value) and (command or redact(text) != text)
    return bool(value)


def covered(frame: Frame, block: Block, *, command: bool) -> bytes | None:
    """The frame's payload without secret values; None when it cannot be told where they stand in it."""
    if not any(secret(name, value, command=command) for name, value in block.fields):
        return frame.payload
    if frame.type != HEADERS or not frame.flags & END_HEADERS:
        return None
    fragment = block_fragment(frame)
    if fragment is None:
        return None
    begin = frame.payload.index(fragment)
    payload = bytearray(frame.payload)
    for (name, value), (start, end, huffman) in zip(block.fields, _values(fragment), strict=False):
        if start < end and secret(name, value, command=command):
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
