"""Which bytes of a message whose schema is known are secret: a walk over its wire bytes, guided by a plan."""

from tracer.protowire import LENGTH, VARINT, Malformed, fields
from tracer.redact import guess
from tracer.redact.schema import KNOWN_ANNOTATIONS, Plan, Rule

Ranges = list[tuple[int, int]]
"""Half-open ranges of bytes to overwrite, ascending."""

MAX_DEPTH = 32
"""Messages in messages; the CRI's deepest has six."""

MAX_ITEM_BYTES = 1 * 1024 * 1024
"""Bytes of remembered items: a few thousand containers and sandboxes."""

MAX_ITEM = 16 * 1024
"""Bytes of the largest item remembered."""

_KEY, _VALUE = 1 << 3 | LENGTH, 2 << 3 | LENGTH  # fields of a map's entry


class Walk:
    """Finds secrets; remembers the items of lists, of which from one list to the next few change."""

    def __init__(self) -> None:
        self._items: dict[tuple[Plan, bytes], tuple[Ranges, bool]] = {}
        self._item_bytes = 0

    def secrets(self, plan: Plan, data: bytes) -> tuple[Ranges, bool]:
        """Ranges to overwrite; whether the message is strictly one of the plan's (nothing unknown in it)."""
        found: Ranges = []
        strict = self._message(plan, data, 0, len(data), found, 0)
        return found, strict

    def _item(self, plan: Plan, data: bytes, begin: int, until: int, found: Ranges) -> bool:
        """A message in the outermost one."""
        key = (plan, data[begin:until])
        known = self._items.get(key)
        if known is None:
            ranges: Ranges = []
            known = ranges, self._message(plan, key[1], 0, until - begin, ranges, 1)
            if until - begin <= MAX_ITEM:
                self._remember(key, known)
        found += [(begin + start, begin + end) for start, end in known[0]]
        return known[1]

    def _remember(self, key: tuple[Plan, bytes], known: tuple[Ranges, bool]) -> None:
        size = len(key[1])
        if self._item_bytes + size > MAX_ITEM_BYTES:
            self._items.clear()
            self._item_bytes = 0
        self._items[key] = known
        self._item_bytes += size

    def _message(self, plan: Plan, data: bytes, at: int, end: int, found: Ranges, depth: int) -> bool:
        strict = True
        rules = plan.rules
        try:
            for tag, begin, until in fields(data, at, end):
                rule = rules.get(tag)
                if rule is Rule.KEEP or begin == until:
                    continue
                if rule is None:
                    # A field newer than our schema, or of another type than it should have.
                    strict = False
                    if tag & 7 == LENGTH:
                        found.append((begin, until))
                elif isinstance(rule, Plan):
                    if depth == 0:
                        strict &= self._item(rule, data, begin, until, found)
                    elif depth < MAX_DEPTH:
                        strict &= self._message(rule, data, begin, until, found, depth + 1)
                    else:
                        found.append((begin, until))
                elif rule is Rule.OVERWRITE:
                    found.append((begin, until))
                elif rule is Rule.GUESS:
                    found += guess.secrets(data, begin, until)
                else:
                    _entry(data, begin, until, KNOWN_ANNOTATIONS if rule is Rule.ANNOTATIONS else frozenset(), found)
        except Malformed as malformed:
            found.append((malformed.at, end))
            return False
        return strict


def _entry(data: bytes, at: int, end: int, known: frozenset[bytes], found: Ranges) -> None:
    """An entry of a map<string, string>: the value goes unless its key is known, and anything odd goes too."""
    try:
        members = list(fields(data, at, end))
    except Malformed:
        found.append((at, end))
        return
    keys = [data[begin:until] for tag, begin, until in members if tag == _KEY]
    keep = bool(keys) and known.issuperset(keys)
    for tag, begin, until in members:
        # A number stays: covered it would end elsewhere.
        if begin < until and tag & 7 != VARINT and not (tag == _KEY or (tag == _VALUE and keep)):
            found.append((begin, until))
