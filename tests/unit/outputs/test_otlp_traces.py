"""Traces as real OTLP collectors get them: the trees of real captures, over gRPC and over HTTP."""

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import pytest

from tests.unit.outputs.otlp_receiver import grpc_collector, http_collector, plain
from tests.unit.replayed import DATA, offset, truth
from tests.unit.wire import plain as wire
from tracer.capture import CaptureFile
from tracer.outputs.otlp.endpoint import endpoint
from tracer.outputs.otlp.export import export
from tracer.records import Data
from tracer.replay import Result, replay

COLLECTORS = {"grpc": grpc_collector, "http": http_collector}
CLIENT, INTERNAL = 3, 1  # opentelemetry.proto.trace.v1.Span.SpanKind
ERROR = 2  # opentelemetry.proto.trace.v1.Status.StatusCode


@cache
def rows(name):
    result = Result()
    replay(CaptureFile(DATA / f"{name}.jsonl.gz"), result.feed, lambda _: None)
    return result.rows()


def sent(name, kind="grpc", share=1.0):
    """Everything a collector got of a capture; (spans, resources)."""
    with COLLECTORS[kind]() as collector:
        assert export(rows(name), endpoint(collector.url), share) == len(collector.spans)
        return collector.spans, collector.resources


@pytest.fixture(scope="module")
def all_of():
    return {name: sent(name)[0] for name in ("truth", "traced")}


def by_id(name):
    return {(row.kind, row.id): row for row in rows(name)}


def ident(span):
    """(kind, id) of the row it shows."""
    shown = plain(span.attributes)
    for kind in ("relist", "sync_pass", "call", "step"):
        if f"criscope.{kind}.id" in shown:
            return kind, shown[f"criscope.{kind}.id"]
    raise AssertionError(shown)


@pytest.mark.parametrize("kind", COLLECTORS)
def test_a_collector_gets_every_relist_pass_call_and_joined_step_once(kind):
    spans, _ = sent("truth", kind)
    expected = {
        key for key, row in by_id("truth").items()
        if key[0] in ("relist", "sync_pass", "call") or (key[0] == "step" and row.fields["call"])
    }  # fmt: skip
    assert Counter(map(ident, spans)) == Counter(expected)
    assert len({span.span_id for span in spans}) == len(spans)


@pytest.mark.parametrize("name", ["truth", "traced"])
def test_calls_are_children_of_their_relist_or_pass_and_steps_of_their_call(all_of, name):
    spans = {ident(span): span for span in all_of[name]}
    found = by_id(name)
    depth = Counter()
    for (kind, key), span in spans.items():
        row = found[kind, key]
        if kind in ("relist", "sync_pass"):
            assert not span.parent_span_id
            for call in row.fields["calls"]:
                child = spans["call", call]
                assert (child.trace_id, child.parent_span_id) == (span.trace_id, span.span_id)
                depth[kind] += 1
        elif kind == "step":
            parent = row.fields["parent"]
            above = spans["step", parent] if ("step", parent) in spans else spans["call", row.fields["call"]]
            assert (span.trace_id, span.parent_span_id) == (above.trace_id, above.span_id)
            depth[kind] += 1
    assert min(depth[kind] for kind in ("relist", "sync_pass", "step")) > 30


@pytest.mark.parametrize("name", ["truth", "traced"])
def test_times_are_the_rows_and_children_lie_within_their_parents(all_of, name):
    found, spans = by_id(name), {span.span_id: span for span in all_of[name]}
    for span in all_of[name]:
        row = found[ident(span)]
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (row.start, row.end)
        parent = spans.get(span.parent_span_id)
        if parent is not None and ident(span)[0] == "call":
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano


def test_relists_begin_when_the_kubelet_says(all_of):
    """The kubelet logs each relist's start, in milliseconds."""
    logged = [event["t"] + offset("truth") for event in truth("truth").of("relist")]
    begun = [span.start_time_unix_nano for span in all_of["truth"] if span.name == "relist generic"]
    assert len(begun) > 50
    for time in begun:
        assert min(abs(time - each) for each in logged) < 5_000_000


def test_pleg_events_are_events_of_their_relist(all_of):
    events = {row.id: row for row in rows("truth") if row.kind == "pleg_event"}
    shown = {
        plain(event.attributes)["criscope.pleg_event.id"]: (ident(span)[1], event.name, event.time_unix_nano)
        for span in all_of["truth"]
        for event in span.events
    }
    assert shown == {key: (row.fields["relist"], row.fields["type"], row.start) for key, row in events.items()}
    assert len(shown) > 10


def test_a_call_has_the_attributes_of_the_semantic_conventions(all_of):
    (span,) = [s for s in all_of["truth"] if s.name.endswith("/CreateContainer")][:1]
    row = by_id("truth")[ident(span)].fields
    shown = plain(span.attributes)
    assert span.kind == CLIENT
    assert span.name == "runtime.v1.RuntimeService/CreateContainer"
    assert {name: shown[name] for name in shown if not name.startswith("criscope.")} == {
        "rpc.system": "grpc",
        "rpc.service": "runtime.v1.RuntimeService",
        "rpc.method": "CreateContainer",
        "rpc.grpc.status_code": 0,
        "network.transport": "unix",
        "server.address": row["runtime"],
        "container.image.name": row["image"],
        "container.id": row["container"]["id"],
        "k8s.container.name": row["container"]["name"],
        "k8s.container.restart_count": row["container"]["attempt"],
        "k8s.namespace.name": row["pod"]["namespace"],
        "k8s.pod.name": row["pod"]["name"],
        "k8s.pod.uid": row["pod"]["uid"],
    }
    assert shown["criscope.call.pass_stage"] == "create"


def test_a_failed_call_is_an_error_with_its_type_and_text(all_of):
    failed = [span for span in all_of["traced"] if plain(span.attributes).get("rpc.grpc.status_code")]
    assert {plain(span.attributes)["error.type"] for span in failed} == {"NOT_FOUND", "UNIMPLEMENTED"}
    for span in failed:
        row = by_id("traced")[ident(span)].fields
        assert (span.status.code, span.status.message) == (ERROR, row["error"] or "")
    fine = [span for span in all_of["traced"] if plain(span.attributes).get("rpc.grpc.status_code") == 0]
    assert {span.status.code for span in fine} == {0}


def test_the_resource_is_criscope_on_this_node(monkeypatch):
    monkeypatch.setenv("NODE_NAME", "node-7")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=east")
    _, (resource, *others) = sent("k120")
    assert all(other == resource for other in others)
    assert resource.items() >= {
        ("service.name", "criscope"), ("k8s.node.name", "node-7"), ("k8s.cluster.name", "east"),
    }  # fmt: skip
    assert resource["host.name"]


@pytest.mark.parametrize("name", ["truth", "traced"])
def test_the_same_rows_give_the_same_ids_each_time(all_of, name):
    again, _ = sent(name, "http")

    def ids(spans):
        return sorted((s.trace_id, s.span_id, s.parent_span_id) for s in spans)

    assert ids(again) == ids(all_of[name])


# the kubelet's own traces


@pytest.fixture(scope="module")
def on_the_wire():
    """Call id -> (trace id, span id) of the `traceparent` it carried, as an independent decoder reads it."""
    source = CaptureFile(DATA / "traced.jsonl.gz")
    records = [record for record in source.records() if isinstance(record, Data) and record.path.endswith("d.sock")]
    parents = {key: call.trace.split("-") for key, call in wire.decode(records, "client").items() if call.trace}
    source.close()
    return {key: (bytes.fromhex(trace), bytes.fromhex(span)) for key, (_, trace, span, _) in parents.items()}


def test_the_trace_ids_of_passes_and_lone_calls_are_the_wires(all_of, on_the_wire):
    spans = {ident(span): span for span in all_of["traced"]}
    joined = Counter()
    for (kind, key), span in spans.items():
        if kind != "call" or key not in on_the_wire:
            continue
        activity = plain(span.attributes)["criscope.call.activity"]
        trace, own = on_the_wire[key]
        if activity in ("sync", "terminate"):
            assert span.trace_id == trace
            assert [(link.trace_id, link.span_id) for link in span.links] == [(trace, own)]
        elif activity not in ("relist", "pod_relist"):
            assert (span.trace_id, span.parent_span_id, list(span.links)) == (trace, own, [])
        joined[activity] += 1
    assert joined["sync"] > 50
    assert joined["terminate"] > 5
    assert joined["probe"] > 50
    assert joined["housekeeping"] > 30


def test_a_pass_is_in_the_trace_of_its_calls(all_of, on_the_wire):
    passes = [row for row in rows("traced") if row.kind == "sync_pass"]
    spans = {ident(span): span for span in all_of["traced"]}
    assert len(passes) > 10
    for row in passes:
        (trace,) = {on_the_wire[call][0] for call in row.fields["calls"]}
        assert spans["sync_pass", row.id].trace_id == trace


def test_a_relist_keeps_calls_of_several_traces_together_and_links_them(all_of, on_the_wire):
    spans = {ident(span): span for span in all_of["traced"]}
    relists = [row for row in rows("traced") if row.kind == "relist"]
    assert len(relists) > 50
    for row in relists:
        traces = {spans["call", call].trace_id for call in row.fields["calls"]}
        assert traces == {spans["relist", row.id].trace_id}
        for call in row.fields["calls"]:
            assert [(link.trace_id, link.span_id) for link in spans["call", call].links] == [on_the_wire[call]]


# what is kept


def kept(name, share):
    return {ident(span) for span in sent(name, share=share)[0]}


def test_of_what_is_neither_slow_nor_failed_nothing_is_kept_at_share_0():
    found = by_id("traced")
    groups = defaultdict(set)
    for key in kept("traced", 0.0):
        row = found[key]
        call = found["call", row.fields["call"]] if key[0] == "step" else row
        activity = call.fields["activity"] if call.kind == "call" else {"id": call.id}
        groups[activity["id"] if (("relist", activity["id"]) in found or ("sync_pass", activity["id"]) in found)
               else call.id].add(key)  # fmt: skip
    assert len(groups) > 5
    for members in groups.values():
        rows_ = [found[key] for key in members if key[0] != "step"]
        assert any(
            row.end - row.start > 1_000_000_000
            or row.fields.get("status", "OK") != "OK"
            or row.fields.get("outcome") == "failed"
            for row in rows_
        )


def test_everything_slow_or_failed_is_kept_whatever_the_share():
    remarkable = {
        (row.kind, row.id)
        for row in rows("traced")
        if row.kind in ("relist", "sync_pass", "call")
        and (row.end - row.start > 1_000_000_000 or row.fields.get("status", "OK") != "OK")
    }
    assert len(remarkable) > 20
    assert remarkable <= kept("traced", 0.0)


def test_a_larger_share_keeps_what_a_smaller_one_kept():
    shares = [kept("truth", share) for share in (0.0, 0.2, 0.5, 1.0)]
    for less, more in pairwise(shares):
        assert less < more
    assert 0.1 < len(shares[1]) / len(shares[3]) < 0.35


def test_no_attribute_holds_a_text_that_the_rows_do_not_hold(all_of):
    def texts(value):
        if isinstance(value, dict):
            return {text for each in value.values() for text in texts(each)}
        if isinstance(value, list):
            return {text for each in value for text in texts(each)}
        return {value} if isinstance(value, str) else set()

    ours = {"grpc", "unix"}
    for name, spans in all_of.items():
        known = {text for row in rows(name) for text in texts(row.fields)} | ours
        shown = {
            value
            for span in spans
            for bag in (span.attributes, *(event.attributes for event in span.events))
            for value in plain(bag).values()
            if isinstance(value, str)
        }
        assert shown - known == set()
        assert {span.status.message for span in spans} - known == {""}
