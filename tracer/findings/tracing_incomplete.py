"""Parts of what crossed the sockets were not seen, again and again: what is said of this time may be wrong."""

from collections import deque
from collections.abc import Iterator

from tracer.findings import wording
from tracer.findings.finding import Verdict
from tracer.findings.scene import NS, Scene

WINDOW_NS = 60 * NS

LEAST = 5
"""Looks, of the last minute, before which something was lost: less is a connection that was met in the middle."""

WARNING = 40
"""A third of a minute's looks."""

MAX_LOOKS = 256


class TracingIncomplete:
    """One finding while bytes are lost."""

    kind = "tracing_incomplete"

    def __init__(self) -> None:
        self._losses: deque[int] = deque(maxlen=MAX_LOOKS)

    def look(self, scene: Scene) -> Iterator[Verdict]:
        lost = scene.lost_at
        if lost is not None and (not self._losses or self._losses[-1] != lost):
            self._losses.append(lost)
        while self._losses and scene.now - self._losses[0] > WINDOW_NS:
            self._losses.popleft()
        if len(self._losses) >= LEAST:
            since = self._losses[0]
            yield Verdict(
                self.kind, "lost", "warning" if len(self._losses) >= WARNING else "info", since,
                f"Bytes of the traced connections were lost {len(self._losses)} times within"
                f" {wording.seconds(self._losses[-1] - since)}: calls of this time are incomplete, and findings may be"
                " wrong or missing.",
                next_steps=(
                    "criscope_lost_records_total by program: records that a BPF program could not hand over",
                    "More CPU for criscope: its ring buffer is emptied too slowly.",
                ),
            )  # fmt: skip
