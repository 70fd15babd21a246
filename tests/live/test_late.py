"""criscope started beside a kubelet that has long been connected: names are proven, never guessed."""

import time
from collections import Counter

import pytest

from tests.live.tracer import traced
from tests.rig import driver, oracle

BEFORE_SECONDS = 7.0
SETTLED_NS = 3_000_000_000


@pytest.fixture(scope="module")
def late(node, tmp_path_factory):
    """A tracer that came late, when a kubelet and another client had long been connected.

    (kubelet's calls that began after the tracer had settled, rows, relists, health)
    """
    directory = tmp_path_factory.mktemp("late")
    path = directory / "oracle.jsonl"
    with (
        driver.running(node.socket, path, "demo"),
        driver.running(node.socket, directory / "other.jsonl", "other") as other,
    ):
        time.sleep(BEFORE_SECONDS)
        with traced(node.socket, directory) as tracer:
            begun = time.monotonic_ns()
            time.sleep(14)
            ended = time.monotonic_ns()
            tracer.settle()
            # The tracer itself asks the runtime at start which pods it has.
            rows = [row for row in tracer.everything("calls") if row["client"]["comm"] == "kubelet" or _of(other, row)]
            relists, health = tracer.everything("relists"), tracer.get("/healthz")
    calls = [e for e in oracle.read(path, "call") if begun + SETTLED_NS < e["start"] and e["end"] < ended]
    return calls, rows, relists, health


def _of(process, row):
    return row["client"]["pid"] == process.pid


def of_kubelet(rows):
    return [row for row in rows if row["client"]["comm"] == "kubelet"]


def test_each_call_is_found_and_none_has_a_wrong_name(late):
    calls, rows, _, _ = late
    named = Counter(row["method"] for row in of_kubelet(rows) if row["method"])
    true = Counter(call["method"] for call in calls)
    assert len(calls) > 60
    # Every call of the driver after the tracer settled is there by its name; rows begin earlier, so there are more.
    assert {method: n for method, n in true.items() if named[method] < 0.98 * n} == {}
    rare = {"Version", "ListImages", "ImageFsInfo", "Status", "RemoveContainer", "StopContainer", "RunPodSandbox"}
    assert set(named) <= set(true) | rare | {"StopPodSandbox", "RemovePodSandbox"}


def test_the_names_are_inferred_and_say_so(late):
    sources = Counter(row["method_source"] for row in of_kubelet(late[1]))
    assert sources["inferred"] > 0.8 * sum(sources.values())
    unnamed = sources["unknown"]
    assert unnamed <= 0.1 * sum(sources.values())


def test_ids_name_their_pods_from_the_first_call_on(late):
    """The runtime was asked at start which pods it has."""
    nameless = [row["id"] for row in of_kubelet(late[1]) if row["container"] and row["pod"] is None]
    assert nameless == []


def test_relists_are_found_each_second(late):
    generic = [relist for relist in late[2] if relist["kind"] == "generic"]
    assert len(generic) >= 11
    assert {relist["outcome"] for relist in generic} == {"ok"}
    intervals = [relist["interval_seconds"] for relist in generic[1:]]
    assert all(0.99 < interval < 1.5 for interval in intervals), intervals


def test_nearly_every_call_has_an_activity(late):
    """The first calls may be the rest of something that began before."""
    unknown = [row for row in of_kubelet(late[1]) if row["activity"]["kind"] == "unknown"]
    assert len(unknown) <= 0.05 * len(of_kubelet(late[1])), unknown[:3]


def test_another_clients_calls_are_kept_apart(late):
    """It lists containers five times a second, on a connection as old as the kubelet's.

    Its gRPC library writes the path where only Go's has another field, so its calls have no name.
    """
    others = [row for row in late[1] if row["client"]["role"] == "other"]
    assert len(others) > 50
    assert {row["method"] for row in others} <= {"ListContainers", None}
    assert {row["activity"]["kind"] for row in others} == {"other_client"}
    ids = {row["id"] for row in others}
    assert [relist["id"] for relist in late[2] if ids & set(relist["calls"])] == []


def test_nothing_is_lost_and_the_runtime_is_known(late):
    health = late[3]
    assert health["lost_records"] == 0
    assert [runtime["name"] for runtime in health["runtimes"].values()] == ["containerd"]
