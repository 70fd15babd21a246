"""The pipeline: composes the stages from records to rows, one kubelet after the other kept apart."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tracer import health
from tracer.cri import Cri
from tracer.facts import Answer, CriCall, CriEvent, Done, Named, Sent
from tracer.fields import NS, Rows
from tracer.identity import Identity
from tracer.kubelet.kubelet import Changed, Kubelet
from tracer.paths import is_ttrpc
from tracer.records import Data, Opened, Record
from tracer.rows import Row
from tracer.rpc import Left, Rpc
from tracer.streams import Gap, Peer, Streams

KUBELETS = frozenset({
    "kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "kubelite", "hyperkube", "edgecore", "edged",
})  # fmt: skip
"""Process names under which kubelets run: alone, or inside k3s, RKE2, k0s, MicroK8s, OpenShift 3, KubeEdge."""

MAX_KUBELETS = 64
"""Kubelet processes remembered: one a node and restart; kind runs a few nodes on one kernel."""

OPEN_AFTER_NS = 250_000_000
"""A call open for longer is shown while it is open; most last a millisecond and would only cost."""


class Pipeline:
    """Feed records, get rows; `tick` when time passes without records. One thread at a time."""

    def __init__(self, realtime_offset_ns: int) -> None:
        self.rows = Rows(realtime_offset_ns)
        self.streams = Streams()
        self.rpc = Rpc()
        self.cri = Cri()
        self.identity = Identity()
        self.kubelets: OrderedDict[tuple[str, int], Kubelet] = OrderedDict()
        self.now = 0
        self._connections: dict[tuple[str, int], set[str]] = {}  # open ones of each kubelet

    # feeding

    def feed(self, record: Record) -> list[Row]:
        out: list[Row] = []
        self.now = max(self.now, record.time)
        if isinstance(record, (Data, Opened)) and is_ttrpc(record.path):
            return out
        for item in self.streams.feed(record):
            if isinstance(item, Gap):
                for kubelet in self.kubelets.values():
                    kubelet.lost_at = record.time
            for event in self.rpc.feed(item, self.streams.known(item.connection)):
                if isinstance(event, Left):
                    self._connections.get((event.peer.path, event.peer.client_pid), set()).discard(item.connection)
                for cri_event in self.cri.feed(event):
                    self._cri(cri_event, out)
        return out

    def tick(self, now: int) -> list[Row]:
        """Rows that only the passing of time brings: runs that fell silent."""
        out: list[Row] = []
        self.now = max(self.now, now)
        for kubelet in self.kubelets.values():
            self._changed(kubelet.tick(self.now), out)
        return out

    def finish(self) -> list[Row]:
        """The last rows of a source that ended: what is still open stays open."""
        now = self.now
        out = self.tick(now + NS)
        self.now = now
        return [*out, *self.open(0)]

    def open(self, older_than: int = OPEN_AFTER_NS) -> list[Row]:
        """Rows of everything open for longer than `older_than` ns."""
        out: list[Row] = []
        for call in self.cri.open_calls():
            if self.now - call.rpc.start >= older_than:
                kubelet = self._kubelet_of(call)
                kind, of = kubelet.activity_of(call) if kubelet else ("other_client", None)
                out.append(self.rows.call(call, role(call.rpc.peer), kind, of))
        for kubelet in self.kubelets.values():
            out += [self.rows.relist(item) for item in kubelet.open_relists() if self.now - item.start >= older_than]
            out += [self.rows.sync_pass(item) for item in kubelet.open_passes()]
        return out

    def _cri(self, event: CriEvent, out: list[Row]) -> None:
        call = event.call
        for named in self.identity.feed(event):
            self._show_again(named, out)
        if isinstance(event, Answer):
            kubelet = self._kubelet_of(call) if call.event is not None else None
            if kubelet is not None:
                self._changed(kubelet.streamed(call, event.time), out)
            return
        if isinstance(event, Named):
            self._show_again(call, out)
            return
        kubelet = self._kubelet_of(call)
        if kubelet is None:
            if isinstance(event, Done):
                out.append(self.rows.call(call, role(call.rpc.peer), "other_client", None))
            return
        changed = kubelet.sent(call) if isinstance(event, Sent) else kubelet.done(call)
        self._changed(changed, out)

    def _show_again(self, call: CriCall, out: list[Row]) -> None:
        kubelet = self._kubelet_of(call)
        kind, of = ("other_client", None) if kubelet is None else kubelet.activity_of(call)
        out.append(self.rows.call(call, role(call.rpc.peer), kind, of))

    def _changed(self, changed: Changed, out: list[Row]) -> None:
        for call, kind, of in changed.calls:
            out.append(self.rows.call(call, "kubelet", kind, of))
        # A relist is shown when it is over (or open for long): most last two milliseconds.
        out += [self.rows.relist(relist) for relist in changed.relists if relist.end is not None]
        out += [self.rows.event(event) for event in changed.events]
        out += [self.rows.sync_pass(sync) for sync in changed.passes if sync.end is not None]

    def _kubelet_of(self, call: CriCall) -> Kubelet | None:
        peer = call.rpc.peer
        if not call.cri and call.method_source != "unknown":
            return None
        if peer.client_comm not in KUBELETS:
            return None
        key = (peer.path, peer.client_pid)
        self._connections.setdefault(key, set()).add(peer.connection)
        kubelet = self.kubelets.get(key)
        if kubelet is None:
            self._forget_former(peer.path)
            # The first thing a kubelet asks, on its first connection, is Version (`validateServiceConnection`).
            fresh = call.method == "Version" and call.rpc.stream == 1
            kubelet = self.kubelets[key] = Kubelet(self.identity.pod_of_seen, fresh=fresh)
            if len(self.kubelets) > MAX_KUBELETS:
                gone, _ = self.kubelets.popitem(last=False)
                self._connections.pop(gone, None)
        return kubelet

    def _forget_former(self, path: str) -> None:
        """A new kubelet process talks to the runtime at `path`: those that have no connection left are gone.

        Not sooner: while a runtime restarts its kubelet has no connection either, and that is when its age matters.
        """
        for key in [key for key in self.kubelets if key[0] == path and not self._connections.get(key)]:
            del self.kubelets[key]
            self._connections.pop(key, None)

    # state

    def pleg(self) -> dict[str, Any]:
        """PLEG health now (`tracer.health.pleg`)."""
        kubelets = [(path, pid, kubelet) for (path, pid), kubelet in self.kubelets.items()]
        return health.pleg(kubelets, self.now, self.rows.offset)

    def open_calls(self) -> list[tuple[str | None, str, str, int]]:
        """(service, method or "unknown", client role, start in Unix ns) of every call that has not ended."""
        return [
            (call.service, call.method or "unknown", role(call.rpc.peer), call.rpc.start + self.rows.offset)
            for call in self.cri.open_calls()
        ]

    def counters(self) -> dict[str, int]:
        """Every stage's counters."""
        flat: dict[str, int] = {}
        for name, stats in (
            ("streams", self.streams.stats),
            ("rpc", self.rpc.stats),
            ("cri", self.cri.stats),
            ("identity", self.identity.stats),
        ):
            flat.update(_numbers(asdict(stats), name))
        return flat


def _numbers(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, int]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", value


def role(peer: Peer) -> str:
    """What a connection's client is: kubelet or other."""
    return "kubelet" if peer.client_comm in KUBELETS else "other"
