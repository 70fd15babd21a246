"""Metrics over OTLP are those of /metrics, number for number."""

import math

import pytest

from tests.unit.outputs.otlp_receiver import grpc_collector, http_collector, plain
from tests.unit.outputs.scripted import IDLE, ScriptedLive
from tests.unit.store.sample import NOW, SECOND, call, event, exit_, finding, node_event, relist, step, sync_pass
from tracer.outputs.otlp import output
from tracer.outputs.otlp.endpoint import endpoint
from tracer.outputs.otlp.output import Otlp
from tracer.outputs.otlp.sender import Sender
from tracer.store import Store

CUMULATIVE = 2  # opentelemetry.proto.metrics.v1.AggregationTemporality


@pytest.fixture(scope="module", params=["grpc", "http"])
def both(request):
    """The families of a registry, and what a collector got of them; without what the process itself changes."""
    from prometheus_client import CollectorRegistry

    from tracer.outputs.prometheus import Metrics

    registry = CollectorRegistry()
    metrics = Metrics(registry)
    live = ScriptedLive(calls=[("Status", "kubelet", 1.0)], pleg_=IDLE)
    live.counters_["pipeline.busy_ns"] = 1
    live.health_["probes"] = [{"program": "socket_send", "attached": True}]
    seconds = (0.0004, 0.02, 0.02, 2.0, 500.0)
    metrics.feed([call(f"c1-{n}", NOW, each, response_bytes=1 << n) for n, each in enumerate(seconds)])
    metrics.feed([call("c2-1", status="NOT_FOUND", method="ContainerStatus"), relist("r1"), event("e1")])
    metrics.feed([sync_pass("s1"), step("t1"), finding("f1", NOW, None), node_event("n1"), exit_("x1")])
    collect = {"grpc": grpc_collector, "http": http_collector}[request.param]
    with Store(None) as store, collect() as collector:
        metrics.watch(live, store.status)
        sender = Sender(endpoint(collector.url))
        families = list(registry.collect())
        sender.send_metrics(families, NOW, NOW + 60 * SECOND)
        sender.close()
        return {family.name: family for family in families}, collector.families()


def test_every_metric_that_has_a_value_is_there_under_its_name(both):
    families, got = both
    assert got.keys() == {name for name, family in families.items() if family.samples}
    assert len(got) > 30
    for name, family in families.items():
        assert got[name].description == family.documentation


def test_counters_are_monotonic_sums_and_gauges_gauges_of_the_same_values(both):
    families, got = both
    seen = set()
    for name, family in families.items():
        if family.type in ("counter", "gauge"):
            data = getattr(got[name], "sum" if family.type == "counter" else "gauge")
            points = {tuple(sorted(plain(point.attributes).items())): point for point in data.data_points}
            assert {key: point.as_double for key, point in points.items()} == {
                tuple(sorted(sample.labels.items())): float(sample.value) for sample in family.samples
            }
            assert {point.time_unix_nano for point in points.values()} == {NOW + 60 * SECOND}
            if family.type == "counter":
                assert (data.is_monotonic, data.aggregation_temporality) == (True, CUMULATIVE)
                assert {point.start_time_unix_nano for point in points.values()} == {NOW}
            seen.add(family.type)
    assert seen == {"counter", "gauge"}


def test_histograms_have_the_same_buckets_counts_and_sums(both):
    families, got = both
    for name, family in families.items():
        if family.type not in ("histogram", "summary"):
            continue
        assert got[name].histogram.aggregation_temporality == CUMULATIVE
        expected, shown = {}, {}
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            expected[sample.name.removeprefix(name), labels] = sample.value
        for point in got[name].histogram.data_points:
            labels = plain(point.attributes)
            count = 0
            for bound, more in zip([*point.explicit_bounds, math.inf], point.bucket_counts, strict=True):
                count += more
                if family.type == "histogram":
                    le = "+Inf" if bound == math.inf else str(bound)
                    shown["_bucket", tuple(sorted({**labels, "le": le}.items()))] = count
            assert count == point.count
            shown["_count", tuple(sorted(labels.items()))] = point.count
            shown["_sum", tuple(sorted(labels.items()))] = point.sum
            assert not point.HasField("min")
        assert shown == expected


def test_units_are_those_of_the_names(both):
    _, got = both
    assert got["criscope_cri_call_duration_seconds"].unit == "s"
    assert got["criscope_cri_message_bytes"].unit == "By"
    assert got["criscope_cri_calls"].unit == ""


def test_they_are_sent_again_and_again_and_at_the_end(registry, metrics, monkeypatch):
    monkeypatch.setattr(output, "PAUSE_SECONDS", 0.05)
    with grpc_collector() as collector:
        exporter = Otlp(Sender(endpoint(collector.url)), 1.0, registry, metrics_seconds=0.2)
        exporter.start()
        metrics.feed([call("c1")])
        while len(collector.metrics) < 3:
            pass
        metrics.feed([call("c2")])
        exporter.close()
        (total,) = [
            point.as_double
            for point in collector.families()["criscope_cri_calls"].sum.data_points
            if plain(point.attributes)["method"] == "ListContainers"
        ]
        assert total == 2
        assert "criscope_otlp_spans" in collector.families()


def test_docs_name_the_metrics_of_the_exporter_and_no_other(registry):
    import re
    from pathlib import Path

    text = (Path(__file__).parents[3] / "docs" / "otlp.md").read_text()
    row = re.compile(r"^\| `(criscope_\w+)` \| (\w+) \|([\w, ]*)\| (.+) \|$", re.MULTILINE)
    documented = {
        name: (kind, {each.strip() for each in labels.split(",")} - {""}, set(re.findall(r"`(\w+)`", meaning)))
        for name, kind, labels, meaning in row.findall(text)
    }  # fmt: skip
    exporter = Otlp(Sender(endpoint("http://127.0.0.1:9")), 1.0, registry)
    shown = {}
    for family in exporter.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        shown[name] = (family.type, labels, {v for sample in family.samples for v in sample.labels.values()})
    assert documented == shown
    exporter._sender.close()
