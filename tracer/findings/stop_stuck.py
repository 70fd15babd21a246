"""Stops and removals that hang: beyond the grace of a container, again and again, or behind an earlier stop."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import FORGIVEN_NS, Trouble, Troubles, failed, gave_up

STOPS = frozenset({"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"})

SLACK_NS = 10 * NS
SANDBOX_SLACK_NS = 60 * NS
"""Beyond the grace: killing takes milliseconds. A network plugin waits for its own daemon for 30 s."""

MANY = 4
"""Stops that hang at once have one cause, that is not the pods'."""

MAX_PARENTS = 2048
"""Pods whose cgroup is known."""

MAX_BEHIND = 64
"""Stops at once that wait for an earlier one."""


class StopStuck:
    """One finding for each container or sandbox, however often its stop is tried again."""

    kind = "stop_stuck"

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._counted: OrderedDict[str, Hashable] = OrderedDict()  # open calls that are counted already
        self._answers: dict[Hashable, CriCall] = {}  # the latest status of a container whose stop hangs
        self._parents: OrderedDict[str, str] = OrderedDict()  # pod uid -> the cgroup above its own
        self._behind: OrderedDict[str, CriCall] = OrderedDict()  # a stop -> the earlier one it waits for

    def look(self, scene: Scene) -> Iterator[Verdict]:
        hanging: set[Hashable] = set()
        for call in (*scene.ended, *scene.open):
            if call.method in STOPS:
                self._take(call, scene, hanging)
            elif call.method == "ContainerStatus" and len(self._troubles) and call.rpc.status == "OK":
                key: Hashable = (call.rpc.peer.path, call.container_id)
                if self._troubles.get(key) is not None:
                    self._answers[key] = call
            elif call.method == "RunPodSandbox" and call.pod is not None and call.cgroup_parent:
                self._parents[call.pod.uid] = above(call.cgroup_parent)
                if len(self._parents) > MAX_PARENTS:
                    self._parents.popitem(last=False)
        for key, trouble in self._troubles:
            over = key not in hanging and scene.now - trouble.last >= FORGIVEN_NS
            if len(self._troubles) < MANY:
                yield self._verdict(key, trouble, end=trouble.last if over else None)
            if over:
                self._over(key)
        if len(self._troubles) >= MANY:
            yield self._of_many()

    def _take(self, call: CriCall, scene: Scene, hanging: set[Hashable]) -> None:
        until = scene.now if call.rpc.end is None else call.rpc.end
        key: Hashable = (call.rpc.peer.path, call.container_id or call.sandbox_id)
        before = self._earlier(call, scene) if until - call.rpc.start >= SLACK_NS // 2 else None
        if before is not None:
            self._behind[call.id] = before
            if len(self._behind) > MAX_BEHIND:
                self._behind.popitem(last=False)
        slack = SANDBOX_SLACK_NS if call.container_id is None else SLACK_NS
        late = until - call.rpc.start - (call.grace or 0) * NS >= slack and not failed(call)
        known = scene.kubelet_of(call) is not None or call.id in self._behind
        if (late or call.id in self._behind) and known and scene.unexplained(call, self.kind):
            if call.id not in self._counted:
                self._counted[call.id] = key
                if len(self._counted) > MAX_BEHIND:
                    self._counted.popitem(last=False)
                self._troubles.add(key, call)
            trouble = self._troubles.get(key)
            if trouble is not None:
                trouble.last = max(trouble.last, until)
            if call.rpc.end is None:
                hanging.add(key)
        if call.rpc.status == "OK" and self._troubles.get(key) is not None:
            trouble = self._troubles.get(key)
            if trouble is not None and call.method == trouble.latest.method:
                self._over(key)

    def _earlier(self, call: CriCall, scene: Scene) -> CriCall | None:
        """A stop of the same container that began before and is within its own, longer grace."""
        if call.method != "StopContainer" or call.id in self._behind:
            return self._behind.get(call.id)
        for other in scene.open:
            same = other.method == "StopContainer" and other.container_id == call.container_id
            if same and other.rpc.start < call.rpc.start and (other.grace or 0) > (call.grace or 0):
                return other
        return None

    def _over(self, key: Hashable) -> None:
        self._troubles.over(key)
        self._answers.pop(key, None)

    def _of_many(self) -> Verdict:
        """Stops of several pods hang: whether they have one cgroup above them in common."""
        troubles = [trouble for _, trouble in self._troubles]
        pods = tuple(dict.fromkeys(pod for trouble in troubles for pod in trouble.all_pods))
        hanging = {pod.uid for pod in pods}
        known = {uid: above for uid, above in self._parents.items() if uid in hanging}
        others = [above for uid, above in self._parents.items() if uid not in hanging]
        summary = f"Stops of {len(troubles)} containers and sandboxes in {len(pods)} pods hang at once"
        common = set(known.values())
        if len(common) == 1 and len(known) >= MANY:
            name = common.pop()
            summary += f"; all {len(known)} whose cgroup is known are below {name}"
            if name not in others and others:
                summary += f", none of the {len(others)} pods below other cgroups hangs: is {name} frozen?"
        return Verdict(
            self.kind, "many", "warning", min(trouble.start for trouble in troubles), f"{summary}.",
            pods=pods,
            calls=tuple(trouble.latest for trouble in troubles)[:MAX_BEHIND],
            explains=frozenset(ident for trouble in troubles for ident in trouble.calls),
            evidence=[
                Evidence(trouble.start, f"{wording.call(trouble.latest)}: {trouble.times} times.", trouble.latest.id)
                for trouble in troubles[:16]
            ],
            confidence="medium",
            unknown=("What they wait for: a frozen cgroup, a file system that does not answer, or the runtime.",),
            next_steps=(
                "cat /sys/fs/cgroup/kubepods.slice/*/cgroup.freeze",
                "ps -eo pid,stat,wchan:32,args | grep ' D': processes that wait in the kernel",
            ),
        )  # fmt: skip

    def _verdict(self, key: Hashable, trouble: Trouble, *, end: int | None) -> Verdict:
        call = trouble.latest
        until = trouble.last
        before = self._behind.get(call.id)
        calls = trouble.named
        if before is not None:
            summary = (
                f"{wording.call(call)} with {call.grace or 0} s of grace waits behind an earlier stop of the same"
                f" container with {before.grace} s, which began {wording.gap(call.rpc.start - before.rpc.start)} before"
            )
            calls = (before, *calls)
        elif trouble.times == 1:
            grace = f", {call.grace} s of it the container's grace" if call.grace else ""
            verb = "has not ended for" if call.rpc.end is None else "took"
            summary = f"{wording.call(call)} {verb} {wording.seconds(until - call.rpc.start)}{grace}"
        else:
            given = sum(gave_up(each) for each in trouble.calls.values())
            by = ", always by the kubelet's deadline" if given >= len(trouble.calls) - 1 else ""
            summary = (
                f"{wording.call(call)} hung {trouble.times} times within {wording.seconds(until - trouble.start)}{by}"
            )
        status = self._answers.get(key)
        if status is not None and before is None:
            summary += "; its status is answered meanwhile, so only what kills it hangs"
        return Verdict(
            self.kind, key, "warning", trouble.start, f"{summary}.",
            end=end,
            pods=trouble.all_pods,
            calls=calls,
            explains=frozenset(trouble.calls),
            evidence=[
                Evidence(each.rpc.start, f"{wording.call(each)}:"
                         f" {wording.seconds((each.rpc.end or until) - each.rpc.start)}"
                         f"{', given up by the kubelet' if gave_up(each) else ''}.", each.id)
                for each in calls[:8]
            ],
            unknown=() if before is not None else (
                "What keeps its processes: the kernel (state D), a frozen cgroup, or a shim that does not answer.",
            ),
            next_steps=(
                f"ps -eo pid,ppid,stat,wchan:32,args | grep {str(call.container_id or call.sandbox_id)[:13]}",
                "cat /sys/fs/cgroup/kubepods.slice/.../cgroup.freeze of the pod; dmesg for hung tasks",
                "Each further try of the kubelet leaves one more waiting call in the runtime.",
            ),
        )  # fmt: skip


def above(parent: str) -> str:
    """The cgroup above a pod's own: `kubepods-burstable-pod1.slice` -> "kubepods-burstable", "/a/pod1" -> "/a"."""
    return parent.rpartition("-pod")[0] or parent.rpartition("/")[0]
