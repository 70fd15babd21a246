"""The wall clock was set: what compares its times, as the kubelet does, may be misled for as long."""

from collections.abc import Iterator

from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import Scene


class ClockStep:
    """One finding for each step."""

    kind = "clock_step"

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for event in scene.node_events:
            if event.kind == "clock_step":
                yield Verdict(
                    self.kind, event.id, "info", event.time,
                    f"{event.text.rstrip('.')}; durations shown here are not affected, but the kubelet compares wall"
                    " clock times of containers.",
                    end=event.time,
                    evidence=[Evidence(event.time, event.text)],
                    next_steps=("timedatectl; chronyc tracking: who set the clock?",),
                )  # fmt: skip
