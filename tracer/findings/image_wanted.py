"""Pods that want an image and do not get its pull: it waits in the kubelet's queue, or the kubelet refuses it."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from tracer.facts import CriCall, Pod
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import failed

NEXT_NS = 5_000_000
"""A pull that waited for another begins this soon after its end."""

QUEUED_NS = 5 * NS
WARNING_NS = 60 * NS
REFUSED_NS = 3 * NS
"""A pull follows the question for its image within milliseconds, even on a busy node within a second or two."""

FORGOTTEN_NS = 360 * NS
"""The kubelet asks again after 300 s at most, unless it waits for another pull."""

MAX_WANTED = 512
MAX_PULLS = 64
"""Pulls remembered: for what was sent in the second before, and whose end let another begin."""

Key = tuple[str, int, str, str]


@dataclass(slots=True)
class Want:
    """`asked`: when the runtime first said that it has not got the image; `again`: when it said so last, ns."""

    pod: Pod
    image: str
    asked: int
    again: int
    call: CriCall


class Wanted:
    """Images that pods want, and no pull was sent for."""

    def __init__(self) -> None:
        self.wants: OrderedDict[Key, Want] = OrderedDict()
        self.pulls: deque[CriCall] = deque(maxlen=MAX_PULLS)
        self.began: list[tuple[Want, CriCall]] = []  # since the look before
        self.open: list[CriCall] = []
        self._failed: OrderedDict[Key, int] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()

    def look(self, scene: Scene) -> None:
        self.began = []
        self.open = [call for call in scene.open if call.method == "PullImage" and scene.kubelet_of(call) is not None]
        asks = [
            call
            for call in (*scene.ended, *self.open)
            if call.method in ("ImageStatus", "PullImage") and scene.kubelet_of(call) is not None
        ]
        for call in sorted(asks, key=lambda call: call.rpc.start):
            if call.method == "PullImage":
                self._pull(call)
            elif call.pod is not None and call.image is not None:
                self._ask(call, call.pod, call.image)
        for key, want in list(self.wants.items()):
            if scene.now - want.again >= FORGOTTEN_NS and not self.open:
                del self.wants[key]

    def _ask(self, call: CriCall, pod: Pod, image: str) -> None:
        key = _key(call, pod)
        time = call.rpc.end or call.rpc.start
        if call.present:
            self.wants.pop(key, None)
        elif call.present is False:
            if key in self._failed and time - self._failed[key] < 2 * FORGOTTEN_NS:
                return  # its back-off after a pull that failed
            want = self.wants.get(key)
            if want is not None:
                want.again = time
                return
            self.wants[key] = Want(pod, image, time, time, call)
            if len(self.wants) > MAX_WANTED:
                self.wants.popitem(last=False)

    def _pull(self, call: CriCall) -> None:
        if call.pod is None:
            keys = [key for key, want in self.wants.items() if want.image == call.image]
        else:
            keys = [_key(call, call.pod)]
        if call.id not in self._seen:
            self._seen[call.id] = None
            if len(self._seen) > MAX_PULLS:
                self._seen.popitem(last=False)
            self.pulls.append(call)
            self.began += [(self.wants[key], call) for key in keys if key in self.wants]
        for key in keys:
            if key in self.wants and self.wants[key].again <= call.rpc.start:
                del self.wants[key]
            if failed(call):
                self._failed[key] = call.rpc.end or call.rpc.start
                if len(self._failed) > MAX_WANTED:
                    self._failed.popitem(last=False)

    def idle_since(self) -> int:
        """When the last pull that is over ended."""
        return max((call.rpc.end for call in self.pulls if call.rpc.end is not None), default=0)


class ImagePullQueued:
    """One finding while pods wait for others' pulls: the kubelet pulls one image at a time unless told otherwise."""

    kind = "image_pull_queued"

    def __init__(self) -> None:
        self._wanted = Wanted()
        self._served: list[tuple[Want, CriCall]] = []  # what waited and got its turn
        self._first: CriCall | None = None  # the pull that the first waited for
        self._proofs = 0

    def look(self, scene: Scene) -> Iterator[Verdict]:
        wanted = self._wanted
        wanted.look(scene)
        for want, pull in wanted.began:
            before = next((each for each in wanted.pulls if _follows(each, pull)), None)
            if before is not None and pull.rpc.start - want.asked >= NS:
                self._proofs += 1
                self._first = self._first or before
                self._served.append((want, pull))
        waiting = list(wanted.wants.values()) if wanted.open else []
        if waiting and self._first is None:
            self._first = min(wanted.open, key=lambda call: call.rpc.start)
        since = min((want.asked for want in (*waiting, *(want for want, _ in self._served))), default=scene.now)
        if self._first is not None and scene.now - since >= QUEUED_NS:
            yield self._verdict(self._first, waiting, since, scene)
        if not waiting:
            self._served, self._first, self._proofs = [], None, 0
        del self._served[:-MAX_PULLS]

    def _verdict(self, first: CriCall, waiting: list[Want], since: int, scene: Scene) -> Verdict:
        until = scene.now if waiting else max(pull.rpc.start for _, pull in self._served)
        lasted = (first.rpc.end or scene.now) - first.rpc.start
        order = [*(want for want, _ in self._served), *waiting]
        names = wording.several((f"{wording.pod(want.pod)} ({want.image})" for want in order), most=8)
        verb = "takes" if first.rpc.end is None else "took"
        proof = "; each pull began right after the one before had ended" if self._proofs else ""
        summary = (
            f"{len(order)} pod{'s' * (len(order) != 1)} waited up to {wording.seconds(until - since)} for the kubelet's"
            f" queue of pulls, in this order: {names}; the pull of {first.image or 'an image'} before them {verb}"
            f" {wording.seconds(lasted)}{proof}"
        )
        calls = (first, *(pull for _, pull in self._served))
        evidence = [Evidence(first.rpc.start, f"{wording.call(first)}: {wording.seconds(lasted)}.", first.id)]
        evidence += [
            Evidence(want.asked, f"{want.image} is absent; its pull began after"
                     f" {wording.seconds(pull.rpc.start - want.asked)}.", pull.id)
            for want, pull in self._served[:16]
        ]  # fmt: skip
        evidence += [
            Evidence(want.asked, f"{want.image} is absent; no PullImage yet.", want.call.id) for want in waiting[:16]
        ]
        return Verdict(
            self.kind, first.id, "warning" if until - since >= WARNING_NS else "info", since, f"{summary}.",
            end=None if waiting else until,
            pods=tuple(dict.fromkeys(want.pod for want in order)),
            calls=calls,
            evidence=evidence,
            confidence="high" if self._proofs else "medium",
            unknown=() if self._proofs else ("Whether the kubelet queues these pulls: none of them began yet.",),
            next_steps=(
                "In the kubelet's configuration, serializeImagePulls: false lets pulls run beside each other.",
            ),
        )  # fmt: skip


class ImagePullRefused:
    """One finding while pods want images for which the kubelet sends no pull, though none is under way."""

    kind = "image_pull_refused"

    def __init__(self) -> None:
        self._wanted = Wanted()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        wanted = self._wanted
        wanted.look(scene)
        if not wanted.wants or wanted.open:
            return
        idle = wanted.idle_since()
        refused = [want for want in wanted.wants.values() if scene.now - max(want.asked, idle) >= REFUSED_NS]
        if refused:
            yield self._verdict(refused, wanted)

    def _verdict(self, refused: list[Want], wanted: Wanted) -> Verdict:
        since = min(want.asked for want in refused)
        before = sum(since - NS <= call.rpc.start <= since for call in wanted.pulls)
        pods = tuple(dict.fromkeys(want.pod for want in refused))
        sent = f"; {before} pulls were sent in the second before" if before > 1 else ""
        summary = (
            f"{len(pods)} pod{'s' * (len(pods) != 1)} asked for an image that is absent, but the kubelet sent no"
            f" PullImage ({wording.several(want.image for want in refused)}): it refuses by itself; its limit of pulls"
            f" (registryPullQPS, registryBurst), a back-off, or imagePullPolicy Never are suspected{sent}"
        )
        return Verdict(
            self.kind, "refused", "warning", since, f"{summary}.",
            pods=pods,
            calls=tuple(want.call for want in refused[:MAX_PULLS]),
            evidence=[
                Evidence(want.asked, f"{want.image} is absent; no PullImage followed.", want.call.id)
                for want in refused[:16]
            ],
            confidence="medium",
            unknown=("Why the kubelet does not pull: it says so in the pod's events only.",),
            next_steps=(
                "kubectl get events -A --field-selector reason=Failed",
                "kubectl get --raw /api/v1/nodes/NODE/proxy/configz: registryPullQPS, registryBurst",
            ),
        )  # fmt: skip


def _key(call: CriCall, pod: Pod) -> Key:
    return call.rpc.peer.path, call.rpc.peer.client_pid, pod.uid, call.image or ""


def _follows(before: CriCall, pull: CriCall) -> bool:
    end = before.rpc.end
    same = before.rpc.peer.path == pull.rpc.peer.path and before.rpc.peer.client_pid == pull.rpc.peer.client_pid
    return before is not pull and same and end is not None and 0 <= pull.rpc.start - end <= NEXT_NS
