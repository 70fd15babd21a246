"""What the routes answer over a real capture."""

import re

import pytest

from tests.docs import rest
from tests.unit.replayed import replayed, truth
from tracer.api import models

LISTS = {
    "calls": (models.Calls, "calls"),
    "relists": (models.Relists, "relists"),
    "pleg-events": (models.PlegEvents, "pleg_events"),
    "sync-passes": (models.SyncPasses, "sync_passes"),
    "node-events": (models.NodeEvents, "node_events"),
    "steps": (models.Steps, "steps"),
    "exits": (models.Exits, "exits"),
}


def everything(get, path, **query):
    """All items, page by page."""
    items, cursor = [], None
    while True:
        page = get(path, **query, **({"cursor": cursor} if cursor else {}))
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return items


@pytest.mark.parametrize("path", LISTS)
def test_pages_give_each_row_of_the_replay_once_newest_first(get, path):
    found = everything(get, f"/api/v1/{path}", limit=7)
    expected = replayed("truth")[LISTS[path][1]]
    assert sorted(item["id"] for item in found) == sorted(item["id"] for item in expected)
    starts = [item.get("start", item.get("time")) for item in found]
    assert starts == sorted(starts, reverse=True)


@pytest.mark.parametrize("path", LISTS)
def test_answers_are_what_the_openapi_document_says(get, path):
    page = get(f"/api/v1/{path}", limit=1000)
    LISTS[path][0].model_validate(page)
    assert page["items"]


@pytest.mark.parametrize("path", LISTS)
def test_one_item_is_found_by_its_id(get, path):
    item = get(f"/api/v1/{path}", limit=1)["items"][0]
    assert get(f"/api/v1/{path}/{item['id']}") == item


def test_calls_are_filtered_by_method_status_pod_and_activity(get):
    expected = replayed("truth")["calls"]

    def ids(**query):
        return {item["id"] for item in everything(get, "/api/v1/calls", **query)}

    assert ids(method="RunPodSandbox") == {c["id"] for c in expected if c["method"] == "RunPodSandbox"}
    assert ids(status="UNIMPLEMENTED") == {c["id"] for c in expected if c["status"] == "UNIMPLEMENTED"}
    assert ids(activity="sync") == {c["id"] for c in expected if c["activity"]["kind"] == "sync"}
    assert ids(pod="app1-node1", namespace="default") == {
        c["id"] for c in expected if c["pod"] and c["pod"]["name"] == "app1-node1"
    }
    assert ids(min_duration=0.05) == {c["id"] for c in expected if c["duration_seconds"] >= 0.05}
    assert ids(pod="nobody") == set()


def test_a_window_of_time_includes_its_begin_and_not_its_end(get):
    expected = sorted(replayed("truth")["calls"], key=lambda call: call["start"])
    since, until = expected[10]["start"], expected[20]["start"]
    found = everything(get, "/api/v1/calls", since=since, until=until)
    assert {item["id"] for item in found} == {c["id"] for c in expected if since <= c["start"] < until}


def test_how_long_ago_counts_from_the_end_of_a_replay(get, served):
    last = everything(get, "/api/v1/calls", since="5s")
    assert last
    assert len(last) < len(replayed("truth")["calls"]) / 4


def test_the_timeline_of_a_pod_holds_its_calls_events_and_passes(get):
    page = get("/api/v1/pods/default/app1-node1/timeline", limit=1000)
    models.Timeline.model_validate(page)
    kinds = {entry["kind"] for entry in page["items"]}
    assert kinds == {"call", "pleg_event", "sync_pass", "step", "exit"}
    (uid,) = {entry["uid"] for entry in page["items"]}
    events = [e["item"] for e in page["items"] if e["kind"] == "pleg_event"]
    logged = [e for e in truth("truth").of("pleg_event") if e["pod"] == "default/app1-node1"]
    assert {e["container_id"] for e in events} >= {e["id"] for e in logged}
    assert {e["pod_uid"] for e in logged} == {uid}


def test_the_pods_are_those_the_kubelet_had(get):
    models.Pods.model_validate(get("/api/v1/pods"))
    found = {f"{pod['namespace']}/{pod['name']}" for pod in get("/api/v1/pods")["items"]}
    assert found == {e["pod"] for e in truth("truth").of("SyncPod_enter")}


def test_pleg_health_is_that_of_the_replays_end(get):
    pleg = get("/api/v1/pleg")
    models.Pleg.model_validate(pleg)
    assert pleg["healthy"]
    assert 177 < pleg["seconds_until_unhealthy"] <= 180
    assert (pleg["stage"], pleg["waiting_for"]) == ("idle", None)
    assert pleg["kubelets"][0]["runtime"] == "/run/containerd/containerd.sock"


def test_health_says_where_the_rows_come_from_and_how_the_store_is(get):
    health = get("/healthz")
    assert (health["status"], health["source"], health["version"]) == ("ok", "capture truth", "1.2.3")
    assert health["store"]["state"] == "ok"
    assert get("/readyz") == {"ready": True}


def test_metrics_are_text(served):
    assert served[0].get("/metrics").text == "x 1\n"


def test_the_reference_names_every_route_and_field_without_another_host(served):
    client, _, app = served
    page = client.get("/docs").text
    for path in app.openapi()["paths"]:
        assert path in page
    assert "seconds_until_unhealthy" in page
    assert not re.search(r"https?://|<script", page)


def test_the_page_about_the_interface_is_what_the_openapi_document_says():
    text = rest.PAGE.read_text()
    assert text == rest.page(text), "run python -m tests.docs.rest"
    assert rest.routes(rest.openapi()) in text
    for name in ("calls/{id}", "WaitingFor", "`seconds_until_unhealthy`"):
        assert name in text


def test_the_overview_of_a_window_has_a_line_for_everything_that_touches_it(get):
    found = get("/api/v1/timeline", since="1h", limit=20_000)
    models.Overview.model_validate(found)
    whole = replayed("truth")
    kinds = ("calls", "relists", "sync_passes", "pleg_events", "node_events", "steps", "findings", "exits")
    assert found["total"] == len(found["items"]) == sum(len(whole[kind]) for kind in kinds)
    assert not found["thinned"]
    assert {f"{pod['namespace']}/{pod['name']}" for pod in found["pods"]} >= {"default/app1-node1"}


def test_an_overview_that_is_too_full_keeps_the_relists_and_passes_and_then_the_longest_calls(get):
    whole = replayed("truth")
    telling = sum(len(whole[kind]) for kind in ("relists", "sync_passes", "pleg_events", "node_events"))
    found = get("/api/v1/timeline", since="1h", limit=telling + 10)
    assert found["thinned"]
    calls = [item for item in found["items"] if item[0] in ("call", "step")]
    ended = sorted((item[3] for item in calls if item[3] is not None), reverse=True)
    longest = sorted((c["duration_seconds"] or 0 for c in whole["calls"] + whole["steps"]), reverse=True)
    assert len(ended) >= 5
    assert ended[0] == int(longest[0] * 1e6)


def test_the_overview_of_a_pod_has_nothing_of_another(get):
    found = get("/api/v1/timeline", since="1h", namespace="default", pod="app1-node1")
    assert [pod["name"] for pod in found["pods"]] == ["app1-node1"]
    assert found["items"]
    assert {item[7] for item in found["items"]} == {0}


def test_the_verdict_and_the_usage_are_what_the_openapi_document_says(get):
    verdict = get("/api/v1/why")
    models.Why.model_validate(verdict)
    assert verdict["state"] == "quiet"
    for by in ("client", "activity", "pod", "method"):
        usage = get("/api/v1/usage", by=by, since="1h")
        models.Usage.model_validate(usage)
        assert sum(item["calls"] for item in usage["items"]) == len(
            [call for call in replayed("truth")["calls"] if call["duration_seconds"] is not None]
        )


def test_the_start_of_a_pod_is_a_waterfall_from_its_first_sight_to_its_containers(get):
    (pod,) = get("/api/v1/pods/default/app1-node1/start")["items"]
    models.PodStart.model_validate(pod)
    stages = [bar["stage"] for bar in pod["stages"]]
    assert stages[:2] == ["seen", "sandbox"]
    assert {"image", "create", "start", "pleg_sight"} <= set(stages)
    assert pod["config_source"] == "file"
    starts = [bar["start"] for bar in pod["stages"]]
    assert starts == sorted(starts)
    calls = {call["id"]: call for call in replayed("truth")["calls"]}
    for bar in pod["stages"]:
        if bar["call"]:
            assert calls[bar["call"]]["pod"]["uid"] == pod["uid"]


def test_a_pod_whose_start_is_not_kept_is_said_to_have_none(get):
    assert "no start" in get("/api/v1/pods/default/nobody/start", expect=404)["detail"]


def test_the_window_is_handed_out_as_a_trace_for_perfetto(served):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    answer = served[0].get("/api/v1/export/perfetto", params={"since": "1h"})
    assert answer.headers["content-disposition"].startswith("attachment")
    packets = Trace.FromString(answer.content).packet
    begun = [p for p in packets if p.HasField("track_event") and p.track_event.type != 2]
    kinds = ("calls", "relists", "sync_passes", "pleg_events", "node_events", "steps", "findings", "exits")
    assert len(begun) == sum(len(replayed("truth")[kind]) for kind in kinds)
