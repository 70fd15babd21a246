"""Decides what may be seen of a ttrpc connection: containerd and its shims (ttrpc's PROTOCOL.md).

A message is ten bytes of head (length, stream, type, flags) and a body; there is no handshake, and a peer that writes
a message begins a write with it, so any write can be where a late start or a gap ends.
"""

from collections import deque
from functools import partial

from tracer.protowire import LENGTH, VARINT
from tracer.redact.content import Contents
from tracer.redact.cover import COVER, Cover
from tracer.redact.messages import Messages
from tracer.redact.schema import Plan, Rule
from tracer.streams import Chunk, Gap, Way
from tracer.ttrpc import FLAGS, HEAD, MAX_BODY, REQUEST, RESPONSE, TYPES

MAX_HEADS = 64
"""Heads remembered of each direction; a reader is rarely so many messages behind."""

_STATUS = Plan("Status", {1 << 3 | VARINT: Rule.KEEP, 2 << 3 | LENGTH: Rule.OVERWRITE})
_METADATA = Plan("KeyValue", {1 << 3 | LENGTH: Rule.KEEP, 2 << 3 | LENGTH: Rule.OVERWRITE})
_BODIES = {
    REQUEST: Plan(
        "Request",
        {
            1 << 3 | LENGTH: Rule.KEEP,  # service
            2 << 3 | LENGTH: Rule.KEEP,  # method
            3 << 3 | LENGTH: Rule.GUESS,  # payload
            4 << 3 | VARINT: Rule.KEEP,  # timeout
            5 << 3 | LENGTH: _METADATA,
        },
    ),
    RESPONSE: Plan("Response", {1 << 3 | LENGTH: _STATUS, 2 << 3 | LENGTH: Rule.GUESS}),
}


class Ttrpc:
    """Both directions of a connection."""

    def __init__(self, contents: Contents, covers: dict[Way, Cover]) -> None:
        self.covers = covers
        self._contents = contents
        self._messages = {way: self._begin(way) for way in TYPES}
        self._heads: dict[Way, deque[bytes]] = {way: deque(maxlen=MAX_HEADS) for way in TYPES}

    def _begin(self, way: Way) -> Messages:
        return Messages(HEAD, partial(_length, way), partial(self._clean, way))

    def read(self, way: Way, data: bytes) -> bytes:
        """What may be seen of a read: the head it begins with, if it was sent lately, by which a reader is placed."""
        head = data[:HEAD]
        return head + COVER * (len(data) - HEAD) if head in self._heads[way] else b""

    def feed(self, item: Chunk | Gap) -> None:
        way, cover = item.way, self.covers[item.way]
        if isinstance(item, Gap):
            self._messages[way].gap(item.length, cover)
        else:
            if self._messages[way].broken:
                self._messages[way] = self._begin(way)
            self._messages[way].feed(item.offset, item.data, cover)
        first = self._messages[way].first
        cover.decided = max(cover.decided, cover.end if first is None else first)

    def give_up(self, way: Way) -> None:
        cover = self.covers[way]
        self._messages[way].give_up(cover)
        cover.decided = cover.end

    def _clean(self, way: Way, head: bytes, body: bytes) -> bytes:
        self._heads[way].append(head)
        plan = _BODIES.get(head[8])
        return head + (self._contents.guess(body) if plan is None else self._contents.follow(plan, body))


def _length(way: Way, head: bytes) -> int | None:
    length = int.from_bytes(head[:4], "big")
    stream = int.from_bytes(head[4:8], "big")
    believed = length <= MAX_BODY and stream and head[8] in TYPES[way] and not head[9] & ~FLAGS
    return length if believed else None
