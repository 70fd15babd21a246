"""The agent: one thread takes records from the kernel through the pipeline to the outputs; others ask how it is."""

import logging
import select
import stat
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tracer.flight import FlightRecorder
from tracer.inventory import Inventory, ask
from tracer.kernel.program_object import ProbeReport
from tracer.kernel.source import DRAIN_RECORDS, DRAIN_SECONDS, KernelSource
from tracer.outputs.recent import Recent
from tracer.pipeline import Pipeline
from tracer.proc import Watch
from tracer.records import Data, Record
from tracer.rows import Row
from tracer.schema import read_containers, read_sandboxes

log = logging.getLogger(__name__)

TICK_NS = 250_000_000
"""How often open things are shown again: often enough to watch them grow, seldom enough to cost nothing."""

LOOK_SECONDS = 0.5
"""How often processes are looked at, while something is slow."""

BEHIND_RECORDS = 128
BEHIND_BYTES = 2 << 20
"""An eighth of the ring: the tracer is behind when one look finds more. A quiet node brings 25 kB a look."""

MAX_REASON = 500
"""Characters of why a recording was frozen."""

CLOCK_NS = 10_000_000_000
"""How often the wall clock is compared with the monotonic one."""

MAX_TRACEBACKS = 10
"""Mistakes of ours logged in full; after so many they are only counted."""

Output = Callable[[Iterable[Row]], None]


class Agent:
    """Traces until `stop`; satisfies `rows.Live`. Every method but `run` may be called from any thread."""

    def __init__(
        self,
        source: KernelSource,
        outputs: list[Output],
        *,
        inventories: list[str],
        watch: Watch | None = None,
        flight: FlightRecorder | None = None,
        probes: tuple[ProbeReport, ...] = (),
    ) -> None:
        """`watch` looks at processes that something slow waits for; without one nothing is known of them.

        `flight` gets every record. `probes`: programs that are not the source's.
        """
        self.source = source
        self.flight = flight
        self._watch = watch
        self._probes = probes
        self._frozen = Recent()  # critical findings that were recorded
        self.runtimes: dict[str, dict[str, Any]] = {}
        self.started = time.time_ns()
        self._outputs = outputs
        self._inventories = inventories
        self._pipeline = Pipeline(source.realtime_offset_ns)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracer", daemon=True)
        self.failure: str | None = None
        self.busy_ns = 0
        self.errors = 0

    def start(self) -> None:
        self._thread.start()
        if self._watch is not None and self._watch.usable:
            threading.Thread(target=self._look, name="watch", daemon=True).start()
        for path in self._inventories:
            threading.Thread(target=self._ask, args=(path,), name="inventory", daemon=True).start()

    def stop(self) -> None:
        """Stop tracing and hand out what is still open."""
        self._stopped.set()
        self._thread.join()
        self.source.close()

    def join(self, seconds: float) -> bool:
        """Wait; True when tracing has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._trace()
        except Exception as error:  # the thread's last words: without it the API would serve a corpse as healthy
            log.exception("tracing ended")
            self.failure = f"{type(error).__name__}: {error}"

    def _trace(self) -> None:
        next_tick = next_clock = 0
        with select.epoll() as waiting:
            waiting.register(self.source.fileno(), select.EPOLLIN)
            while not self._stopped.is_set():
                records = self.source.drain()
                if self.flight is not None:
                    self.flight.give_way(needed=_behind(records))
                    self.flight.feed(records)
                now = time.monotonic_ns()
                if now >= next_clock:
                    next_clock = now + CLOCK_NS
                    self.source.refresh_realtime_offset()
                rows = self._feed(records)
                if now >= next_tick:
                    next_tick = now + TICK_NS
                    rows += self._tick(now)
                self._give(rows)
                if not records:
                    waiting.poll(DRAIN_SECONDS)
        with self._lock:
            rows = self._pipeline.finish()
        self._give(rows)

    def _feed(self, records: list[Record]) -> list[Row]:
        if not records:
            return []
        begun = time.perf_counter_ns()
        rows: list[Row] = []
        with self._lock:
            for record in records:
                try:
                    rows += self._pipeline.feed(record)
                except Exception as error:  # noqa: BLE001  (a mistake about one record must not end all others' tracing)
                    self._mistake("a record could not be understood", error)
        self.busy_ns += time.perf_counter_ns() - begun
        return rows

    def _tick(self, now: int) -> list[Row]:
        rows: list[Row] = []
        pipeline, offset = self._pipeline, self.source.realtime_offset_ns
        with self._lock:
            for step in (partial(pipeline.clock, offset), partial(pipeline.tick, now), pipeline.open):
                try:
                    rows += step()
                except Exception as error:  # noqa: BLE001  (nor must one of a rule, however often it looks)
                    self._mistake("what is open could not be looked at", error)
        return rows

    def _mistake(self, what: str, error: Exception) -> None:
        self.errors += 1
        if self.errors <= MAX_TRACEBACKS:
            log.error("%s; please report this", what, exc_info=error)

    def _give(self, rows: list[Row]) -> None:
        if rows:
            for output in self._outputs:
                output(rows)
            if self.flight is not None:
                self._record(rows, self.flight)

    def _record(self, rows: list[Row], flight: FlightRecorder) -> None:
        """Keep the evidence of a finding that is critical: whoever mends it next destroys it."""
        for row in rows:
            if row.kind == "finding" and row.fields["severity"] == "critical" and self._frozen.add(row.id):
                flight.freeze(f"{row.fields['kind']}: {row.fields['summary']}"[:MAX_REASON])

    def _ask(self, path: str) -> None:
        answer = ask(path)
        if isinstance(answer, Inventory):
            with self._lock:
                self._pipeline.identity.learn_sandboxes(read_sandboxes(answer.sandboxes))
                self._pipeline.identity.learn_containers(read_containers(answer.containers))
            self.runtimes[path] = {"name": answer.runtime, "version": answer.version, "error": None}
        else:
            log.warning("%s could not be asked for its pods: %s", path, answer)
            self.runtimes[path] = {"name": None, "version": None, "error": answer}

    def _look(self) -> None:
        """In a thread of its own: reading /proc can wait for locks of the kernel."""
        assert self._watch is not None
        while not self._stopped.wait(LOOK_SECONDS):
            with self._lock:
                wanted = self._pipeline.slow_processes()
            seen = self._watch.look(wanted, time.monotonic_ns()) if wanted else {}
            with self._lock:
                self._pipeline.observed = seen

    # rows.Live

    def now(self) -> int:
        return time.time_ns()

    def pleg(self) -> dict[str, Any]:
        with self._lock:
            self._pipeline.now = max(self._pipeline.now, time.monotonic_ns())
            return self._pipeline.pleg()

    def findings(self) -> list[dict[str, Any]]:
        with self._lock:
            return self._pipeline.findings()

    def open_calls(self) -> list[tuple[str | None, str, str, int]]:
        with self._lock:
            return self._pipeline.open_calls()

    def health(self) -> dict[str, Any]:
        counters = self.counters()
        return {
            "source": "kernel",
            "tracing": self._thread.is_alive(),
            "failure": self.failure,
            "connections": self._pipeline.streams.open,
            "probes": [
                {"program": probe.program, "attached": probe.attached, "reason": probe.reason}
                for probe in (*self.source.probes, *self._probes)
            ],
            "hidden": self.source.hidden,
            "flight": None if self.flight is None else self.flight.status(),
            "lost_records": counters["streams.lost"],
            "gaps": counters["streams.gaps"],
            "runtimes": self.runtimes,
        }

    def counters(self) -> dict[str, int]:
        with self._lock:
            stages = self._pipeline.counters()
        return {
            **stages,
            "pipeline.busy_ns": self.busy_ns,
            "pipeline.errors": self.errors,
            **{f"kernel.{name}": value for name, value in self.source.counters().items()},
        }


def _behind(records: list[Record]) -> bool:
    """Whether so much came at once that the ring is filling faster than it is emptied."""
    if len(records) < BEHIND_RECORDS:
        return False
    return len(records) >= DRAIN_RECORDS or sum(len(each.data) for each in records if type(each) is Data) > BEHIND_BYTES


class Replayed:
    """A capture that was replayed, for the API: satisfies `rows.Live`; its "now" is the capture's end."""

    def __init__(self, pipeline: Pipeline, path: str) -> None:
        self._pipeline = pipeline
        self._path = path

    def now(self) -> int:
        return self._pipeline.now + self._pipeline.rows.offset

    def pleg(self) -> dict[str, Any]:
        return self._pipeline.pleg()

    def findings(self) -> list[dict[str, Any]]:
        return self._pipeline.findings()

    def open_calls(self) -> list[tuple[str | None, str, str, int]]:
        return self._pipeline.open_calls()

    def health(self) -> dict[str, Any]:
        counters = self.counters()
        return {
            "source": f"capture {self._path}",
            "tracing": True,
            "failure": None,
            "connections": self._pipeline.streams.open,
            "probes": [],
            "hidden": {},
            "flight": None,
            "lost_records": counters["streams.lost"],
            "gaps": counters["streams.gaps"],
            "runtimes": {},
        }

    def counters(self) -> dict[str, int]:
        return self._pipeline.counters()


def existing(paths: Iterable[str]) -> list[str]:
    """The runtime sockets among `paths` that exist now and answer CRI (no patterns, no ttrpc)."""
    found = []
    for path in paths:
        if path.startswith("/") and not path.endswith(("*", ".ttrpc")):
            try:
                if stat.S_ISSOCK(Path(path).stat().st_mode):
                    found.append(path)
            except OSError:
                continue
    return found
