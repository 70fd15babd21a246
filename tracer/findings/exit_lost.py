"""A container is listed as running, but the runtime finds no process of it: its exit was lost."""

import re
from collections.abc import Hashable, Iterator

from tracer.facts import RUNNING, CriCall
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles, failed, said, told

LEAST = 2
LEAST_NS = 5 * NS
"""A container that just ends is not running for an exec while the last list still shows it."""

_GONE = re.compile(r"not running|no running task|task \S+ not found|process already finished|stopped container")


class ExitLost:
    """One finding for each container."""

    kind = "exit_lost"

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._restarted: dict[str, int] = {}  # runtime -> when it was started

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for event in scene.node_events:
            if event.kind == "runtime_started" and event.runtime is not None:
                self._restarted[event.runtime] = event.time
        for call in scene.ended:
            if call.method != "ExecSync" or call.container_id is None or scene.kubelet_of(call) is None:
                continue
            key: Hashable = (call.rpc.peer.path, call.container_id)
            if failed(call) and _GONE.search(call.rpc.error or "") and scene.unexplained(call, self.kind):
                self._troubles.add(key, call)
            elif call.rpc.status == "OK":
                self._troubles.over(key)
        for key, trouble, end in self._troubles.shown(scene.now):
            if trouble.times >= LEAST and trouble.last - trouble.start >= LEAST_NS:
                listed = _listed(trouble, scene)
                if listed is not None:
                    yield self._verdict(key, trouble, listed, end=end)

    def _verdict(self, key: Hashable, trouble: Trouble, listed: CriCall, *, end: int | None) -> Verdict:
        call = trouble.latest
        restart = self._restarted.get(call.rpc.peer.path)
        since = ""
        if restart is not None and restart <= trouble.start:
            since = f"; the runtime was restarted {wording.seconds(trouble.start - restart)} before the first of them"
        name = f"Container {call.container.name}" if call.container else f"Container {(call.container_id or '')[:13]}"
        where = f" in pod {wording.pod(call.pod)}" if call.pod else ""
        return Verdict(
            self.kind, key, "warning", trouble.start,
            f"{name}{where} is listed as running, yet {trouble.times} execs found no process of it ({said(call)}): its"
            f" exit was likely lost, so nothing restarts it{since}.",
            end=end,
            pods=trouble.all_pods,
            calls=(*trouble.named, listed),
            explains=frozenset(trouble.calls),
            evidence=[
                *told((call,)),
                Evidence(listed.rpc.start, "ListContainers shows it as running.", listed.id),
            ],
            confidence="high" if since else "medium",
            next_steps=(
                f"crictl inspect {(call.container_id or '')[:13]}: is its pid alive?",
                f"crictl stop {(call.container_id or '')[:13]}: the kubelet then restarts it.",
            ),
        )  # fmt: skip


def _listed(trouble: Trouble, scene: Scene) -> CriCall | None:
    """The kubelet's latest list, if it began after the last exec had failed and shows the container as running."""
    kubelet = scene.kubelet_of(trouble.latest)
    run = kubelet.relist if kubelet is not None else None
    listed = run.relist.list_containers if run is not None else None
    if listed is None or listed.containers is None or listed.rpc.start < trouble.last:
        return None
    ident = trouble.latest.container_id
    return listed if any(item.id == ident and item.state == RUNNING for item in listed.containers) else None
