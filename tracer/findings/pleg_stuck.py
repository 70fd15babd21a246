"""The kubelet goes on with other calls, but begins no relist: its PLEG is held up inside the kubelet."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene
from tracer.kubelet.kubelet import Kubelet
from tracer.kubelet.relists import RELIST_PERIOD_NS

SHOWN_NS = 5 * NS
"""Relists come a second after the last ended. A busy kubelet is some tenths late."""

WARNING_NS = 10 * NS

MAX_METHODS = 32
"""Methods of its other calls that are remembered; the CRI has some forty."""

Key = tuple[str, int]


@dataclass(slots=True)
class _Other:
    """What a kubelet asks for besides lists, since its relist was due: latest start, and methods."""

    called: int = 0
    methods: dict[str, int] = field(default_factory=dict)  # start of the latest call of each
    unnamed: int = 0  # start of the latest call without a method
    evented: int = 0  # when the runtime's events last stood in for relists


class PlegStuck:
    """One finding for each time in which a kubelet's relists stay out."""

    kind = "pleg_stuck"

    def __init__(self) -> None:
        self._other: dict[Key, _Other] = {}
        self._stuck: dict[Key, Verdict] = {}

    def look(self, scene: Scene) -> Iterator[Verdict]:
        known = {(path, pid) for path, pid, _ in scene.kubelets}
        for call in (*scene.ended, *scene.open):
            key = (call.rpc.peer.path, call.rpc.peer.client_pid)
            if key in known:
                other = self._other.setdefault(key, _Other())
                other.called = max(other.called, call.rpc.start)
                if call.method is None:
                    other.unnamed = max(other.unnamed, call.rpc.start)
                elif call.method in other.methods or len(other.methods) < MAX_METHODS:
                    other.methods[call.method] = max(other.methods.get(call.method, 0), call.rpc.start)
        for path, pid, kubelet in scene.kubelets:
            key = (path, pid)
            verdict = self._of(key, kubelet, scene)
            former = self._stuck.pop(key, None)
            if verdict is not None:
                self._stuck[key] = verdict
                yield verdict
            elif former is not None:
                former.end = scene.now
                yield former
        for table in (self._other, self._stuck):
            for key in [key for key in table if key not in known]:
                del table[key]

    def _of(self, key: Key, kubelet: Kubelet, scene: Scene) -> Verdict | None:
        path, pid = key
        run, ended, other = kubelet.relist, kubelet.relist_end, self._other.get(key)
        if run is None or not run.over or ended is None or other is None:
            return None
        if kubelet.evented:
            other.evented = scene.now
            return None
        due = max(ended + RELIST_PERIOD_NS, other.evented)
        late = scene.now - due
        if late < SHOWN_NS or other.called <= due or other.unnamed >= ended:
            return None  # in time; or silent altogether; or the list came and has no name
        if scene.servers.changed(path, since=ended) or (scene.lost_at is not None and scene.lost_at >= ended):
            return None
        waits = [call for call in scene.open if (call.rpc.peer.path, call.rpc.peer.client_pid) == key]
        if any(call.method in ("ListPodSandbox", "ListContainers") for call in waits):
            return None
        meanwhile = sorted(name for name, start in other.methods.items() if start > due)
        return Verdict(
            self.kind, key, severity_of(late, WARNING_NS, None), due,
            f"The kubelet (process {pid}) began no relist for {wording.seconds(scene.now - ended)} though no list is "
            f"open, while it goes on with other calls ({wording.several(meanwhile)}): its PLEG is held up inside the "
            "kubelet, not by the runtime.",
            evidence=[Evidence(ended, "The last relist ended; the next was due a second later.")],
            confidence="medium",
            unknown=("What the PLEG waits for inside the kubelet: a lock, its cache, or the CPU.",),
            next_steps=(
                "A goroutine dump of the kubelet (its debug endpoint /debug/pprof/goroutine?debug=2): look for Relist.",
                "journalctl -u kubelet around this time: 'event channel is full', or a PLEG that is skipped.",
            ),
        )  # fmt: skip
