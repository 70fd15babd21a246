"""Groups: rows that make one tree of spans, held until they are whole, then kept or let go (tail sampling).

A relist or a sync pass with its calls and their steps is a group; so is a call of none of them, with its steps.
Their rows come one by one: steps and calls before what they belong to.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from tracer.outputs.otlp.spans import failed, trace_id
from tracer.outputs.recent import Recent
from tracer.rows import Row

HOLD_NS = 2_000_000_000
"""A group is decided so long after its end: names, joins and steps come later, of nearly all within a second."""

WAIT_NS = 600_000_000_000
"""A call waits so long for a relist or pass of which nothing was shown; then it is a group of its own."""

SWEEP_NS = 60_000_000_000
"""How often those are looked for."""

SLOW_NS = 1_000_000_000
"""What lasts longer is kept: a healthy relist takes milliseconds, and a second is the time between two."""

MAX_HELD = 4096
"""Rows held at most, 2 kB each: ten seconds of a storm of 300 changing pods. Beyond it the oldest is decided early."""

PARENTS = frozenset({"relist", "pod_relist", "sync", "terminate", "lifecycle_hook"})
"""Activities whose id is a relist's or a sync pass'."""

_RANDOM = 1 << 64


@dataclass(slots=True)
class Group:
    """`root`: the relist or sync pass; None of a call that belongs to none."""

    root: Row | None = None
    calls: dict[str, Row] = field(default_factory=dict)
    steps: dict[str, Row] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return (self.root is not None) + len(self.calls) + len(self.steps)

    @property
    def rows(self) -> list[Row]:
        return [*([self.root] if self.root else []), *self.calls.values(), *self.steps.values()]

    @property
    def open(self) -> bool:
        return any(row.end is None for row in self.rows)

    @property
    def last(self) -> int:
        """When the last of it ended or began, Unix ns."""
        return max(row.start if row.end is None else row.end for row in self.rows)


class Groups:
    """`expire` and `finish` give the groups to export. `share`: of what is neither slow nor failed, 0 to 1."""

    def __init__(self, share: float) -> None:
        self._bound = round(share * _RANDOM)
        self._held: dict[str, Group] = {}  # by the id of the root, or of the call; the oldest first
        self._place: dict[str, str] = {}  # id of a call -> key of its group
        self._cause: dict[str, str] = {}  # id of a step -> id of its call
        self._due: list[tuple[int, int, str]] = []
        self._ties = count()
        self._decided = Recent()
        self._next_sweep = 0
        self.held = 0
        self.late = 0
        self.unsampled = 0

    def feed(self, rows: Iterable[Row]) -> None:
        """File rows by what they belong to. Nothing is decided: when `full`, it is time to."""
        for row in rows:
            match row.kind:
                case "call":
                    self._call(row)
                case "relist" | "sync_pass":
                    self._root(row)
                case "step" if row.end is not None:
                    self._step(row)

    @property
    def full(self) -> bool:
        return self.held > MAX_HELD

    def expire(self, now: int) -> list[Group]:
        """Decide what is due at `now`, Unix ns, and the oldest where too much is held."""
        out: list[Group] = []
        while self._due and self._due[0][0] <= now:
            _, _, key = heapq.heappop(self._due)
            group = self._held.get(key)
            if group is not None and (due := _due(key, group)) is not None:
                if due <= now:
                    self._decide(key, out)
                else:
                    self._remind(key, due)
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_NS
            for key in [key for key, group in self._held.items() if _given_up(key, group, now)]:
                self._decide(key, out)
        while self.full:
            self._decide(next(iter(self._held)), out)
        return out

    def finish(self) -> list[Group]:
        """Decide everything: no row comes any more."""
        out: list[Group] = []
        while self._held:
            self._decide(next(iter(self._held)), out)
        return out

    def _call(self, row: Row) -> None:
        if row.id in self._decided:
            self.late += row.end is not None
            return
        activity = row.fields["activity"]
        key = row.id
        if activity["kind"] in PARENTS and activity["id"] is not None and not row.fields["streaming"]:
            key = activity["id"]
            if key in self._decided:  # of a relist or pass that went without it
                key = row.id
        self._move(row.id, key)
        self._put(key, self._held[key].calls, row)

    def _root(self, row: Row) -> None:
        if row.id in self._decided:
            self.late += row.end is not None
            return
        group = self._held.setdefault(row.id, Group())
        self.held += group.root is None
        group.root = row
        for call in row.fields["calls"]:
            if self._place.get(call, row.id) != row.id:
                self._move(call, row.id)
        self._note(row.id)

    def _step(self, row: Row) -> None:
        call = row.fields["call"]
        before = self._cause.get(row.id)
        if before is not None and before != call:  # what joined them was taken back
            del self._cause[row.id]
            self._drop_step(before, row.id)
        if call is None:
            return
        if call in self._decided:
            self.late += 1
            return
        self._cause[row.id] = call
        key = self._place.setdefault(call, call)
        self._put(key, self._held.setdefault(key, Group()).steps, row)

    def _drop_step(self, call: str, step: str) -> None:
        key = self._place[call]
        group = self._held[key]
        del group.steps[step]
        self.held -= 1
        if not group.size:
            del self._held[key]

    def _put(self, key: str, rows: dict[str, Row], row: Row) -> None:
        self.held += row.id not in rows
        rows[row.id] = row
        self._note(key)

    def _move(self, call: str, key: str) -> None:
        """Have the call, and what is known of it, in the group of `key`."""
        group = self._held.setdefault(key, Group())
        before = self._place.get(call)
        self._place[call] = key
        if before is None or before == key:
            return
        old = self._held[before]
        if call in old.calls:
            group.calls[call] = old.calls.pop(call)
        for step in [step for step, row in old.steps.items() if row.fields["call"] == call]:
            group.steps[step] = old.steps.pop(step)
        if not old.size:
            del self._held[before]

    def _note(self, key: str) -> None:
        due = _due(key, self._held[key])
        if due is not None:
            self._remind(key, due)

    def _remind(self, key: str, due: int) -> None:
        heapq.heappush(self._due, (due, next(self._ties), key))

    def _decide(self, key: str, out: list[Group]) -> None:
        group = self._held.pop(key)
        self.held -= group.size
        for call in {*group.calls, *(row.fields["call"] for row in group.steps.values())}:
            self._place.pop(call, None)
            self._decided.add(call)
        for step in group.steps:
            del self._cause[step]
        self._decided.add(key)
        for call in [call for call, row in group.calls.items() if row.end is None]:
            del group.calls[call]
        for step in [step for step, row in group.steps.items() if row.fields["call"] not in group.calls]:
            del group.steps[step]
        if group.root is not None and group.root.end is not None:
            parts = [group]
        else:
            parts = [_alone(group, call) for call in group.calls]
        for part in parts:
            if _remarkable(part) or trace_id(part.root, part.calls.values()) % _RANDOM < self._bound:
                out.append(part)
            else:
                self.unsampled += part.size


def _due(key: str, group: Group) -> int | None:
    """When the group is to be decided; None while it is not whole."""
    whole = group.root or group.calls.get(key)
    return None if whole is None or whole.end is None else group.last + HOLD_NS


def _given_up(key: str, group: Group, now: int) -> bool:
    whole = group.root or group.calls.get(key)
    return whole is None and not group.open and group.last + WAIT_NS <= now


def _alone(group: Group, call: str) -> Group:
    steps = {ident: row for ident, row in group.steps.items() if row.fields["call"] == call}
    return Group(None, {call: group.calls[call]}, steps)


def _remarkable(group: Group) -> bool:
    """Whether something of it failed or was slow. Streams last as long as they like."""
    root = group.root
    if root is not None and (root.fields["outcome"] == "failed" or _slow(root)):
        return True
    return any(failed(row) or (_slow(row) and not row.fields["streaming"]) for row in group.calls.values())


def _slow(row: Row) -> bool:
    return row.end is not None and row.end - row.start > SLOW_NS
