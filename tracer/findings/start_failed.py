"""A pod or a container cannot be started: the first cause, and how often it was tried again since."""

import re
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator

from tracer.facts import EXITED, RUNNING, CriCall, ListedContainer
from tracer.findings import wording
from tracer.findings.finding import Confidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles, failed, gave_up, said, told
from tracer.node import NodeEvent

STARTS = frozenset({"RunPodSandbox", "CreateContainer", "StartContainer"})

MAX_HANDLERS = 32
"""Runtime handlers counted; a node has a handful."""

MAX_CREATED = 4096
"""Containers remembered by pod, name and attempt: four for each pod of the largest nodes."""

CLOCK_NS = 3600 * NS
"""A step of the wall clock is remembered for so long."""

_RESERVED = re.compile(r"name .*is reserved")
_HOLDER = re.compile(r"is reserved for \"?([0-9a-f]{12,64})")
"""containerd: `name "..." is reserved for "<id of the first attempt>"`. CRI-O names the id of the new attempt."""


class StartFailed:
    """One finding for each pod that cannot be started; or for a runtime handler of which nothing can."""

    kind = "start_failed"

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._handlers: OrderedDict[str, Counter[bool]] = (
            OrderedDict()
        )  # handler -> sandboxes by whether they were made
        self._created: OrderedDict[tuple[str, str, int], CriCall] = OrderedDict()
        self._steps: list[NodeEvent] = []

    def look(self, scene: Scene) -> Iterator[Verdict]:
        self._steps += [event for event in scene.node_events if event.kind == "clock_step"]
        self._steps = [event for event in self._steps[-8:] if scene.now - event.time < CLOCK_NS]
        for call in scene.ended:
            if call.method in STARTS and call.pod is not None and scene.kubelet_of(call) is not None:
                self._take(call, scene)
        for key, trouble, end in self._troubles.shown(scene.now):
            yield self._verdict(key, trouble, scene, end=end)

    def _take(self, call: CriCall, scene: Scene) -> None:
        bad = failed(call) or gave_up(call)
        if call.method == "RunPodSandbox" and call.handler is not None and (bad or call.rpc.status == "OK"):
            self._handlers.setdefault(call.handler, Counter())[bad] += 1
            if len(self._handlers) > MAX_HANDLERS:
                self._handlers.popitem(last=False)
        if call.method == "CreateContainer" and call.rpc.status == "OK" and call.pod and call.container:
            self._created[(call.pod.uid, call.container.name, call.container.attempt)] = call
            if len(self._created) > MAX_CREATED:
                self._created.popitem(last=False)
        key = self._key(call)
        if bad and scene.unexplained(call, self.kind):
            self._troubles.add(key, call).followers += reserved(call)
        elif call.rpc.status == "OK":
            trouble = self._troubles.get(key)
            if trouble is not None and trouble.latest.method == call.method:
                self._troubles.over(key)

    def _key(self, call: CriCall) -> Hashable:
        """What is expected to fail together."""
        path, handler = call.rpc.peer.path, call.handler
        if call.method == "RunPodSandbox" and handler and not self._handlers.get(handler, Counter())[False]:
            return path, "handler", handler
        name = "" if call.method == "RunPodSandbox" or call.container is None else call.container.name
        return path, call.pod.uid if call.pod else None, name

    # what is said

    def _verdict(self, key: Hashable, trouble: Trouble, scene: Scene, *, end: int | None) -> Verdict:
        calls = trouble.named
        causes = [call for call in calls if not reserved(call)]
        cause = causes[-1] if causes else trouble.first
        times = wording.times(trouble.times)
        first = next((call for call in calls if gave_up(call)), None)
        unknown: list[str] = []
        confidence: Confidence = "high"
        handler = key[2] if isinstance(key, tuple) and key[1] == "handler" else None
        who = f"{cause.method} with runtime handler {handler}" if handler else wording.call(cause)
        summary = f"{who} failed {times}"
        followers = trouble.followers
        if followers and first is not None:
            summary += self._abandoned(first, calls, followers)
            unknown.append(f"What the runtime does for the first {first.method}: see its steps, if any were seen.")
        elif followers and not causes:
            conflict, confidence = self._unseen(trouble)
            summary += conflict
            if confidence != "high":
                unknown.append("The attempt that holds the name: it began before the trace, or was not seen.")
        else:
            summary += f": {said(cause)}"
        if cause.volumes and gave_up(cause):
            summary += (
                f"; it mounts volumes ({', '.join(cause.volumes)}): changing the owner or label of many files"
                " is a suspected reason"
            )
            confidence = "medium"
        if handler:
            summary += self._others(str(handler))
        contradiction = self._contradiction(cause, scene) if trouble.times > 1 else None
        if contradiction:
            summary += f"; {contradiction}"
        return Verdict(
            self.kind, key, "warning", trouble.start, f"{summary}.",
            end=end,
            pods=trouble.all_pods,
            calls=calls,
            explains=frozenset(trouble.calls),
            evidence=told((*causes[:8], trouble.latest)),
            confidence=confidence,
            unknown=tuple(unknown),
            next_steps=_steps(cause),
        )  # fmt: skip

    def _abandoned(self, first: CriCall, calls: tuple[CriCall, ...], followers: int) -> str:
        """The kubelet gave an attempt up; the runtime goes on with it and keeps its name."""
        lasted = wording.seconds((first.rpc.end or first.rpc.start) - first.rpc.start)
        holder = next((found[1] for call in calls if (found := _HOLDER.search(call.rpc.error or ""))), None)
        where = f" as {'sandbox' if first.method == 'RunPodSandbox' else 'container'} {holder[:13]}" if holder else ""
        return (
            f": the kubelet gave the first attempt up after {lasted}, and the runtime still has it{where};"
            f" that its name is reserved since ({followers} times) follows from that"
        )

    def _unseen(self, trouble: Trouble) -> tuple[str, Confidence]:
        """All that is seen are name conflicts: an attempt number used twice, or a first attempt before our time."""
        call = trouble.first
        made = None
        if call.method == "CreateContainer" and call.pod and call.container:
            made = self._created.get((call.pod.uid, call.container.name, call.container.attempt))
        if made is not None and call.container is not None:
            ago = wording.seconds(call.rpc.start - made.rpc.start)
            told = (
                f": its attempt number {call.container.attempt} is used again, while that container was made {ago}"
                f" before ({(made.container_id or '')[:13]})"
            )
            steps = [step for step in self._steps if made.rpc.start <= step.time <= call.rpc.start + NS]
            if steps:
                text = steps[-1].text.rstrip(".")
                told += f"; in between: {text[0].lower()}{text[1:]}, so the kubelet takes its old status for newer"
            return told, "high" if steps else "medium"
        held = _HOLDER.search(call.rpc.error or "")
        who = f" by {held[1][:13]}" if held else ""
        return f": its name is reserved{who}, an earlier attempt which the runtime still has", "medium"

    def _others(self, handler: str) -> str:
        bad = self._handlers.get(handler, Counter())[True]
        good = sum(count[False] for name, count in self._handlers.items() if name != handler)
        return f"; all {bad} sandboxes with this handler failed, {good} with others were made" if good else ""

    def _contradiction(self, call: CriCall, scene: Scene) -> str | None:
        """A container that runs although the kubelet tries to make its next attempt."""
        if call.container is None or call.pod is None:
            return None
        kubelet = scene.kubelet_of(call)
        run = kubelet.relist if kubelet is not None else None
        listed = run.relist.list_containers if run is not None else None
        mine = [
            item
            for item in (listed.containers if listed is not None else None) or ()
            if item.pod is not None and item.pod.uid == call.pod.uid and item.container.name == call.container.name
        ]
        return contradiction(mine)


def contradiction(items: list[ListedContainer]) -> str | None:
    """Words on a running container that was made "before" an earlier attempt that ended, by the runtime's clock."""
    running = next((item for item in items if item.state == RUNNING), None)
    if running is None:
        return None
    for item in items:
        earlier = item.container.attempt < running.container.attempt
        if item.state == EXITED and earlier and item.created_at > running.created_at:
            return (
                f"its attempt {running.container.attempt} is running, but was made before the ended attempt"
                f" {item.container.attempt} by the runtime's clock: the clock was set back, the kubelet takes the ended"
                " one for the current, and the service is probably up"
            )
    return None


def reserved(call: CriCall) -> bool:
    """Whether it failed only because an earlier attempt still has the name."""
    return bool(call.rpc.error and _RESERVED.search(call.rpc.error))


def _steps(call: CriCall) -> tuple[str, ...]:
    pod = call.pod
    where = f"-n {pod.namespace} {pod.name}" if pod else ""
    return (
        f"kubectl describe pod {where}".rstrip(),
        "GET /api/v1/sync-passes?pod=NAMESPACE/NAME: which calls were made for the pod, and how long each took",
        "crictl ps -a and crictl pods: what the runtime has of it",
    )
