"""Another client gives an answer up that is too large for it, and for it alone."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Verdict
from tracer.findings.scene import NS, Scene
from tracer.findings.troubles import Trouble, Troubles

FORGIVEN_NS = 3600 * NS
"""Who did not try for longer has found another way."""

CRICTL_LIMIT = 4 << 20
"""Bytes that a gRPC client takes unless told otherwise."""


class ClientLimit:
    """One finding for each client program that gives an answer up which it finds too large; the kubelet does not."""

    kind = "client_limit"

    def __init__(self) -> None:
        self._sizes: OrderedDict[tuple[str, str], CriCall] = OrderedDict()  # the kubelet's latest, by method
        self._troubles = Troubles()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method is None or not call.method.startswith("List"):
                continue
            key = (call.rpc.peer.path, call.method)
            if scene.kubelet_of(call) is not None:
                if call.rpc.status == "OK" and call.rpc.response_bytes > CRICTL_LIMIT:
                    self._sizes[key] = call
            elif key in self._sizes and _given_up(call):
                self._troubles.add((*key, call.rpc.peer.client_comm), call)
        for name, trouble, end in self._troubles.shown(scene.now, FORGIVEN_NS):
            yield self._verdict(name, trouble, end=end)

    def _verdict(self, key: Hashable, trouble: Trouble, *, end: int | None) -> Verdict:
        call = trouble.latest
        peer = call.rpc.peer
        kubelets = self._sizes[(peer.path, call.method or "")]
        size = f"{kubelets.rpc.response_bytes / (1 << 20):.1f} MiB"
        times = wording.times(trouble.times)
        return Verdict(
            self.kind, key, "info", trouble.start,
            f"Client {peer.client_comm or 'unknown'} (process {peer.client_pid}) gave {call.method} up {times} as its"
            f" answer began: the answer has {size}, likely more than this client takes (gRPC's default is 4 MiB); the"
            " kubelet got the same answer.",
            end=end,
            calls=(*trouble.named, kubelets),
            confidence="medium",
            next_steps=("A newer crictl takes 16 MiB; a filter (--state, --label) makes the answer smaller.",),
        )  # fmt: skip


def _given_up(call: CriCall) -> bool:
    """Whether the client cancelled it as its answer began."""
    return call.rpc.ended_by == "client_cancel" and bool(call.rpc.response_bytes) and not call.rpc.responses
