"""What is true at the moment of a scrape: what is open and for how long, PLEG health, and how the tracer itself is."""

import datetime as dt
import importlib.metadata
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tracer.outputs import labels
from tracer.rows import Live
from tracer.store import Status

NS = 1_000_000_000

STORE_STATES: tuple[str, ...] = get_args(get_type_hints(Status)["state"])

_ANY = Status("ok", rows=0, bytes=0, queued=0, written=0, rejected=0, dropped=0, deleted=0, failures=0)

_BUSY = "pipeline.busy_ns"
_LOST_BY_PROGRAM = "kernel.lost_records."


class LiveCollector:
    """Reads `live` and the store at each scrape; safe for several scrapes at once."""

    def __init__(self, live: Live, store_status: Callable[[], Status] | None) -> None:
        self._live = live
        self._store_status = store_status
        self._version = importlib.metadata.version("criscope")
        # Shown as 0 when none is open, so that series do not come and go; as many as the closed lists allow.
        self._pairs: frozenset[tuple[str, str]] = frozenset()

    def describe(self) -> Iterator[Metric]:
        """What the registry checks for names that are taken; asks nobody."""
        yield from (_in_flight(), _oldest(), *_pleg({}), *_self({}, {}), _build(self._version))
        if self._store_status is not None:
            yield from _store(_ANY)

    def collect(self) -> Iterator[Metric]:
        yield from self._open_calls()
        yield from _pleg(self._live.pleg())
        yield from _self(self._live.health(), self._live.counters())
        yield _build(self._version)
        if self._store_status is not None:
            yield from _store(self._store_status())

    def _open_calls(self) -> Iterator[Metric]:
        calls = self._live.open_calls()
        now = self._live.now()
        count: dict[tuple[str, str], int] = defaultdict(int)
        oldest: dict[str, int] = {}
        for service, name, role, start in calls:
            method = name if name == labels.UNKNOWN else labels.method(service, name)
            count[method, labels.client(role)] += 1
            oldest[method] = min(start, oldest.get(method, start))
        self._pairs = pairs = self._pairs | count.keys()  # never changed in place: another scrape may be reading it
        in_flight, ages = _in_flight(), _oldest()
        for pair in sorted(pairs):
            in_flight.add_metric(pair, count.get(pair, 0))
        for method in sorted({method for method, _ in pairs} - labels.STREAMS):
            ages.add_metric([method], max(0, now - oldest.get(method, now)) / NS)
        yield in_flight
        yield ages


def _in_flight() -> GaugeMetricFamily:
    return GaugeMetricFamily("criscope_cri_calls_in_flight", "Calls open now.", labels=["method", "client"])


def _oldest() -> GaugeMetricFamily:
    return GaugeMetricFamily("criscope_cri_oldest_call_age_seconds", "Age of the oldest open call.", labels=["method"])


def _build(version: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily("criscope_build_info", "Always 1.", labels=["version"])
    family.add_metric([version], 1)
    return family


def _pleg(health: dict[str, Any]) -> Iterator[Metric]:
    """Of the kubelet nearest to unhealthy; no sample for what is not known."""
    running = health.get("relist_age_seconds")
    if running is None and health.get("stage") is not None:
        running = 0.0  # a kubelet is seen, and no relist of it runs
    yield _gauge("criscope_pleg_relist_in_flight_seconds", "Age of the running relist, 0 between relists.", running)
    start = health.get("last_relist_start")
    timestamp = None if start is None else dt.datetime.fromisoformat(start).timestamp()
    yield _gauge("criscope_pleg_last_relist_timestamp_seconds", "Start of the last listed relist, Unix.", timestamp)
    left = health.get("seconds_until_unhealthy")
    yield _gauge("criscope_pleg_seconds_until_unhealthy", "Until the kubelet calls its PLEG unhealthy.", left)


def _self(health: dict[str, Any], counters: dict[str, int]) -> Iterator[Metric]:
    yield _gauge("criscope_tracing", "1 while records are read and decoded.", health.get("tracing"))
    yield _gauge("criscope_connections", "Connections followed now.", health.get("connections"))
    attached = GaugeMetricFamily("criscope_probe_attached", "1 when the program is attached.", labels=["program"])
    for probe in health.get("probes", ()):
        attached.add_metric([probe["program"]], probe["attached"])
    yield attached
    lost = CounterMetricFamily("criscope_lost_records_total", "Records the kernel side dropped.", labels=["program"])
    if counters:
        by_program = {
            name.removeprefix(_LOST_BY_PROGRAM): value
            for name, value in counters.items()
            if name.startswith(_LOST_BY_PROGRAM)
        }
        for program, value in by_program.items():
            lost.add_metric([program], value)
        lost.add_metric([labels.UNKNOWN], max(0, counters["streams.lost"] - sum(by_program.values())))
    yield lost
    yield _counter("criscope_stream_gaps_total", "Holes in the bytes of connections.", counters.get("streams.gaps"))
    busy = counters.get(_BUSY)
    yield _counter("criscope_pipeline_busy_seconds_total", "Time spent decoding.", None if busy is None else busy / NS)
    stages = CounterMetricFamily("criscope_stage_items_total", "What the stages count.", labels=["name"])
    for name, value in sorted(counters.items()):
        if name != _BUSY:
            stages.add_metric([name], value)
    yield stages


def _store(status: Status) -> Iterator[Metric]:
    state = GaugeMetricFamily("criscope_store_state", "1 for the state the store is in.", labels=["state"])
    for name in STORE_STATES:
        state.add_metric([name], name == status.state)
    yield state
    rows = CounterMetricFamily("criscope_store_handled_rows_total", "Rows by what became of them.", labels=["result"])
    for result in ("written", "rejected", "dropped", "deleted"):
        rows.add_metric([result], getattr(status, result))
    yield rows
    yield _gauge("criscope_store_rows", "Rows in the store.", status.rows)
    yield _gauge("criscope_store_bytes", "Size of all its files.", status.bytes)
    yield _gauge("criscope_store_queued_rows", "Rows that wait to be written.", status.queued)
    yield _counter("criscope_store_failures_total", "Times the disk refused.", status.failures)


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=None if value is None else float(value))


def _counter(name: str, text: str, value: float | None) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=None if value is None else float(value))
