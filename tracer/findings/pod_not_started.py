"""A pod's sandbox is ready, but it has no container and the kubelet tries to create none."""

from collections.abc import Iterator
from dataclasses import dataclass

from tracer.facts import Pod
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.kubelet.relists import Relist

SHOWN_NS = 300 * NS
"""Longest back-off of the kubelet's (`MaxContainerBackOff`): after it, it tries."""

MAX_BARE = 1024
"""Pods without a container that are remembered; a node has some hundred pods."""

TRIES = frozenset({
    "RunPodSandbox", "PullImage", "ImageStatus", "CreateContainer", "StartContainer", "StopPodSandbox",
})  # fmt: skip
"""What a pod worker does on its way to a container, or instead of it."""

Key = tuple[str, int]


@dataclass(slots=True)
class _Bare:
    """A pod without a container. `since`: a relist first showed it so; `tried`: the latest call for it."""

    pod: Pod
    since: int
    tried: int


class PodNotStarted:
    """One finding for each kubelet, of all pods that it leaves so."""

    kind = "pod_not_started"

    def __init__(self) -> None:
        self._bare: dict[Key, dict[str, _Bare]] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for relist in scene.relists:
            if relist.kind == "generic" and relist.outcome == "ok":
                self._listed(relist)
        if self._bare:
            self._tried(scene)
        known = {(path, pid) for path, pid, _ in scene.kubelets}
        for key in [key for key in self._bare if key not in known]:
            del self._bare[key]
        for key, bare in self._bare.items():
            left = [each for each in bare.values() if scene.now - max(each.since, each.tried) >= SHOWN_NS]
            if left and not any(self._doubtful(each, scene) for each in left):
                yield self._verdict(key, left, scene.now)

    def _listed(self, relist: Relist) -> None:
        sandboxes, containers = relist.list_sandboxes, relist.list_containers
        if sandboxes is None or sandboxes.sandboxes is None or containers is None or containers.containers is None:
            return
        key = (sandboxes.rpc.peer.path, sandboxes.rpc.peer.client_pid)
        filled = {item.sandbox_id for item in containers.containers}
        empty = {item.pod.uid: item.pod for item in sandboxes.sandboxes if item.ready and item.id not in filled}
        before = self._bare.get(key, {})
        now: dict[str, _Bare] = {}
        for uid, pod in empty.items():
            if len(now) < MAX_BARE:
                now[uid] = before.get(uid) or _Bare(pod, relist.start, relist.start)
        if now:
            self._bare[key] = now
        else:
            self._bare.pop(key, None)

    def _tried(self, scene: Scene) -> None:
        for call in (*scene.ended, *scene.open):
            if call.method is not None and call.method not in TRIES:
                continue
            bare = self._bare.get((call.rpc.peer.path, call.rpc.peer.client_pid))
            if bare is None:
                continue
            time = scene.now if call.rpc.end is None else call.rpc.end
            # Of a call without a name, or an image's without a pod's, it may be anybody's.
            for each in bare.values():
                if call.method is None or call.pod is None or call.pod.uid == each.pod.uid:
                    each.tried = max(each.tried, time)

    @staticmethod
    def _doubtful(bare: _Bare, scene: Scene) -> bool:
        """Whether an attempt may have come that was not seen."""
        return scene.lost_at is not None and scene.now - scene.lost_at < SHOWN_NS and scene.lost_at >= bare.since

    def _verdict(self, key: Key, left: list[_Bare], now: int) -> Verdict:
        _path, pid = key
        start = min(max(each.since, each.tried) for each in left)
        lasted = wording.seconds(now - start)
        names = wording.several(wording.pod(each.pod) for each in left)
        have = "pod has a ready sandbox" if len(left) == 1 else "pods have ready sandboxes"
        return Verdict(
            self.kind, key, "warning", start,
            f"{len(left)} {have} but no container ({names}), and the kubelet (process {pid}) tried to create none for "
            f"{lasted}; its relists succeed and the runtime answers: the kubelet itself holds them back.",
            pods=tuple(each.pod for each in left),
            evidence=[
                Evidence(each.since, f"From here on relists show {wording.pod(each.pod)} without a container.")
                for each in left
            ],
            confidence="medium",
            unknown=("Why: a pod worker that still ends an earlier pod of the same name, a volume, or a secret.",),
            next_steps=(
                "kubectl describe pod: its events say what it waits for (a mount, a configuration).",
                "journalctl -u kubelet | grep the pod's uid; for a static pod, move its manifest out and in again.",
            ),
        )  # fmt: skip
