"""Pods' sandboxes are replaced again and again: of one pod, or of many, which then have one cause."""

from collections import OrderedDict, deque
from collections.abc import Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene

WINDOW_NS = 600 * NS

LEAST = 3
"""Replaced as often within the window, a sandbox dies by itself: a node that is restarted replaces each once."""

MANY = 3
"""As many pods at once have no trouble of their own."""

MAX_PODS = 1024
MAX_TIMES = 32


class SandboxChurn:
    """One finding for all pods of a runtime."""

    kind = "sandbox_churn"

    def __init__(self) -> None:
        self._replaced: OrderedDict[tuple[str, str], deque[CriCall]] = OrderedDict()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            again = call.method == "RunPodSandbox" and call.rpc.status == "OK" and call.attempt
            if again and call.pod is not None and scene.kubelet_of(call) is not None:
                key = (call.rpc.peer.path, call.pod.uid)
                self._replaced.setdefault(key, deque(maxlen=MAX_TIMES)).append(call)
                self._replaced.move_to_end(key)
                if len(self._replaced) > MAX_PODS:
                    self._replaced.popitem(last=False)
        churning: dict[str, list[deque[CriCall]]] = {}
        for key, calls in list(self._replaced.items()):
            while calls and scene.now - calls[0].rpc.start > WINDOW_NS:
                calls.popleft()
            if not calls:
                del self._replaced[key]
            elif len(calls) >= LEAST:
                churning.setdefault(key[0], []).append(calls)
        for path, pods in churning.items():
            yield self._verdict(path, pods)

    def _verdict(self, path: str, churning: list[deque[CriCall]]) -> Verdict:
        calls = sorted((call for each in churning for call in each), key=lambda call: call.rpc.start)
        pods = wording.pods_of(calls)
        names = wording.several(wording.pod(pod) for pod in pods)
        if len(pods) >= MANY:
            summary = (
                f"{len(pods)} pods ({names}) had their sandbox replaced {LEAST} times or more within"
                f" {wording.seconds(WINDOW_NS)}: sandboxes end while they are in use, so the cause is the node's, not"
                " the pods'"
            )
        else:
            summary = f"The sandbox of {names} was replaced {len(calls)} times within {wording.seconds(WINDOW_NS)}"
        return Verdict(
            self.kind, path, "warning", calls[0].rpc.start, f"{summary}.",
            pods=pods,
            calls=tuple(calls[-64:]),
            evidence=[Evidence(call.rpc.start, f"{wording.call(call)}, attempt {call.attempt}.", call.id)
                      for call in calls[-8:]],
            confidence="medium",
            unknown=("What ends them: a killed pause process, a reset network, or cgroup drivers that differ.",),
            next_steps=(
                "The kubelet's cgroupDriver, containerd's SystemdCgroup (CRI-O: cgroup_manager): are they the same?",
                "crictl inspectp of a sandbox that ended; dmesg for killed processes",
            ),
        )  # fmt: skip
