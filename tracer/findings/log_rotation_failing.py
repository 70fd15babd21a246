"""The runtime does not reopen a container's log after the kubelet rotated it."""

import re
from collections.abc import Hashable, Iterator

from tracer.findings.finding import Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles, failed, said, told

LEAST = 3
FORGIVEN_NS = 120 * NS
"""The kubelet tries again each 10 s."""

_OWN = re.compile(r"[0-9a-f]{12,}|\d+")


class LogRotationFailing:
    """One finding for each reason, whichever containers meet it."""

    kind = "log_rotation_failing"

    def __init__(self) -> None:
        self._troubles = Troubles()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method != "ReopenContainerLog" or not failed(call) or call.rpc.status == "NOT_FOUND":
                continue
            if scene.unexplained(call, self.kind) and scene.kubelet_of(call) is not None:
                self._troubles.add((call.rpc.peer.path, _OWN.sub("", call.rpc.error or "")), call)
        for key, trouble, end in self._troubles.shown(scene.now, FORGIVEN_NS):
            if trouble.times >= LEAST:
                yield self._verdict(key, trouble, end=end)

    def _verdict(self, key: Hashable, trouble: Trouble, *, end: int | None) -> Verdict:
        call = trouble.latest
        containers = len({each.container_id for each in trouble.calls.values()})
        unsupported = call.rpc.status == "UNIMPLEMENTED" or "not support" in (call.rpc.error or "")
        summary = (
            f"ReopenContainerLog failed {trouble.times} times for {containers} container{'s' * (containers != 1)}:"
            f" {said(call)}"
        )
        if unsupported:
            summary += "; this runtime does not support it, which is for good: pods are not harmed, their logs must be"
            summary += " rotated by the engine itself"
        return Verdict(
            self.kind, key, "info" if unsupported else "warning", trouble.start, f"{summary}.",
            end=end,
            pods=trouble.all_pods,
            calls=trouble.named,
            explains=frozenset(trouble.calls),
            evidence=told(trouble.named[:4]),
            next_steps=("containerLogMaxSize of the kubelet; log options of the engine (docker: max-size, max-file).",),
        )  # fmt: skip
