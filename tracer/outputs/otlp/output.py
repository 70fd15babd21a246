"""The output of a running tracer: rows in, spans and metrics out by a thread of its own, which may fail and wait.

Nothing the collector does reaches the tracer's thread: it only files rows; what is decided waits in a queue that lets
the oldest go.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tracer.outputs.otlp.groups import Group, Groups
from tracer.outputs.otlp.sender import Refused, Sender
from tracer.outputs.otlp.spans import tree
from tracer.rows import Row

log = logging.getLogger(__name__)

MAX_QUEUED = 4096
"""Spans that wait at most, 3 kB each: half an hour of one percent of a node of a hundred pods."""

BATCH_SPANS = 512
"""Of one export, as OpenTelemetry's own batch processor takes: half a megabyte."""

PAUSE_SECONDS = 1.0
"""Between two looks at the queue."""

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""After each failure in a row. A batch that failed so many times is let go: perhaps it is the batch's fault."""

CLOSE_SECONDS = 3.0
"""How long the end of the tracer waits for what is queued."""

METRICS_SECONDS = 60.0
"""Between two exports of the metrics, as OpenTelemetry's periodic reader."""


class Otlp:
    """`feed` is for the tracer's thread. Shows its own counters in `registry`, whose metrics it exports."""

    def __init__(
        self,
        sender: Sender,
        share: float,
        registry: CollectorRegistry,
        *,
        metrics_seconds: float = METRICS_SECONDS,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        """`share`: 0 to 1, of the groups that are neither slow nor failed. `now`: Unix ns, of the rows' clock."""
        self._sender = sender
        self._registry = registry
        self._metrics_seconds = metrics_seconds
        self._now = now
        self._started = now()
        self._lock = threading.Lock()
        self._groups = Groups(share)
        self._queue: deque[Group] = deque()
        self._queued = 0
        self._sent = self._dropped = 0
        self._exports = {(signal, result): 0 for signal in ("traces", "metrics") for result in ("ok", "failed")}
        self._failures = 0  # in a row
        self._troubles: set[str] = set()  # signals whose last export failed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        registry.register(self)

    def start(self) -> None:
        self._thread.start()

    def feed(self, rows: Iterable[Row]) -> None:
        with self._lock:
            self._groups.feed(rows)
            if self._groups.full:
                self._enqueue(self._groups.expire(self._now()))

    def close(self) -> None:
        """Export what is held and queued, as far as that goes in a moment."""
        with self._lock:
            self._enqueue(self._groups.finish())
        self._stopped.set()
        self._thread.join(CLOSE_SECONDS)
        self._sender.close()

    def describe(self) -> Iterator[Metric]:
        """What the registry checks for names that are taken."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            groups, queued = self._groups, self._queued
            results = {
                "sent": self._sent, "dropped": self._dropped, "late": groups.late, "unsampled": groups.unsampled,
            }  # fmt: skip
            exports = dict(self._exports)
        spans = CounterMetricFamily("criscope_otlp_spans", "Spans by what became of them.", labels=["result"])
        for result, value in results.items():
            spans.add_metric([result], value)
        yield spans
        done = CounterMetricFamily("criscope_otlp_exports", "Exports.", labels=["signal", "result"])
        for pair, value in exports.items():
            done.add_metric(pair, value)
        yield done
        yield GaugeMetricFamily("criscope_otlp_held_rows", "Rows of which it is not decided yet.", value=groups.held)
        yield GaugeMetricFamily("criscope_otlp_queued_spans", "Spans that wait for the collector.", value=queued)

    def _enqueue(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._queue.append(group)
            self._queued += group.size
        while self._queued > MAX_QUEUED:
            oldest = self._queue.popleft()
            self._queued -= oldest.size
            self._dropped += oldest.size

    def _run(self) -> None:
        next_metrics = time.monotonic() + self._metrics_seconds
        while not self._stopped.wait(self._pause()):
            with self._lock:
                self._enqueue(self._groups.expire(self._now()))
            self._traces()
            if time.monotonic() >= next_metrics:
                next_metrics = time.monotonic() + self._metrics_seconds
                self._metrics()
        if not self._failures:
            self._traces()
            self._metrics()

    def _pause(self) -> float:
        if self._failures:
            return BACKOFF_SECONDS[self._failures - 1]
        return PAUSE_SECONDS

    def _traces(self) -> None:
        """Export batches until none waits or one fails."""
        while batch := self._take():
            size = sum(group.size for group in batch)
            if self._export("traces", partial(self._send, batch)):
                self._failures = 0
                self._sent += size
                continue
            self._failures += 1
            with self._lock:
                if self._failures > len(BACKOFF_SECONDS):
                    self._failures = 1
                    self._dropped += size
                else:
                    self._queue.extendleft(reversed(batch))
                    self._queued += size
                    self._enqueue(())
            return

    def _take(self) -> list[Group]:
        batch: list[Group] = []
        size = 0
        with self._lock:
            while self._queue and (not batch or size + self._queue[0].size <= BATCH_SPANS):
                batch.append(self._queue.popleft())
                size += batch[-1].size
            self._queued -= size
        return batch

    def _send(self, batch: list[Group]) -> None:
        self._sender.send_spans(
            span for group in batch for span in tree(group.root, group.calls.values(), group.steps.values())
        )

    def _metrics(self) -> None:
        self._export("metrics", lambda: self._sender.send_metrics(self._registry.collect(), self._started, self._now()))

    def _export(self, signal: str, send: Callable[[], None]) -> bool:
        """Whether the collector took it."""
        failure = None
        try:
            send()
        except Refused as refused:
            failure = str(refused)
        except Exception as error:  # noqa: BLE001  of the library's, or of ours: neither may end the thread
            failure = f"{type(error).__name__}: {error}"
        if failure is None:
            self._exports[signal, "ok"] += 1
            if signal in self._troubles:
                self._troubles.remove(signal)
                log.info("the OpenTelemetry collector takes our %s again", signal)
            return True
        self._exports[signal, "failed"] += 1
        if signal not in self._troubles:
            self._troubles.add(signal)
            log.warning("the OpenTelemetry collector does not take our %s: %s; tracing goes on", signal, failure)
        return False
