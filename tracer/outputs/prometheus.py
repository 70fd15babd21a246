"""Metrics: rows counted as they come, and at each scrape what is open now (docs/metrics.md)."""

import threading
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

from tracer.outputs import labels
from tracer.outputs.exposition import exposition
from tracer.outputs.live import LiveCollector
from tracer.outputs.recent import REMEMBERED, Recent
from tracer.outputs.tally import Counter, Histogram, Summary
from tracer.rows import Kind, Live, Row, unix_ns
from tracer.store import Status

__all__ = ["Metrics", "exposition"]

NS = 1_000_000_000

LIST_LIMIT_BYTES = 16 << 20
"""The largest answer the kubelet accepts (`maxMsgSize` of its CRI client) and containerd sends."""

LARGEST_WINDOW_NS = 300_000_000_000
"""The largest list of the last five to ten minutes is shown: every scrape sees it, and it goes when the pods went."""

# Seconds. 120: the kubelet's runtimeRequestTimeout.
CALL_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120, 300)
# 180: the kubelet calls its PLEG unhealthy (`genericPlegRelistThreshold`).
RELIST_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 120, 180)
# From the start of one relist to the next: one second and what the relist took.
INTERVAL_SECONDS = (1.01, 1.03, 1.1, 1.3, 2, 3, 5, 10, 30, 60, 120, 180)
STEP_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)
DETECTION_SECONDS = (0.1, 0.3, 1, 1.5, 2, 3, 10, 30, 120)
PASS_SECONDS = (0.03, 0.1, 0.3, 1, 3, 10, 30, 120, 600)
# 240: the kubelet gives RunPodSandbox up.
START_SECONDS = (0.1, 0.5, 2, 10, 60, 240)

# Label values with the fields that hold them.
STAGES = {stage: f"{stage}_seconds" for stage in ("request_wait", "service", "response_wait")}
RELIST_STAGES = {stage: f"{stage}_seconds" for stage in ("list_sandboxes", "list_containers", "inspect")}
START_STAGES = ("sandbox", "image", "create", "start", "hook")  # of sync passes; and WAIT
WAIT = "wait"
RELIST_KINDS = ("generic", "pod", "evented")
EVENT_TYPES = ("ContainerStarted", "ContainerDied", "ContainerRemoved", "ContainerChanged", "PodSync")
METHOD_SOURCES = ("header", "inferred", "unknown")
NODE_EVENTS = ("kubelet_started", "runtime_stopped", "runtime_started", "oom_kill", "clock_step")
STEP_KINDS = ("shim", "runc", "cni", "exec")

LASTING = frozenset({"Wait", "Connect"})
"""Methods of shims that say nothing by how long they take: Wait lasts as long as the process it waits for."""

# Sets of label values at most, so that all metrics together stay below 2,000 series whatever the peers send. A kubelet
# uses about 26 methods with one or two statuses, other clients some more.
CALL_SETS = 92
DURATION_SETS = 40
STEP_SETS = 20  # a dozen methods of shims, seven commands of runc, and the plugins of one or two networks
FINDING_KINDS = 48  # all there are; no peer chooses them
METHOD_SETS = len(labels.CRI_METHODS - labels.STREAMS) + 2  # and other, unknown


class Metrics:
    """Counts every final row once. `feed` is for one thread; scrapes may come from any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers its metrics with `registry`, which must not have them yet."""
        self._registry = registry
        self._lock = threading.Lock()
        self._recent: dict[Kind, Recent] = {kind: Recent() for kind in get_args(Kind)}
        self._largest = _Largest()
        self._calls = Counter(
            "criscope_cri_calls_total", "gRPC calls that ended.", ("method", "status", "client"), limit=CALL_SETS
        )
        self._sources = Counter(
            "criscope_calls_by_method_source_total", "Calls that ended, by how their method is known.", ("source",),
            limit=len(METHOD_SOURCES), known=[(source,) for source in METHOD_SOURCES],
        )  # fmt: skip
        self._durations = Histogram(
            "criscope_cri_call_duration_seconds", "From the request's first byte until its client had read the answer.",
            ("method", "client"), bounds=CALL_SECONDS, limit=DURATION_SETS,
        )  # fmt: skip
        self._stages = Summary(
            "criscope_cri_call_stage_seconds", "Time of calls by who had to act.", ("method", "stage"),
            limit=METHOD_SETS * len(STAGES),
        )  # fmt: skip
        self._bytes = Summary(
            "criscope_cri_message_bytes", "Size of requests and answers.", ("method", "direction"),
            limit=METHOD_SETS * 2,
        )  # fmt: skip
        self._relists = Counter(
            "criscope_pleg_relists_total", "Relists that ended.", ("kind", "outcome"), limit=len(RELIST_KINDS) * 2,
            known=[(kind, outcome) for kind in ("generic", "pod") for outcome in ("ok", "failed")],
        )  # fmt: skip
        self._relist_durations = Histogram(
            "criscope_pleg_relist_duration_seconds", "First request sent to last answer read.", ("kind",),
            bounds=RELIST_SECONDS, limit=len(RELIST_KINDS),
        )  # fmt: skip
        self._intervals = Histogram(
            "criscope_pleg_relist_interval_seconds", "Start to start of consecutive relists.", bounds=INTERVAL_SECONDS
        )
        self._relist_stages = Histogram(
            "criscope_pleg_relist_stage_seconds", "Parts of relists.", ("stage",), bounds=RELIST_SECONDS,
            limit=len(RELIST_STAGES),
        )  # fmt: skip
        self._events = Counter(
            "criscope_pleg_events_total", "PLEG events.", ("type",), limit=len(EVENT_TYPES),
            known=[(kind,) for kind in EVENT_TYPES],
        )  # fmt: skip
        self._passes = Histogram(
            "criscope_sync_pass_duration_seconds", "Passes of pod workers that made calls.", ("kind",),
            bounds=PASS_SECONDS, limit=7,
        )  # fmt: skip
        self._starts = Histogram(
            "criscope_pod_start_stage_seconds", "Parts of the first pass of pods.", ("stage",), bounds=START_SECONDS,
            limit=len(START_STAGES) + 1,
        )  # fmt: skip
        self._steps = Histogram(
            "criscope_runtime_step_duration_seconds", "Calls to shims, and processes that the runtime ran.",
            ("name", "kind"), bounds=STEP_SECONDS, limit=STEP_SETS,
        )  # fmt: skip
        self._findings = Counter("criscope_findings_total", "Findings.", ("kind",), limit=FINDING_KINDS)
        self._active: dict[str, str] = {}  # kind of each finding that has not ended, by its id
        self._detections = Histogram(
            "criscope_exit_detection_seconds", "From the end of a container's process until the PLEG saw it.",
            bounds=DETECTION_SECONDS,
        )  # fmt: skip
        self._nodes = Counter(
            "criscope_node_events_total", "Starts and stops of kubelets and runtimes, OOM kills, clock steps.",
            ("kind",), limit=len(NODE_EVENTS), known=[(kind,) for kind in NODE_EVENTS],
        )  # fmt: skip
        self._count: dict[Kind, Callable[[Row], None]] = {
            "call": self._call, "relist": self._relist, "pleg_event": self._event, "sync_pass": self._pass,
            "step": self._step, "node_event": self._node_event, "exit": self._exit,
        }  # fmt: skip
        registry.register(self)
        ProcessCollector(namespace="criscope", registry=registry)

    def feed(self, rows: Iterable[Row]) -> None:
        """Count the rows that are final and were not counted yet."""
        with self._lock:
            for row in rows:
                if row.kind == "finding":
                    self._finding(row)
                elif row.end is not None and self._recent[row.kind].add(row.id):
                    self._count[row.kind](row)

    def watch(self, live: Live, store_status: Callable[[], Status] | None) -> None:
        """Also show, at each scrape, how `live` and the store are then."""
        self._registry.register(LiveCollector(live, store_status))

    def describe(self) -> Iterator[Metric]:
        """What the registry checks for names that are taken."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Every family, also without samples."""
        with self._lock:
            families: list[Metric] = [
                tally.family()
                for tally in (
                    self._calls, self._sources, self._durations, self._stages, self._bytes, self._relists,
                    self._relist_durations, self._intervals, self._relist_stages, self._events, self._passes,
                    self._starts, self._steps, self._findings, self._nodes, self._detections,
                )
            ]  # fmt: skip
            largest = self._largest.bytes
            active = Counts(self._active.values())
            kinds = sorted(self._findings.known() | active.keys())
        ratio = GaugeMetricFamily("criscope_cri_largest_list_ratio", "Largest list answer, of the 16 MiB allowed.")
        if largest is not None:
            ratio.add_metric([], largest / LIST_LIMIT_BYTES)
        now = GaugeMetricFamily("criscope_findings_active", "Findings that have not ended.", labels=["kind"])
        for kind in kinds:
            now.add_metric([kind], active[kind])
        yield from families
        yield ratio
        yield now

    def _call(self, row: Row) -> None:
        fields = row.fields
        service, name, ended_by = fields["service"], fields["method"], fields["ended_by"]
        method, client = labels.method(service, name), labels.client(fields["client"]["role"])
        self._calls.add((method, labels.status(fields["status"], ended_by), client))
        self._sources.add((fields["method_source"],))
        if fields["streaming"] or ended_by == "unknown" or not labels.is_cri(service):
            # A stream lasts as long as it pleases; so may a foreign service's, which we do not know.
            # A call that was lost from sight ended at an unknown time.
            return
        self._durations.observe((method, client), fields["duration_seconds"])
        for stage, field in STAGES.items():
            seconds = fields[field]
            if seconds is not None:
                self._stages.observe((method, stage), seconds)
        self._bytes.observe((method, "request"), fields["request_bytes"])
        self._bytes.observe((method, "response"), fields["response_bytes"])
        if method.startswith("List"):
            self._largest.add(row.start, fields["response_bytes"])

    def _relist(self, row: Row) -> None:
        fields = row.fields
        kind = fields["kind"]
        self._relists.add((kind, fields["outcome"]))
        self._relist_durations.observe((kind,), fields["duration_seconds"])
        if fields["interval_seconds"] is not None:
            self._intervals.observe((), fields["interval_seconds"])
        for stage, field in RELIST_STAGES.items():
            seconds = fields[field]
            # Most relists inspect nothing: those would bury the time of the others.
            if seconds is not None and (stage != "inspect" or fields["inspections"]):
                self._relist_stages.observe((stage,), seconds)

    def _event(self, row: Row) -> None:
        self._events.add((row.fields["type"],))

    def _pass(self, row: Row) -> None:
        fields = row.fields
        self._passes.observe((fields["kind"],), fields["duration_seconds"])
        if fields["kind"] == "create":
            self._start(row)

    def _start(self, row: Row) -> None:
        """The stages that ended, each as often as it came: there is one image, create and start a container."""
        for stage in row.fields["stages"]:
            if stage["name"] in START_STAGES and stage["duration_seconds"] is not None:
                self._starts.observe((stage["name"],), stage["duration_seconds"])
        seen = row.fields["config_seen"]
        if seen is None or row.fields["outcome"] == "failed":
            return  # the attempt that succeeds tells how long the pod waited in all
        waited = (row.start - unix_ns(seen)) / NS
        if waited >= 0:  # the clock was not set back meanwhile
            self._starts.observe((WAIT,), waited)

    def _step(self, row: Row) -> None:
        fields = row.fields
        if fields["kind"] == "shim" and fields["name"] in LASTING:
            return
        self._steps.observe((fields["name"], fields["kind"]), fields["duration_seconds"])

    def _finding(self, row: Row) -> None:
        """Counted when it begins, shown as long as it is active."""
        kind = row.fields["kind"]
        if self._recent["finding"].add(row.id):
            self._findings.add((kind,))
        if row.end is not None:
            self._active.pop(row.id, None)
        elif len(self._active) < REMEMBERED:
            self._active[row.id] = kind

    def _exit(self, row: Row) -> None:
        seconds = row.fields["detection_seconds"]
        if seconds is not None:
            self._detections.observe((), seconds)

    def _node_event(self, row: Row) -> None:
        self._nodes.add((row.fields["kind"],))


class _Largest:
    """The largest value of the last one to two windows of time."""

    def __init__(self) -> None:
        self._window = 0
        self._before: int | None = None
        self._now: int | None = None

    @property
    def bytes(self) -> int | None:
        return max((size for size in (self._before, self._now) if size is not None), default=None)

    def add(self, time: int, size: int) -> None:
        """`time` in Unix ns."""
        window = time // LARGEST_WINDOW_NS
        if window - self._window not in (0, -1):  # calls of the last window may end in this one
            self._before = self._now if window == self._window + 1 else None
            self._window, self._now = window, None
        self._now = size if self._now is None else max(self._now, size)
