"""containerd ends and comes back under a running tracer, its kubelet and another client."""

import signal
import time
from collections import Counter, defaultdict

import pytest

from tests.live.tracer import traced
from tests.rig import driver, oracle, orders, scenarios
from tests.rig.node import Node

BEFORE_SECONDS = 4.0
AFTER_SECONDS = 8.0
ENDED = {"ok": "server", "error": "server", "connection": "connection"}


@pytest.fixture(scope="module", params=[signal.SIGTERM, signal.SIGKILL], ids=["asked", "killed"])
def restarted(request, tmp_path_factory):
    """What the driver wrote, what the tracer says, and when the runtime went and was back (monotonic ns)."""
    directory = tmp_path_factory.mktemp("restart")
    path = directory / "oracle.jsonl"
    with Node() as node, traced(node.socket, directory, "--no-ask") as tracer:
        with orders.steady(node.socket, path) as told, driver.running(node.socket, directory / "other.jsonl", "other"):
            time.sleep(BEFORE_SECONDS)
            told.execute("cart", ["/bin/sleep", "60"])
            time.sleep(1)
            made = node.socket.stat().st_ctime_ns
            gone = time.monotonic_ns()
            node.restart(request.param)
            back = time.monotonic_ns()
            assert node.socket.stat().st_ctime_ns > made, "the socket file is another (its inode may be the same)"
            time.sleep(AFTER_SECONDS)
            until = time.monotonic_ns()
            tracer.settle()
            rows, health = tracer.everything("calls"), tracer.get("/healthz")
            relists = tracer.everything("relists")
    calls = [call for call in oracle.read(path, "call") if call["end"] < until and call["ended"] != "unsent"]
    return calls, rows, health, relists, gone, back


@pytest.fixture(scope="module")
def pairs(restarted):
    """(the driver's call, the tracer's row) of each call that was sent; a row may be of a call that ended later."""
    calls, rows, *_ = restarted
    mine = defaultdict(list)
    for row in rows:
        if row["client"]["role"] == "kubelet":
            mine[row["method"]].append(row)
    theirs = defaultdict(list)
    for call in calls:
        theirs[call["method"]].append(call)
    found = []
    for method, sent in theirs.items():
        later = len(mine[method]) - len(sent)
        assert 0 <= later <= 3, (method, len(mine[method]), len(sent))
        by_start = sorted(mine[method], key=lambda row: row["start"])
        found += zip(sorted(sent, key=lambda call: call["start"]), by_start, strict=False)
    assert set(mine) <= set(theirs), "no other method"
    return found


def test_each_call_has_the_method_the_status_and_the_end_that_the_driver_met(pairs):
    def expected(call):
        return None if call["ended"] == "connection" else call["status"], ENDED[call["ended"]]

    wrong = [(c, r) for c, r in pairs if expected(c) != (r["status"], r["ended_by"])]
    assert wrong == []
    assert len(pairs) > 100


def test_each_call_is_of_the_pod_and_container_that_the_driver_meant(pairs):
    stated = [(c, r) for c, r in pairs if c["pod"]]
    assert len(stated) > 40
    assert [(c, r) for c, r in stated if c["pod"] != r["pod"]] == []
    held = [((c["container_id"], c["container"]), r["container"]) for c, r in stated if c["container_id"]]
    assert len(held) > 20
    assert [(meant, found) for meant, found in held if meant != (found["id"], found["name"])] == []


def test_the_calls_in_flight_were_ended_by_the_connection(pairs, restarted):
    gone = restarted[4]
    lost = [(c, r) for c, r in pairs if r["ended_by"] == "connection"]
    assert ("ExecSync", "cart") in {(r["method"], r["pod"] and r["pod"]["name"]) for _, r in lost}
    for call, row in lost:
        assert row["status"] is None
        assert call["start"] < gone + 50_000_000, "it was in flight when the runtime went"
        assert row["duration_seconds"] == pytest.approx((call["end"] - call["start"]) / 1e9, abs=0.05)


def test_calls_on_the_new_connections_are_named_by_their_headers(pairs, restarted):
    gone, back = restarted[4:]
    before = {r["connection"] for c, r in pairs if c["start"] < gone}
    after = [r for c, r in pairs if c["start"] > back]
    assert len(after) > 25
    assert not before & {r["connection"] for r in after}
    assert Counter(r["method_source"] for r in after) == {"header": len(after)}


def test_the_pods_live_on_and_the_new_lists_name_them(pairs, restarted):
    _, _, _, relists, _, back = restarted
    probes = [r for c, r in pairs if c["start"] > back and c["method"] == "ExecSync" and r["status"] == "OK"]
    assert {probe["pod"]["name"] for probe in probes} == set(scenarios.STEADY)
    assert {relist["outcome"] for relist in relists[-5:]} == {"ok"}
    assert {relist["sandboxes"] for relist in relists[-5:]} == {len(scenarios.STEADY)}


def test_the_calls_of_another_client_are_kept_apart(pairs, restarted):
    rows = restarted[1]
    others = [row for row in rows if row["client"]["role"] == "other" and row["method"] == "ListContainers"]
    assert {row["activity"]["kind"] for row in others} == {"other_client"}
    assert {row["connection"] for row in others}.isdisjoint(row["connection"] for _, row in pairs)
    connections = {row["connection"] for row in others}
    assert len(connections) == 2, "one before and one after"
    assert len(others) > 5 * (BEFORE_SECONDS + AFTER_SECONDS) * 0.6


def test_nothing_is_lost(restarted):
    health = restarted[2]
    assert (health["lost_records"], health["gaps"]) == (0, 0)
