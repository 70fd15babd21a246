"""Heads of HTTP/2 frames (RFC 9113, section 4.1), and which nine bytes can be one that a gRPC peer sends."""

import re
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (RFC 9113, section 3.4)."""

FRAME_HEADER = 9
"""Bytes of a frame's head."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9

END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FLAG = 0x1, 0x1, 0x4, 0x8, 0x20

MAX_LENGTH_UNCERTAIN = 16384
"""A longer frame is not believed where frames' starts are not certain: it is what a peer may send that was not asked
for more (RFC 9113, section 6.5.2), and grpc-go neither asks for nor sends more."""

HEAD = Struct(">IBI").unpack_from
"""(length << 8 | type, flags, reserved bit and stream) of the head at an offset."""

CANDIDATE = re.compile(
    rb"(?=\x00[\x00-\x40].[\x00-\x04\x06-\x09][\x00\x01\x04\x05\x08\x09\x0c\x0d\x20-\x2d][\x00-\x7f]...)", re.DOTALL
)
"""Finds, overlapping, where a head can be: a coarse form of `plausible`, at the speed of C."""

_FLAGS = {
    DATA: END_STREAM | PADDED,
    HEADERS: END_STREAM | END_HEADERS | PADDED | PRIORITY_FLAG,
    PRIORITY: 0,
    RST_STREAM: 0,
    SETTINGS: ACK,
    PING: ACK,
    GOAWAY: 0,
    WINDOW_UPDATE: 0,
    CONTINUATION: END_HEADERS,
}
"""PUSH_PROMISE lacks: gRPC clients disable push."""

FIXED = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
"""Lengths of frames that have only one."""


def believable(length: int, kind: int, flags: int, stream: int) -> bool:
    """Whether a gRPC peer sends a frame of this head; `stream` with the reserved bit, which nobody sets."""
    allowed = _FLAGS.get(kind)
    if allowed is None or flags & ~allowed or stream >> 31 or length > MAX_LENGTH_UNCERTAIN:
        return False
    if kind <= HEADERS or kind == CONTINUATION:
        if not stream & 1:
            return False  # streams of clients are odd (RFC 9113, section 5.1.1)
        if kind == DATA:
            return length > 0 or flags & END_STREAM != 0  # without a byte it only ends the stream
        return length > 0 or kind == CONTINUATION or not flags & END_HEADERS  # a whole block has at least one byte
    if kind in FIXED:
        whole = kind == PING or (kind == WINDOW_UPDATE and stream == 0)  # of the connection, not of a stream
        return length == FIXED[kind] and (stream == 0 if whole else bool(stream & 1))
    if kind == SETTINGS:
        return stream == 0 and length % 6 == 0 and (not flags & ACK or length == 0)
    return stream == 0 and length >= 8  # GOAWAY


def plausible(buffer: bytes | bytearray, at: int) -> bool:
    """Whether the nine bytes at `at` can be the head of a frame that a gRPC peer sends."""
    word, flags, stream = HEAD(buffer, at)
    return believable(word >> 8, word & 0xFF, flags, stream)
