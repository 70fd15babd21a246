"""Who calls the runtime, and what it costs."""

from tests.unit.store.sample import NOW, SECOND, call, pod
from tracer.outputs.usage import MAX_NAMES, MINUTES, Usage

AGENT = {"pid": 7, "comm": "agent-x", "role": "other"}


def shares(usage, by="client", since=NOW - 60 * SECOND, until=NOW + 60 * SECOND):
    return {item["name"]: item for item in usage.shares(by, since, until)}


def test_each_client_has_its_share_of_calls_time_and_bytes():
    usage = Usage()
    usage.feed([call("a", service_seconds=3.0, request_bytes=100, response_bytes=200)])
    usage.feed([call("b", client=AGENT, service_seconds=1.0, request_bytes=50, response_bytes=50)])
    found = shares(usage)
    assert found["agent-x (7)"]["service_share"] == 0.25
    assert found["agent-x (7)"]["bytes_share"] == 0.25
    assert found["agent-x (7)"]["calls_share"] == 0.5
    assert next(iter(found)) != "agent-x (7)", "the costliest is first"


def test_a_call_that_is_told_again_counts_once_and_an_open_one_not_at_all():
    usage = Usage()
    usage.feed([call("a"), call("a"), call("b", seconds=None)])
    assert [item["calls"] for item in shares(usage).values()] == [1]


def test_streams_cost_no_time():
    usage = Usage()
    usage.feed([call("a", streaming=True, duration_seconds=900.0, service_seconds=899.0)])
    assert [item["seconds"] for item in shares(usage).values()] == [0.0]


def test_calls_are_counted_by_activity_method_and_pod():
    usage = Usage()
    usage.feed(
        [call("a", method="ExecSync", activity={"kind": "probe", "id": None}, pod=pod("web-1"), status="UNKNOWN")]
    )
    assert shares(usage, "activity")["probe"]["failed"] == 1
    assert shares(usage, "method")["ExecSync"]["calls"] == 1
    assert shares(usage, "pod")["default/web-1"]["calls"] == 1


def test_only_the_minutes_asked_for_count_and_no_more_than_an_hour_is_kept():
    usage = Usage()
    usage.feed(call(f"c{minute}", NOW + minute * 60 * SECOND) for minute in range(MINUTES + 30))
    later = NOW + (MINUTES + 30) * 60 * SECOND
    assert sum(item["calls"] for item in shares(usage, since=0, until=later).values()) == MINUTES
    assert sum(item["calls"] for item in shares(usage, since=later - 180 * SECOND, until=later).values()) == 3


def test_a_storm_of_clients_is_bounded_and_still_counted():
    usage = Usage()
    usage.feed(call(f"c{n}", client={"pid": n, "comm": "crictl", "role": "other"}) for n in range(5 * MAX_NAMES))
    found = shares(usage)
    assert len(found) <= MAX_NAMES + 1
    assert sum(item["calls"] for item in found.values()) == 5 * MAX_NAMES
