"""Which bytes of a message whose schema is known are secret: a walk over its wire bytes, guided by a plan."""

from tracer.redact import guess
from tracer.redact.schema import KNOWN_ANNOTATIONS, Plan, Rule
from tracer.redact.wire import LENGTH, Malformed, fields

Ranges = list[tuple[int, int]]
"""Half-open ranges of bytes to overwrite, ascending."""

MAX_DEPTH = 32
"""Messages in messages; the CRI's deepest has six."""

_KEY, _VALUE = 1 << 3 | LENGTH, 2 << 3 | LENGTH  # fields of a map's entry


def secrets(plan: Plan, data: bytes) -> tuple[Ranges, bool]:
    """Ranges to overwrite; whether the message is strictly one of the plan's (nothing unknown in it)."""
    found: Ranges = []
    strict = _message(plan, data, 0, len(data), found, 0)
    return found, strict


def _message(plan: Plan, data: bytes, at: int, end: int, found: Ranges, depth: int) -> bool:
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
                if depth == MAX_DEPTH:
                    found.append((begin, until))
                elif not _message(rule, data, begin, until, found, depth + 1):
                    strict = False
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
    keep = bool(keys) and all(key in known for key in keys)
    for tag, begin, until in members:
        if begin < until and not (tag == _KEY or (tag == _VALUE and keep)):
            found.append((begin, until))
