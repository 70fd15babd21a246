"""What happens to the node's kubelet, runtime and processes becomes an event."""

from tests.unit.conversation import Conversation
from tests.unit.replayed import replayed
from tracer.facts import Container, ListedContainer, Pod
from tracer.pipeline import Pipeline
from tracer.records import Closed, Exit, OomKill

RUNTIME = "/runtime.v1.RuntimeService/"
ID = "ab" * 32


def events(pipeline, records):
    return [row.fields for record in records for row in pipeline.feed(record) if row.kind == "node_event"]


def test_a_kubelet_that_makes_its_first_call_has_started():
    talk = Conversation().open()
    talk.call(f"{RUNTIME}Version", b"\n\x050.1.0")
    found = events(Pipeline(0), talk.records)
    assert [(each["kind"], each["pid"]) for each in found] == [("kubelet_started", 100)]


def test_a_runtime_that_closes_its_last_connection_stopped_and_the_next_that_answers_started():
    one = Conversation("c1").open()
    one.call(f"{RUNTIME}Status")
    one.records.append(Closed(one.time + 1, "c1", "client", 100, 0))
    two = Conversation("c2", time=one.time + 5_000_000_000).open()
    two.call(f"{RUNTIME}Status")
    for record in two.records:
        if record.side == "server":
            record.pid = 201
    found = events(Pipeline(0), one.records + two.records)
    assert [(each["kind"], each["pid"]) for each in found] == [("runtime_stopped", 200), ("runtime_started", 201)]


def test_a_connection_that_the_client_closes_says_nothing_of_the_runtime():
    talk = Conversation().open()
    talk.call(f"{RUNTIME}Status")
    talk.records.append(Closed(talk.time + 1, "c1", "server", 200, 0))
    assert events(Pipeline(0), talk.records) == []


def test_a_runtime_whose_process_ends_stopped_even_when_nobody_saw_its_connections_close():
    talk = Conversation().open()
    talk.call(f"{RUNTIME}Status")
    found = events(Pipeline(0), [*talk.records, Exit(talk.time + 1, 200, 1, "containerd", 9)])
    assert [each["kind"] for each in found] == ["runtime_stopped"]
    assert "ended" in found[0]["text"]


def oom(path):
    return OomKill(5, 77, "java", 0, path, 300 << 20, 0, 0)


def test_a_process_killed_for_want_of_memory_is_its_containers_when_the_cgroup_says_so():
    pipeline = Pipeline(0)
    pod = Pod("shop", "web", "u-1")
    pipeline.identity.learn_containers((ListedContainer(ID, "s1", Container(ID, "app", 0), pod, 1, 1),))
    (found,) = events(pipeline, [oom(f"/kubepods/burstable/pod0b2d4f7c/{ID}")])
    assert (found["pod"], found["container_id"]) == ({"namespace": "shop", "name": "web", "uid": "u-1"}, ID)
    assert (
        found["text"]
        == "java (process 77) of container app in pod shop/web, 300 MiB resident, was killed for want of memory."
    )


def test_one_outside_of_pods_is_nobodys():
    (found,) = events(Pipeline(0), [oom("/system.slice/cron.service")])
    assert (found["pod"], found["container_id"]) == (None, None)


def test_a_clock_that_is_set_is_an_event_and_one_that_is_slewed_is_none():
    pipeline = Pipeline(1_000_000_000)
    assert pipeline.clock(1_000_400_000) == []
    (row,) = pipeline.clock(-39_000_000_000)
    assert row.fields["kind"] == "clock_step"
    assert "back by 40.000 s" in row.fields["text"]


def test_the_restarted_runtime_of_a_real_node_is_told_once():
    found = [(each["kind"], each["comm"]) for each in replayed("restart")["node_events"]]
    assert found == [("runtime_stopped", "containerd"), ("runtime_started", "containerd")]
