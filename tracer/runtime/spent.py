"""How much of the runtime's work on a call its steps account for."""

from collections.abc import Iterable

from tracer.facts import CriCall
from tracer.runtime.step import Step


def explained(call: CriCall, steps: Iterable[Step], now: int) -> int | None:
    """Ns of the call's service time in which at least one of its steps ran; steps within steps do not count.

    None when its service time is not known; `now` ends what is open.
    """
    begin, end = _service(call, now)
    if begin is None or end is None:
        return None
    spans = sorted(
        (max(begin, step.start), min(end, now if step.end is None else step.end))
        for step in steps
        if step.parent is None
    )
    covered, at = 0, begin
    for start, until in spans:
        if until > max(start, at):
            covered += until - max(start, at)
            at = until
    return covered


def unexplained(call: CriCall, steps: Iterable[Step], now: int) -> int | None:
    """Ns of the call's service time that are the runtime's own, as far as seen."""
    begin, end = _service(call, now)
    covered = explained(call, steps, now)
    return None if begin is None or end is None or covered is None else end - begin - covered


def share(call: CriCall, steps: Iterable[Step], now: int) -> float | None:
    """`explained` as a part of the service time, 0 to 1."""
    begin, end = _service(call, now)
    covered = explained(call, steps, now)
    return None if begin is None or end is None or covered is None or end == begin else covered / (end - begin)


def _service(call: CriCall, now: int) -> tuple[int | None, int | None]:
    rpc = call.rpc
    if rpc.received is None or (rpc.answered is None and rpc.ended_by is not None):
        return None, None
    end = now if rpc.answered is None else rpc.answered
    return rpc.received, max(rpc.received, end)
