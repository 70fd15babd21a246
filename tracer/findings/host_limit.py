"""Starts and execs of pods fail for one errno: a limit of the host, or of one pod, is reached."""

from collections.abc import Hashable, Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Verdict
from tracer.findings.scene import Scene
from tracer.findings.troubles import Trouble, Troubles, failed, said, told

ASKS = frozenset({"RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync"})
"""Calls that make processes."""

HOST_LIMITS = {
    "resource temporarily unavailable": "processes or threads (EAGAIN)",
    "pthread_create failed": "processes or threads (EAGAIN)",
    "too many open files": "open files (EMFILE)",
    "no space left on device": "disk space, inodes or inotify watches (ENOSPC)",
    "cannot allocate memory": "memory (ENOMEM)",
}
"""Words of an errno that tells of a limit -> what there is too little of."""


class HostLimit:
    """One finding for each errno, however many pods meet it."""

    kind = "host_limit"

    def __init__(self) -> None:
        self._troubles = Troubles()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            short = limit(call) if call.method in ASKS and failed(call) else None
            if short is not None and scene.unexplained(call, self.kind) and scene.kubelet_of(call) is not None:
                self._troubles.add((call.rpc.peer.path, short), call)
        for key, trouble, end in self._troubles.shown(scene.now):
            yield self._verdict(key, trouble, end=end)

    def _verdict(self, key: Hashable, trouble: Trouble, *, end: int | None) -> Verdict:
        short = limit(trouble.first)
        count = len(trouble.pods)
        where = "in one pod" if count == 1 else f"in {count} pods"
        methods = wording.several(sorted({call.method or "" for call in trouble.calls.values()}))
        whose = "a limit of the host or of the runtime's cgroup" if count > 1 else "a limit of that pod, or of the host"
        return Verdict(
            self.kind, key, "warning", trouble.start,
            f"{trouble.times} calls {where} failed for want of {short} ({methods}): {whose} is reached; the runtime"
            f" says: {said(trouble.latest)}.",
            end=end,
            pods=trouble.all_pods,
            calls=trouble.named,
            explains=frozenset(trouble.calls),
            evidence=told(trouble.named[:8]),
            confidence="high" if count > 1 else "medium",
            unknown=("Which limit it is: the errno does not tell.",),
            next_steps=(
                "systemctl show containerd -p TasksMax,LimitNOFILE",
                "cat /sys/fs/cgroup/system.slice/containerd.service/pids.{current,max}",
                "cat /proc/sys/kernel/{pid_max,threads-max}; df -h; df -i",
            ),
        )  # fmt: skip


def limit(call: CriCall) -> str | None:
    """What the host has too little of, by an error's errno."""
    text = (call.rpc.error or "").lower()
    return next((limit for words, limit in HOST_LIMITS.items() if words in text), None)
