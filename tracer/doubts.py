"""Doubts: open calls whose end may have been lost in a gap, or passed while frames' starts were not known."""

from tracer.calls import Call
from tracer.streams import Way

DOUBT_NS = 1_000_000_000
"""How long after its deadline a call is over for certain though nobody was seen to end it; and how long an answer that
may have been lost is waited for at least."""

RIVALS = 2
"""How many later calls of the same method, each answered in a tenth of the time, say that an answer was lost: the
kubelet asks for its lists each second, one list after the other."""

RIVAL_SHARE = 10


class _Doubt:
    __slots__ = ("call", "rivals", "since", "way")

    def __init__(self, call: Call, since: int, way: Way) -> None:
        self.call = call
        self.since = since
        self.way: Way = way
        self.rivals = 0


class Doubts:
    """Of one connection."""

    __slots__ = ("_doubts", "any")

    def __init__(self) -> None:
        self._doubts: dict[int, _Doubt] = {}  # by stream
        self.any = False  # asked for each frame: no call

    def __contains__(self, call: Call) -> bool:
        return call.stream in self._doubts

    def add(self, call: Call, since: int, way: Way) -> None:
        """`way`: where bytes are missing."""
        self._doubts.setdefault(call.stream, _Doubt(call, since, way))
        self.any = True

    def drop(self, call: Call) -> None:
        """It ended."""
        self._doubts.pop(call.stream, None)
        self.any = bool(self._doubts)

    def alive(self, call: Call) -> None:
        """More of an answer came after a gap in it: its end was not lost."""
        doubt = self._doubts.get(call.stream)
        if doubt is not None and doubt.way == "response":
            self.drop(call)

    def answered(self, call: Call, now: int) -> None:
        """`call` was answered in full."""
        for doubt in self._doubts.values():
            if doubt.way == "response" and call.start > doubt.since:
                alike = (call.path, call.old_path) == (doubt.call.path, doubt.call.old_path)
                if alike and now - doubt.since > max(DOUBT_NS, RIVAL_SHARE * (now - call.start)):
                    doubt.rivals += 1

    def over(self, now: int) -> list[tuple[Call, int]]:
        """Calls that have ended, and since when that was doubted: their end was before, or soon after."""
        return [
            (doubt.call, doubt.since)
            for doubt in self._doubts.values()
            if doubt.rivals >= RIVALS
            or (doubt.call.deadline_ns is not None and now > doubt.call.start + doubt.call.deadline_ns + DOUBT_NS)
        ]
