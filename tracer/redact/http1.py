"""HTTP/1.1 (cAdvisor asks CRI-O so, on the socket of the CRI): start line and names of headers, nothing else."""

import re

from tracer.redact.content import overwritten

_START = re.compile(
    rb"(?:(?:GET|HEAD|POST|PUT|DELETE|OPTIONS) (?:/[a-z]{1,32}(?:/[0-9a-f]{64})?(?= ))?|HTTP/1\.[01] [1-5]\d\d(?= |\r))"
)
_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,63}: ?")
_LINE_END = b"\r\n"


def clean(data: bytes) -> bytes | None:
    """Bytes of one write with all but the shape of a message's head overwritten; None when no message begins there."""
    if not _START.match(data):
        return None
    hidden: list[tuple[int, int]] = []
    at, pattern = 0, _START
    while True:
        end = data.find(_LINE_END, at)
        if end in (-1, at):
            # The head is over (an empty line) or cut: the rest is body.
            hidden.append((at if end < 0 else at + 2, len(data)))
            break
        match = pattern.match(data, at, end)
        hidden.append((match.end() if match else at, end))
        at, pattern = end + 2, _NAME
    return overwritten(data, hidden)
