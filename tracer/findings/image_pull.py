"""Pulls of images: those that fail, and those that take long."""

from collections.abc import Hashable, Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Confidence, Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles, failed, said, told

SHOWN_NS = 60 * NS
WARNING_NS = 300 * NS
"""A gigabyte at 100 Mbit/s takes 80 s; what takes longer than this is far from usual."""

PROGRESS_NS = 300 * NS
"""containerd ends a pull that makes no progress for this long by itself (`image_pull_progress_timeout`)."""

_LIMITED = ("toomanyrequests", "too many requests", "429", "rate limit")
_DENIED = ("unauthorized", "denied", "forbidden", "authorization failed")
_ABSENT = ("manifest unknown", "not found", "name unknown")


class ImagePullFailed:
    """One finding for each image that cannot be pulled, whichever pods want it."""

    kind = "image_pull_failed"

    def __init__(self) -> None:
        self._troubles = Troubles()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method != "PullImage" or scene.kubelet_of(call) is None:
                continue
            key: Hashable = (call.rpc.peer.path, call.image)
            if failed(call) and scene.unexplained(call, self.kind):
                self._troubles.add(key, call)
            elif call.rpc.status == "OK":
                self._troubles.over(key)
        for key, trouble, end in self._troubles.shown(scene.now):
            yield self._verdict(key, trouble, end=end)

    def _verdict(self, key: Hashable, trouble: Trouble, *, end: int | None) -> Verdict:
        call = trouble.latest
        pods = wording.several(wording.pod(pod) for pod in trouble.all_pods)
        times = wording.times(trouble.times)
        summary = (
            f"Pulling {call.image or 'an image'} for {pods or 'a pod that is not known'} failed {times}: {said(call)}"
        )
        text = (call.rpc.error or "").lower()
        lasted = (call.rpc.end or call.rpc.start) - call.rpc.start
        confidence: Confidence = "high"
        if "context canceled" in text or call.rpc.status == "CANCELLED":
            summary += (
                f"; the runtime ended it by itself after {wording.seconds(lasted)}, the kubelet did not cancel it"
            )
            if lasted >= PROGRESS_NS:
                summary += ": likely its limit of 5 min without progress, which further tries are going to meet as well"
                confidence = "medium"
        elif any(words in text for words in _LIMITED):
            summary += "; the registry limits how often it is asked"
        elif any(words in text for words in _DENIED):
            summary += "; the registry does not let this node have it"
        elif any(words in text for words in _ABSENT):
            summary += "; the registry does not have it"
        return Verdict(
            self.kind, key, "warning", trouble.start, f"{summary}.",
            end=end,
            pods=trouble.all_pods,
            calls=trouble.named,
            explains=frozenset(trouble.calls),
            evidence=told(trouble.named[-8:]),
            confidence=confidence,
            next_steps=(
                f"crictl pull {call.image or 'IMAGE'}",
                "Name and tag of the image, the pod's imagePullSecrets, the registry as seen from this node.",
            ),
        )  # fmt: skip


class ImagePullSlow:
    """One finding for each pull that takes long."""

    kind = "image_pull_slow"

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in (*scene.ended, *scene.open):
            if call.method != "PullImage":
                continue
            until = scene.now if call.rpc.end is None else call.rpc.end
            if until - call.rpc.start < SHOWN_NS or failed(call) or not scene.unexplained(call, self.kind):
                continue
            if scene.kubelet_of(call) is not None:
                yield self._verdict(call, until)

    def _verdict(self, call: CriCall, until: int) -> Verdict:
        lasted = until - call.rpc.start
        verb = "takes" if call.rpc.end is None else "took"
        pod = f" for {wording.pod(call.pod)}" if call.pod else ""
        return Verdict(
            self.kind, call.id, "warning" if lasted >= WARNING_NS else "info", call.rpc.start,
            f"Pulling {call.image or 'an image'}{pod} {verb} {wording.seconds(lasted)}.",
            end=call.rpc.end,
            pods=(call.pod,) if call.pod else (),
            calls=(call,),
            evidence=[Evidence(call.rpc.start, f"{wording.call(call)}: {wording.seconds(lasted)}.", call.id)],
            unknown=("Whether the registry, the network or unpacking on the disk takes the time.",),
            next_steps=("Size of the image; journalctl -u containerd for its progress; iostat -x 1",),
        )  # fmt: skip
