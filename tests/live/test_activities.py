"""Real containerd, real pods: each call is told to be what the driver made it for."""

import datetime as dt
from collections import Counter, defaultdict

import pytest

from tests.live.tracer import traced
from tests.rig import driver, oracle

NEAR_NS = 100_000_000
"""Between the driver's stamp and the request on the socket, on a busy machine."""

SAME = {
    ("container_gc", "sandbox_gc"),  # the driver's garbage collection is one piece of work
    ("node_version", "startup"),  # before the first Status
}


def unix(row):
    whole, fraction = row["start"].rstrip("Z").split(".")
    return int(dt.datetime.fromisoformat(f"{whole}+00:00").timestamp()) * 1_000_000_000 + int(fraction)


def one(call, row):
    """Whether the row can be the call's."""
    shown = row["container"]["id"] if row["container"] else None
    pairs = [(call["container_id"], shown), (call["sandbox_id"], row["sandbox_id"])]
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


@pytest.fixture(scope="module")
def told(node, tmp_path_factory):
    """(driver's activity, row) of each call of one run."""
    directory = tmp_path_factory.mktemp("activities")
    path = directory / "oracle.jsonl"
    with traced(node.socket, directory, "--no-ask") as tracer:
        driver.run(node.socket, path, "oracle")
        tracer.settle()
        rows = [row for row in tracer.everything("calls") if row["client"]["comm"] == "kubelet"]
    free, found = defaultdict(list), []
    for row in rows:
        free[row["method"]].append(row)
    calls = oracle.read(path, "call")
    first = min(calls, key=lambda call: call["start"])
    offset = min(map(unix, rows)) - first["start"]
    for call in sorted(calls, key=lambda call: call["start"]):
        near = [row for row in free[call["method"]] if abs(unix(row) - offset - call["start"]) < NEAR_NS]
        row = min((row for row in near if one(call, row)), key=lambda row: abs(unix(row) - offset - call["start"]))
        free[call["method"]].remove(row)
        found.append((call["activity"], row))
    return found


def test_no_call_is_told_to_be_something_else(told):
    wrong = Counter()
    for activity, row in told:
        kind = row["activity"]["kind"]
        # Bursts of status calls out of nothing, which no kubelet makes, are "unknown" to the driver.
        if activity != "unknown" and kind not in (activity, "unknown") and (activity, kind) not in SAME:
            wrong[row["method"], activity, kind] += 1
    assert len(told) > 700
    assert sum(wrong.values()) <= 0.01 * len(told), wrong


def test_nearly_every_call_has_an_activity(told):
    unknown = Counter(row["method"] for activity, row in told if row["activity"]["kind"] == "unknown" != activity)
    assert sum(unknown.values()) <= 0.01 * len(told), unknown


def test_each_kind_of_work_of_the_driver_is_found(told):
    assert {activity for activity, _ in told} - {row["activity"]["kind"] for _, row in told} <= {"unknown"}
