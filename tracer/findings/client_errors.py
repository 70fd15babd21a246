"""Calls of other clients than the kubelet that fail: whose they are."""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles, failed, told

LEAST = 3
"""Errors of one kind before they are told of."""

FORGIVEN_NS = 3 * 3600 * NS
"""Some clients look once an hour."""

RACE_NS = NS
"""A container that was removed this short before its status was asked for: nobody's fault."""

MAX_REMOVED = 1024


class ClientErrors:
    """One finding for each client program, method and status."""

    kind = "client_errors"

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._sandboxes: Counter[Hashable] = Counter()  # calls about a container that gave a sandbox's id
        self._removed: OrderedDict[str, int] = OrderedDict()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method == "RemoveContainer" and call.container_id and call.rpc.status == "OK":
                self._removed[call.container_id] = call.rpc.end or call.rpc.start
                if len(self._removed) > MAX_REMOVED:
                    self._removed.popitem(last=False)
            if call.cri and failed(call) and call.rpc.status != "UNIMPLEMENTED" and other(call, scene):
                self._take(call, scene)
        for key, trouble, end in self._troubles.shown(scene.now, FORGIVEN_NS):
            if trouble.times >= LEAST:
                yield self._verdict(key, trouble, end=end)
            if end is not None:
                del self._sandboxes[key]

    def _take(self, call: CriCall, scene: Scene) -> None:
        removed = self._removed.get(call.container_id or "")
        if removed is not None and call.rpc.status == "NOT_FOUND" and call.rpc.start - removed <= RACE_NS:
            return
        if not scene.unexplained(call, self.kind):
            return
        key = (call.rpc.peer.path, call.rpc.peer.client_comm, call.method, call.rpc.status)
        self._troubles.add(key, call)
        if call.container_id is not None and _is_sandbox(call.container_id, scene):
            self._sandboxes[key] += 1

    def _verdict(self, key: Hashable, trouble: Trouble, *, end: int | None) -> Verdict:
        call = trouble.latest
        peer = call.rpc.peer
        status = call.rpc.status or "an error"
        ids = ""
        if self._sandboxes[key] == trouble.times:
            ids = " with the ids of sandboxes"
        elif self._sandboxes[key]:
            ids = f", {self._sandboxes[key]} of them with the ids of sandboxes"
        return Verdict(
            self.kind, key, "info", trouble.start,
            f"Client {peer.client_comm or 'unknown'} (process {peer.client_pid}) got {status} for {call.method}"
            f"{ids} {trouble.times} times within {wording.seconds(trouble.last - trouble.start)}; the kubelet is not"
            " involved.",
            end=end,
            pods=trouble.all_pods,
            calls=trouble.named,
            explains=frozenset(trouble.calls),
            evidence=told(trouble.named[-4:]),
            next_steps=(f"ps -o pid,ppid,args -p {peer.client_pid}; cat /proc/{peer.client_pid}/cgroup: whose it is",),
        )  # fmt: skip


def other(call: CriCall, scene: Scene) -> bool:
    """Whether a client that is no kubelet made the call."""
    return scene.activity(call)[0] == "other_client"


def _is_sandbox(ident: str, scene: Scene) -> bool:
    for _, _, kubelet in scene.kubelets:
        listed = kubelet.relist.relist.list_sandboxes if kubelet.relist is not None else None
        if listed is not None and any(item.id == ident for item in listed.sandboxes or ()):
            return True
    return False
