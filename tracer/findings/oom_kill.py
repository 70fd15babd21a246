"""A pod's process was killed for want of memory, once or again and again."""

from collections import OrderedDict
from collections.abc import Iterator

from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.node import NodeEvent

FORGIVEN_NS = 600 * NS
"""A container that is killed as soon as it is restarted is so each 300 s at least (`MaxContainerBackOff`)."""

MAX_KILLED = 64
"""Pods, and processes of no known pod, remembered."""

MAX_TIMES = 32
"""Kills of one pod remembered one by one."""


class OomKill:
    """One finding for each pod; for each process that is of no known pod."""

    kind = "oom_kill"

    def __init__(self) -> None:
        self._killed: OrderedDict[str, list[NodeEvent]] = OrderedDict()
        self._times: dict[str, int] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for event in scene.node_events:
            if event.kind == "oom_kill":
                key = event.pod.uid if event.pod else event.id
                kills = self._killed.setdefault(key, [])
                kills.append(event)
                del kills[1:-MAX_TIMES]
                self._times[key] = self._times.get(key, 0) + 1
                if len(self._killed) > MAX_KILLED:
                    del self._times[self._killed.popitem(last=False)[0]]
        for key, kills in list(self._killed.items()):
            over = scene.now - kills[-1].time >= FORGIVEN_NS
            yield self._verdict(key, kills, end=kills[-1].time if over else None)
            if over:
                del self._killed[key], self._times[key]

    def _verdict(self, key: str, kills: list[NodeEvent], *, end: int | None) -> Verdict:
        first, last = kills[0], kills[-1]
        summary = last.text.rstrip(".")
        if self._times[key] > 1:
            summary += f", the {self._times[key]}. of its pod within {wording.seconds(last.time - first.time)}"
        return Verdict(
            self.kind, key, "warning" if last.pod else "info", first.time, f"{summary}.",
            end=end,
            pods=(last.pod,) if last.pod else (),
            evidence=[Evidence(event.time, event.text) for event in kills],
            unknown=() if last.pod else ("Whose process it was: its cgroup names no pod that is known.",),
            next_steps=("dmesg: the kernel's report of the kill. The container's memory limit, or the node's memory.",),
        )  # fmt: skip
