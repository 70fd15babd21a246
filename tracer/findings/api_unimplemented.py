"""A kubelet speaks a version of the CRI that the server at its socket lacks."""

from collections import OrderedDict
from collections.abc import Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.client_errors import other
from tracer.findings.finding import Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles, said, told

FALLBACK_NS = 5 * NS
"""Kubelets 1.23 to 1.25 try v1 and take v1alpha2 instead at once."""

FORGIVEN_NS = 120 * NS
"""A kubelet that cannot start is started again by systemd after 10 s."""

MAX_SPEAKERS = 64
"""Processes whose version of the CRI is remembered."""


class ApiUnimplemented:
    """One finding for each socket and version."""

    kind = "api_unimplemented"

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._speakers: OrderedDict[int, CriCall] = OrderedDict()  # process -> its latest call that was answered

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if not call.cri:
                continue
            path = call.rpc.peer.path
            if call.rpc.status == "OK":
                self._speakers[call.rpc.peer.client_pid] = call
                if len(self._speakers) > MAX_SPEAKERS:
                    self._speakers.popitem(last=False)
                for key, trouble in self._troubles:
                    if trouble.latest.rpc.peer.path == path and not other(call, scene):
                        self._troubles.over(key)
            elif call.method == "Version" and call.rpc.status == "UNIMPLEMENTED" and not other(call, scene):
                self._troubles.add((path, call.api), call)
        for key, trouble, end in self._troubles.shown(scene.now, FORGIVEN_NS):
            if scene.now - trouble.start >= FALLBACK_NS:
                yield self._verdict(key, trouble, end=end)

    def _verdict(self, key: object, trouble: Trouble, *, end: int | None) -> Verdict:
        call = trouble.latest
        peer = call.rpc.peer
        pids = len({each.rpc.peer.client_pid for each in trouble.calls.values()})
        summary = (
            f"{peer.client_comm} needs runtime.{call.api or 'v1'}, which the server at {peer.path}"
            f" ({peer.server_comm or 'unknown'}, process {peer.server_pid}) lacks: {said(call)}"
        )
        if pids > 1:
            summary += f"; {pids} kubelet processes tried it within {wording.seconds(trouble.last - trouble.start)}"
        behind = self._speakers.get(peer.server_pid)
        if behind is not None:
            summary += (
                f"; that server is a proxy: it asks {behind.rpc.peer.path} itself, with runtime.{behind.api or 'v1'}"
            )
        return Verdict(
            self.kind, str(key), "critical", trouble.start, f"{summary}.",
            end=end,
            calls=trouble.named,
            explains=frozenset(trouble.calls),
            evidence=told(trouble.named[:4]),
            next_steps=(
                "Which version of the CRI the server speaks; kubelets need v1 since Kubernetes 1.26.",
                "The kubelet's --container-runtime-endpoint: is a proxy meant to be there?",
            ),
        )  # fmt: skip
