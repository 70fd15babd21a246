"""A message without its secrets: same length, same shape."""

import zlib
from dataclasses import dataclass

from tracer.redact import guess
from tracer.redact.cover import COVER
from tracer.redact.messages import MAX_MESSAGE
from tracer.redact.proof import proven
from tracer.redact.schema import Plan, plan_for
from tracer.redact.walk import Ranges, Walk
from tracer.streams import Way

MAX_MEMO_BYTES = 4 * 1024 * 1024
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
    """Overwrites the secrets of messages; remembers what it did, as most messages repeat."""

    def __init__(self) -> None:
        self.stats = ContentStats()
        self._walk = Walk()
        self._memo: dict[tuple[Plan | str, bytes], bytes] = {}
        self._memo_bytes = 0

    def clean(self, path: str | None, way: Way, body: bytes) -> bytes:
        """The message of a gRPC method (None: not known) with its secrets overwritten."""
        plan = plan_for(path, way)
        # Only a method whose name is not known may turn out to be one of the CRI's.
        return self.follow(plan, body) if plan is not None else self._unnamed(body, way if path is None else None)

    def follow(self, plan: Plan, body: bytes) -> bytes:
        """The message with what `plan` calls secret overwritten."""
        known = self._memo.get((plan, body))
        if known is not None:
            self.stats.memoised += 1
            return known
        self.stats.known += 1
        return self._remember(plan, body, self._walk.secrets(plan, body)[0])

    def _unnamed(self, body: bytes, provable: Way | None) -> bytes:
        kind = provable or "foreign"
        known = self._memo.get((kind, body))
        if known is not None:
            self.stats.memoised += 1
            return known
        for plan in proven(provable, body) if provable else ():
            found, strict = self._walk.secrets(plan, body)
            if strict:
                self.stats.proven += 1
                return self._remember(kind, body, found)
        self.stats.guessed += 1
        return self._remember(kind, body, guess.secrets(body, 0, len(body)))

    def guess(self, body: bytes) -> bytes:
        """A message of which nothing is known."""
        return self._unnamed(body, None)

    def _remember(self, kind: Plan | str, body: bytes, found: Ranges) -> bytes:
        clean = overwritten(body, found)
        size = len(body) + (0 if clean is body else len(body))
        if size <= MAX_MEMO_BYTES // 4:
            if self._memo_bytes + size > MAX_MEMO_BYTES:
                self._memo.clear()
                self._memo_bytes = 0
            self._memo[kind, body] = clean
            self._memo_bytes += size
        return clean

    def clean_packed(self, path: str | None, way: Way, body: bytes) -> bytes | None:
        """A gzipped message, overwritten and packed again to the same length; None when that cannot be done."""
        plain = _unpacked(body)
        packed = None if plain is None else _packed(self.clean(path, way, plain), len(body))
        if packed is None:
            self.stats.zeroed += 1
        return packed


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
