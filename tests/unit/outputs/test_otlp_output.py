"""The exporting thread: what it sends, and that a collector that is slow, away or unwilling costs nothing."""

import subprocess
import sys
import threading
import time

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.outputs.otlp_receiver import grpc_collector, http_collector
from tests.unit.outputs.scripted import samples
from tests.unit.store.sample import NOW, SECOND, call
from tracer.outputs.otlp import output
from tracer.outputs.otlp.endpoint import endpoint
from tracer.outputs.otlp.output import MAX_QUEUED, Otlp
from tracer.outputs.otlp.sender import Sender

LONE = {"kind": "probe", "id": "p1"}
COLLECTORS = {"grpc": grpc_collector, "http": http_collector}
NOWHERE = "grpc://127.0.0.1:9"  # discard: nobody listens


class Run:
    """An output whose clock stands long after every row."""

    def __init__(self, url, **options):
        self.registry = CollectorRegistry()
        self.output = Otlp(
            Sender(endpoint(url)), 1.0, self.registry, now=lambda: NOW + 3600 * SECOND, **options
        )  # fmt: skip
        self.output.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.output.close()

    def spans(self):
        return {key[0]: int(value) for key, value in samples(self.registry, "criscope_otlp_spans_total").items()}

    def exports(self, signal="traces"):
        values = samples(self.registry, "criscope_otlp_exports_total")
        return {result: int(values[result, signal]) for result in ("ok", "failed")}

    def until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, (self.spans(), self.exports())
            time.sleep(0.02)


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(output, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(output, "BACKOFF_SECONDS", (0.05,) * 5)


def calls(count, first=0):
    return [call(f"c{number}", NOW + number, 0.001, activity=LONE) for number in range(first, first + count)]


@pytest.mark.parametrize("kind", COLLECTORS)
def test_what_is_fed_arrives_once(kind):
    with COLLECTORS[kind]() as collector, Run(collector.url) as run:
        rows = calls(1500)
        for begin in range(0, len(rows), 10):
            run.output.feed(rows[begin : begin + 10])
        run.until(lambda: run.spans()["sent"] == 1500)
        assert len({span.span_id for span in collector.spans}) == len(collector.spans) == 1500
        assert run.exports()["failed"] == 0


@pytest.mark.parametrize("kind", COLLECTORS)
def test_the_end_sends_what_is_held(kind):
    with COLLECTORS[kind]() as collector:
        with Run(collector.url) as run:
            run.output.feed(calls(3))
        assert len(collector.spans) == 3


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_refused_batch_is_sent_again(kind, caplog):
    caplog.set_level("INFO", "tracer")
    with COLLECTORS[kind]() as collector, Run(collector.url) as run:
        collector.refuse = 2
        run.output.feed(calls(5))
        run.until(lambda: run.spans()["sent"] == 5)
        assert len(collector.spans) == 5
        assert run.exports() == {"ok": 1, "failed": 2}
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "does not take our traces" in line]) == 1
    assert len([line for line in lines if "takes our traces again" in line]) == 1


def test_a_batch_that_is_refused_for_ever_is_let_go_and_the_next_is_sent():
    with grpc_collector() as collector, Run(collector.url) as run:
        collector.refuse = 6
        run.output.feed(calls(5))
        run.until(lambda: run.spans()["dropped"] == 5)
        run.output.feed(calls(4, first=5))
        run.until(lambda: run.spans()["sent"] == 4)


@pytest.mark.parametrize("url", [NOWHERE, "http://127.0.0.1:9"])
def test_a_dead_collector_costs_the_tracer_nothing_and_memory_is_bounded(url):
    rows = calls(20_000)
    with Run(url) as run:
        begun = time.thread_time()
        longest = 0.0
        for begin in range(0, len(rows), 20):
            before = time.perf_counter()
            run.output.feed(rows[begin : begin + 20])
            longest = max(longest, time.perf_counter() - before)
        assert (time.thread_time() - begun) / len(rows) < 100e-6  # 23 as measured on a busy machine
        assert longest < 3  # an export that fails takes five
        run.until(lambda: run.exports()["failed"] > 0)
        shown = run.spans()
        assert shown["sent"] == 0
        queued = samples(run.registry, "criscope_otlp_queued_spans")[()]
        held = samples(run.registry, "criscope_otlp_held_rows")[()]
        assert queued <= MAX_QUEUED
        assert held <= 4096
        assert shown["dropped"] > 10_000
        begun = time.monotonic()
    assert time.monotonic() - begun < 8


def test_a_collector_that_comes_back_gets_what_was_queued():
    with grpc_collector() as collector:
        url = collector.url
    with Run(url) as run:
        run.output.feed(calls(10))
        run.until(lambda: run.exports()["failed"] > 0)
        with grpc_collector(int(url.rpartition(":")[2])) as collector:
            run.until(lambda: run.spans()["sent"] == 10, 40)
            assert len(collector.spans) == 10


def test_a_collector_that_does_not_answer_delays_only_the_exporting_thread():
    with http_collector() as collector, Run(collector.url) as run:
        collector.slow = threading.Event()
        run.output.feed(calls(1))
        time.sleep(0.3)
        begun = time.perf_counter()
        run.output.feed(calls(1000, first=1))
        run.registry.collect()
        assert time.perf_counter() - begun < 3
        run.until(lambda: run.exports()["failed"] == 1, 15)
        collector.slow.set()
        run.until(lambda: run.spans()["sent"] == 1001)


def test_a_mistake_of_ours_does_not_end_the_thread(caplog):
    bad = call("c0", activity=LONE)
    bad.fields["span_id"] = bad.fields["trace_id"] = "nonsense"
    with grpc_collector() as collector, Run(collector.url) as run:
        run.output.feed([call("c1", activity=LONE)])
        run.until(lambda: run.spans()["sent"] == 1)
        run.output._queue.append(next(iter(groups_of(bad))))
        run.output._queued += 1
        run.until(lambda: run.spans()["dropped"] == 1)
        run.output.feed([call("c2", activity=LONE)])
        run.until(lambda: run.spans()["sent"] == 2)
    assert "ValueError" in caplog.text


def groups_of(row):
    from tracer.outputs.otlp.groups import Group

    yield Group(None, {row.id: row}, {})


def test_the_library_is_not_loaded_without_an_endpoint():
    """It is 20 MB. FastAPI loads its interface, without what exports."""
    code = (
        "import sys, tracer.cli, tracer.agent, tracer.serving, tracer.replay, tracer.outputs.otlp.endpoint\n"
        "parts = ('opentelemetry.sdk', 'opentelemetry.exporter', 'opentelemetry.proto', 'grpc', 'requests')\n"
        "assert not [name for name in sys.modules if name.startswith(parts)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
