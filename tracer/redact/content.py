"""A message without its secrets: same length, same shape."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from tracer.redact import guess
from tracer.redact.cover import COVER
from tracer.redact.messages import MAX_MESSAGE
from tracer.redact.order import LISTS, ordered
from tracer.redact.proof import proven
from tracer.redact.schema import Plan, plan_for
from tracer.redact.walk import Ranges, Walk
from tracer.streams import Way

MAX_MEMO_BYTES = 2 * 1024 * 1024
"""Messages remembered with their overwritten copy: a quiet node's lists, which are the same each second."""

GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_FLAGS = 3  # offset of FLG (RFC 1952, section 2.3)
_GZIP_HEADER = 10
_FCOMMENT = 0x10


@dataclass(slots=True)
class ContentStats:
    """Messages: `known` by their method, `proven` by their content, `guessed`; `zeroed`: packed, past repacking."""

    known: int = 0
    proven: int = 0
    guessed: int = 0
    zeroed: int = 0
    memoised: int = 0


class Contents:
    """Overwrites the secrets of messages; remembers what it did, as most messages repeat.

    `orderly`: lists come out in one order (`order.py`).
    """

    def __init__(self, *, orderly: bool = False) -> None:
        self._orderly = orderly
        self.stats = ContentStats()
        self._walk = Walk()
        self._memo: dict[tuple[Plan | str, bytes], _Known] = {}
        self._memo_bytes = 0

    def clean(self, path: str, way: Way, body: bytes) -> bytes:
        """The message of a gRPC method with its secrets overwritten."""
        plan = plan_for(path, way)
        return self.guess(body) if plan is None else self.follow(plan, body)

    def follow(self, plan: Plan, body: bytes) -> bytes:
        """The message with what `plan` calls secret overwritten."""
        return self._followed(plan, body)[0]

    def strictly(self, plan: Plan, body: bytes) -> bytes | None:
        """The same; None when not everything in the message is of the plan."""
        clean, strict = self._followed(plan, body)
        return clean if strict else None

    def guess(self, body: bytes) -> bytes:
        """A message of which nothing is known."""
        known = self._memo.get(("", body))
        if known is None:
            known = self._remember("", body, self._guessed(body))
        else:
            self.stats.memoised += 1
        return known[0]

    def _guessed(self, body: bytes) -> "_Known":
        self.stats.guessed += 1
        return overwritten(body, guess.secrets(body, 0, len(body))), None

    def prove(self, way: Way, body: bytes) -> tuple[bytes, Plan | None]:
        """A message of a method that is not known, and its plan if it proves it (and proves no other)."""
        known = self._memo.get((way, body))
        if known is None and self._orderly and way == "response":
            known = self._proven_in_order(body)
        if known is None:
            known = self._remember(way, body, self._proven(way, body) or self._guessed(body))
        else:
            self.stats.memoised += 1
        return known

    def _proven_in_order(self, body: bytes) -> "_Known | None":
        """A list that is proven once it is in order, and was then."""
        for plan in LISTS:
            same = ordered(plan, body)
            known = self._memo.get(("response", same))
            if known is None and same is not body:
                found = self._proven("response", same)
                known = found if found is None else self._remember("response", same, found)
            if known is not None and known[1] is plan:
                return known
        return None

    def _proven(self, way: Way, body: bytes) -> "_Known | None":
        found: _Known | None = None
        for plan in proven(way, body):
            ranges, strict = self._walk.secrets(plan, body)
            if strict:
                found = overwritten(body, ranges), plan if found is None else None
        self.stats.proven += found is not None
        return found

    def _followed(self, plan: Plan, body: bytes) -> "_Known":
        if self._orderly:
            body = ordered(plan, body)
        known = self._memo.get((plan, body))
        if known is None:
            self.stats.known += 1
            found, strict = self._walk.secrets(plan, body)
            known = self._remember(plan, body, (overwritten(body, found), plan if strict else None))
        else:
            self.stats.memoised += 1
        return known

    def _remember(self, kind: Plan | str, body: bytes, known: "_Known") -> "_Known":
        size = len(body) + (0 if known[0] is body else len(body))
        if size <= MAX_MEMO_BYTES // 4:
            if self._memo_bytes + size > MAX_MEMO_BYTES:
                self._memo.clear()
                self._memo_bytes = 0
            self._memo[kind, body] = known
            self._memo_bytes += size
        return known

    def repacked(self, body: bytes, clean: Callable[[bytes], bytes]) -> bytes | None:
        """A gzipped message, overwritten and packed again to the same length; None when that cannot be done."""
        plain = _unpacked(body)
        packed = None if plain is None else _packed(clean(plain), len(body))
        if packed is None:
            self.stats.zeroed += 1
        return packed


_Known = tuple[bytes, Plan | None]
"""A message's overwritten copy, and the plan that it strictly follows."""


def overwritten(data: bytes, found: Ranges) -> bytes:
    """The bytes with the ranges covered: text stays text."""
    if not found:
        return data
    out = bytearray(data)
    for begin, end in found:
        out[begin:end] = COVER * (end - begin)
    return bytes(out)


def _unpacked(body: bytes) -> bytes | None:
    if not body.startswith(GZIP_MAGIC):
        return None
    engine = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        plain = engine.decompress(body, MAX_MESSAGE)
    except zlib.error:
        return None
    return plain if engine.eof and not engine.unused_data else None


def _packed(plain: bytes, length: int) -> bytes | None:
    """Gzipped to exactly `length` bytes: a comment in the header (RFC 1952, section 2.3.1) fills what is left."""
    engine = zlib.compressobj(zlib.Z_BEST_COMPRESSION, zlib.DEFLATED, zlib.MAX_WBITS | 16, zlib.DEF_MEM_LEVEL)
    packed = engine.compress(plain) + engine.flush()
    spare = length - len(packed)
    if spare == 0:
        return packed
    if spare < 0:
        return None
    header = bytearray(packed[:_GZIP_HEADER])
    header[_GZIP_FLAGS] |= _FCOMMENT
    return bytes(header) + COVER * (spare - 1) + b"\x00" + packed[_GZIP_HEADER:]
