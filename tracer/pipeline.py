"""The pipeline: composes the stages from records to rows, one kubelet after the other kept apart."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tracer import health, node, plugins
from tracer.cgroups import container_ids, pod_uid
from tracer.chains import Chains
from tracer.cri import Cri
from tracer.facts import STREAMS, Answer, CriCall, CriEvent, Done, Named, Sent
from tracer.fields import NS, Rows
from tracer.findings.board import LOOK_NS, Board
from tracer.findings.rules import rules
from tracer.findings.scene import Scene
from tracer.identity import Identity
from tracer.kubelet.kubelet import Kubelet
from tracer.kubelet.runs import ActivityKind
from tracer.kubelet.telling import Changed
from tracer.node import NodeEvent
from tracer.observed import Observation
from tracer.paths import is_plugin, is_ttrpc
from tracer.records import Closed, Data, Exec, Exit, OomKill, Opened, Record
from tracer.rows import Row
from tracer.rpc import Joined, Left, Rpc
from tracer.runtime.runtime import Runtime
from tracer.runtime.step import Step
from tracer.streams import Gap, Peer, Streams

KUBELETS = frozenset({
    "kubelet", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "kubelite", "hyperkube", "edgecore", "edged",
})  # fmt: skip
"""Process names under which kubelets run: alone, or inside k3s, RKE2, k0s, MicroK8s, OpenShift 3, KubeEdge."""

MAX_KUBELETS = 64
"""Kubelet processes remembered: one a node and restart; kind runs a few nodes on one kernel."""

OPEN_AFTER_NS = 250_000_000
"""A call open for longer is shown while it is open; most last a millisecond and would only cost."""


SLOW_NS = 700_000_000
"""What has been open for longer is worth a look at its processes, before any rule speaks of it."""

CLOCK_STEP_NS = 500_000_000
"""The wall clock is set when it moves by more than this between two measurements; NTP slews at most 0.5 ms a second."""


class Pipeline:
    """Feed records, get rows; `tick` when time passes without records. One thread at a time."""

    def __init__(self, realtime_offset_ns: int) -> None:
        self.rows = Rows(realtime_offset_ns)
        self.streams = Streams()
        self.rpc = Rpc()
        self.cri = Cri()
        self.identity = Identity()
        self.runtime = Runtime(self.identity)
        self.kubelets: OrderedDict[tuple[str, int], Kubelet] = OrderedDict()
        self.now = 0
        self.board = Board(rules())
        self.observed: dict[int, Observation] = {}  # what processes do, from outside; empty for a capture
        self._servers = node.Servers()
        self._chains = Chains()
        self._connections: dict[tuple[str, int], set[str]] = {}  # open ones of each kubelet
        self._scene = self._blank()
        self._open: dict[str, CriCall] = {}  # asked for something we know, and not over
        self._lost_at: int | None = None
        self._looked = 0

    # feeding

    def feed(self, record: Record) -> list[Row]:
        out: list[Row] = []
        self.now = max(self.now, record.time)
        if isinstance(record, (Data, Opened)) and is_ttrpc(record.path):
            self._ran(record, out)
            return out
        if isinstance(record, (Exec, Exit, Closed)):
            self._ran(record, out)
            if isinstance(record, Exit):
                self._node(self._servers.exited(record.pid, record.time), out)
        elif isinstance(record, OomKill):
            self._node([self._oom_kill(record)], out)
        for item in self.streams.feed(record):
            if isinstance(item, Gap):
                self._lost_at = record.time
                for kubelet in self.kubelets.values():
                    kubelet.lost_at = record.time
            for event in self.rpc.feed(item, self.streams.known(item.connection)):
                if isinstance(event, Left):
                    self._connections.get((event.peer.path, event.peer.client_pid), set()).discard(item.connection)
                    self._node(self._servers.left(event.peer, event.time, by_server=event.by_server), out)
                elif isinstance(event, Joined):
                    self._servers.joined(event.peer)
                for cri_event in self.cri.feed(event):
                    self.take(cri_event, out)
        return out

    def tick(self, now: int) -> list[Row]:
        """Rows that only the passing of time brings: runs that fell silent, and what the findings' rules see."""
        out: list[Row] = []
        self.now = max(self.now, now)
        for kubelet in self.kubelets.values():
            self._changed(kubelet.tick(self.now), out)
        self._stepped(self.runtime.tick(self.now), out)
        if self.now - self._looked >= LOOK_NS:
            self._looked = self.now
            self._look(out)
        return out

    def clock(self, offset: int) -> list[Row]:
        """The wall clock is `offset` ns ahead of the monotonic clock now."""
        out: list[Row] = []
        step = offset - self.rows.offset
        self.rows.offset = offset
        if abs(step) >= CLOCK_STEP_NS:
            self._node([node.clock_step(self.now, step)], out)
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
        out += [
            self.rows.call(call, role(call.rpc.peer), *self.activity(call), now=self.now)
            for call in self.cri.open_calls()
            if self.now - call.rpc.start >= older_than
        ]
        out += [
            self.rows.step(step)
            for step in self.runtime.open_steps()
            if step.shown and self.now - step.start >= older_than
        ]
        for kubelet in self.kubelets.values():
            out += [self.rows.relist(item) for item in kubelet.open_relists() if self.now - item.start >= older_than]
            out += [self.rows.sync_pass(item) for item in kubelet.open_passes()]
        return out

    def take(self, event: CriEvent, out: list[Row]) -> None:
        """One CRI event; its rows are added to `out`."""
        call = event.call
        for named in self.identity.feed(event):
            self._show_again(named, out)
        self._stepped(self.runtime.cri(event), out)
        if isinstance(event, Answer):
            kubelet = self._kubelet_of(call) if call.event is not None else None
            if kubelet is not None:
                self._changed(kubelet.streamed(call, event.time), out)
            return
        if isinstance(event, Named):
            kubelet = self._kubelet_of(call)
            if kubelet is None:
                self._show_again(call, out)
            else:
                self._changed(kubelet.named(call), out)
            return
        if isinstance(event, Sent):
            self._open[call.id] = call
        else:
            self._open.pop(call.id, None)
            self._scene.ended.append(call)
            if call.rpc.received is not None:
                self._node(self._servers.served(call.rpc.peer, call.rpc.received), out)
        kubelet = self._kubelet_of(call, out)
        if kubelet is None:
            if isinstance(event, Done):
                self._show_again(call, out)
            return
        if isinstance(event, Sent):
            self._changed(kubelet.sent(call), out)
            return
        self._changed(kubelet.done(call), out)
        out += [self.rows.exit(chain) for chain in self._chains.done(call)]

    def _show_again(self, call: CriCall, out: list[Row]) -> None:
        out.append(self.rows.call(call, role(call.rpc.peer), *self.activity(call)))

    def _changed(self, changed: Changed, out: list[Row]) -> None:
        for call, kind, of in changed.calls:
            out.append(self.rows.call(call, "kubelet", kind, of))
        # A relist is shown when it is over (or open for long): most last two milliseconds.
        relists = [relist for relist in changed.relists if relist.end is not None]
        passes = [sync for sync in changed.passes if sync.end is not None]
        out += [self.rows.relist(relist) for relist in relists]
        out += [self.rows.event(event) for event in changed.events]
        out += [self.rows.sync_pass(sync) for sync in passes]
        self._scene.relists += relists
        self._scene.events += changed.events
        self._scene.passes += passes
        chains = (self._chains.event(event) for event in changed.events)
        out += [self.rows.exit(chain) for chain in chains if chain is not None]

    def _ran(self, record: Record, out: list[Row]) -> None:
        """What a record says of the inside of the runtime."""
        self._stepped(self.runtime.record(record), out)
        out += [self.rows.exit(self._chains.exited(exited)) for exited in self.runtime.take_exits()]

    def _stepped(self, steps: list[Step], out: list[Row]) -> None:
        """Steps that were made or changed: shown when they are over, or open for long (`open`)."""
        over = [step for step in steps if step.end is not None]
        out += [self.rows.step(step) for step in over]
        self._scene.steps += over

    def _node(self, events: list[NodeEvent], out: list[Row]) -> None:
        out += [self.rows.node_event(event) for event in events]
        self._scene.node_events += events

    def slow_processes(self) -> list[int]:
        """Process ids that something slow waits for, or that a finding speaks of, the most important first."""
        found: dict[int, None] = {}
        for finding in self.board.active:
            found |= dict.fromkeys(finding.verdict.processes)
        for call in self._open.values():
            if self.now - call.rpc.start >= SLOW_NS and call.method not in STREAMS:
                found |= dict.fromkeys((call.rpc.peer.server_pid, call.rpc.peer.client_pid))
        for step in self.runtime.open_steps():
            if step.pid and step.shown and self.now - step.start >= SLOW_NS:
                found[step.pid] = None
        found.pop(0, None)
        return list(found)

    def _oom_kill(self, record: OomKill) -> NodeEvent:
        """Whose process it was, if its cgroup says so: a container's id is in the path, or its pod's uid is."""
        path = record.cgroup or ""
        known = next((each for ident in container_ids(path) if (each := self.identity.containers.get(ident))), None)
        uid = pod_uid(path)
        pod = known.pod if known else self.identity.pod(uid) if uid else None
        return node.oom_kill(record, pod, known.container if known else None)

    def _look(self, out: list[Row]) -> None:
        """Let the rules look at what is open and what came since they looked before."""
        scene, self._scene = self._scene, self._blank()
        scene.now, scene.lost_at, scene.observed = self.now, self._lost_at, self.observed
        scene.open = [*self._open.values(), *(call for call in self.cri.open_calls() if call.id not in self._open)]
        scene.kubelets = [
            (path, pid, kubelet) for (path, pid), kubelet in self.kubelets.items() if self._connections.get((path, pid))
        ]
        out += [self.rows.finding(finding) for finding in self.board.look(scene)]

    def _blank(self) -> Scene:
        return Scene(self.activity, self._servers, self.runtime)

    def activity(self, call: CriCall) -> tuple[ActivityKind, str | None]:
        """Kind and id of what a call belongs to."""
        plugin = plugins.kind_of(call.service)
        if plugin is not None:
            return plugin, None
        kubelet = self._kubelet_of(call)
        return ("other_client", None) if kubelet is None else kubelet.activity_of(call)

    def _kubelet_of(self, call: CriCall, out: list[Row] | None = None) -> Kubelet | None:
        peer = call.rpc.peer
        if not call.cri and (call.method_source != "unknown" or is_plugin(peer.path)):
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
            if fresh and out is not None:
                self._node([node.kubelet_started(peer, call.rpc.start)], out)
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

    def findings(self) -> list[dict[str, Any]]:
        """Findings that hold now, as REST shows them."""
        return [self.rows.finding(finding).fields for finding in self.board.active]

    def open_calls(self) -> list[tuple[str | None, str, str, int]]:
        """(service, method or "unknown", client role, start in Unix ns) of every call that has not ended."""
        return [
            (call.service, call.method or "unknown", role(call.rpc.peer), call.rpc.start + self.rows.offset)
            for call in self.cri.open_calls()
        ]

    def counters(self) -> dict[str, int]:
        """Every stage's counters."""
        flat = {"findings.overlooked": self.board.overlooked}
        for name, stats in (
            ("streams", self.streams.stats),
            ("rpc", self.rpc.stats),
            ("cri", self.cri.stats),
            ("identity", self.identity.stats),
            ("runtime", self.runtime.stats),
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
