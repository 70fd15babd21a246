"""Clients of the runtime: those that are no kubelets, and kubelets that the server does not understand."""

from dataclasses import replace

from tests.unit.findings.story import KUBELET, OTHER, PATH, Story, pod
from tracer.facts import Container, Scope
from tracer.streams import Peer

MIB = 1 << 20
PROXY = "/var/run/koord-runtimeproxy/runtimeproxy.sock"


def found(story, kind=None):
    every = story.findings("info", "warning", "critical")
    return [each for each in every if kind is None or each["kind"] == kind]


# OP-91


def test_a_client_that_asks_for_containers_with_ids_of_sandboxes_is_named_and_the_kubelet_is_not():
    story = Story()
    calls = []
    for _ in range(6):
        story.live(2)
        facts = {"container_id": "p0-s0", "error": "not found", "peer": OTHER}
        calls.append(story.call("ContainerStatus", 0.001, "NOT_FOUND", **facts).id)
        story.wait(600)
    (finding,) = found(story, "client_errors")
    assert finding["severity"] == "info"
    assert finding["calls"] == calls
    assert finding["summary"].startswith(
        "Client agent-x (process 300) got NOT_FOUND for ContainerStatus with the ids of sandboxes 6 times within 50 min"
    )
    assert "the kubelet is not involved" in finding["summary"]


def test_a_clients_errors_with_ids_that_are_no_sandboxes_are_told_without_that():
    story = Story()
    story.live(2)
    for _ in range(4):
        story.call("ContainerStatus", 0.001, "NOT_FOUND", container_id="gone", error="not found", peer=OTHER)
        story.live(2)
    (finding,) = found(story, "client_errors")
    assert "sandboxes" not in finding["summary"]


# OP-93


def test_a_container_that_was_removed_just_before_its_status_is_nobodys_error():
    story = Story()
    for number in range(8):
        ident = f"c{number}"
        facts = {"container_id": ident, "container": Container(ident, "main", 0), "pod": pod("p0")}
        story.live(2)
        story.call("RemoveContainer", 0.01, **facts)
        for peer in (KUBELET, OTHER):
            story.call("ContainerStatus", 0.001, "NOT_FOUND", error="not found", peer=peer, **facts)
    story.live(2)
    assert found(story) == []


def test_a_kubelet_that_finds_no_container_raises_no_alarm():
    story = Story()
    for _ in range(8):
        story.live(2)
        story.call("ContainerStatus", 0.001, "NOT_FOUND", error="not found", container_id="c9")
    assert found(story) == []


def test_a_client_that_asks_without_end_is_told_with_its_rate_and_methods():
    story = Story()
    for _ in range(70):
        for _ in range(20):
            story.call("ListContainers", 0.02, scope=Scope.ALL, peer=OTHER)
        story.live(0.6)
    (finding,) = found(story, "client_heavy")
    assert finding["summary"].startswith("Client agent-x (process 300) asks the runtime at")
    assert "ListContainers" in finding["summary"]
    assert "% of the time" in finding["summary"]
    story.live(130)
    assert found(story, "client_heavy")[0]["state"] == "ended"


def test_a_client_that_looks_every_ten_seconds_is_nothing():
    story = Story()
    for _ in range(14):
        story.call("ListContainers", 0.05, scope=Scope.ALL, peer=OTHER)
        story.call("ListPodSandbox", 0.05, scope=Scope.ALL, peer=OTHER)
        story.live(10)
    assert found(story) == []


# OP-23


def test_a_client_that_gives_a_large_answer_up_has_a_limit_of_its_own_and_the_kubelet_has_none():
    story = Story()
    crictl = replace(OTHER, client_comm="crictl")
    story.call("ListPodSandbox", 0.05, scope=Scope.ALL, bytes=int(4.5 * MIB), items=9000)
    call = story.send("ListPodSandbox", peer=crictl, scope=Scope.ALL)
    call.rpc.response_bytes = 16 << 10
    story.wait(0.03)
    story.end(call, "client_cancel")
    story.live(2)
    (finding,) = found(story)
    assert (finding["kind"], finding["severity"]) == ("client_limit", "info")
    assert finding["summary"].startswith("Client crictl (process 300) gave ListPodSandbox up once")
    assert "the answer has 4.5 MiB" in finding["summary"]
    assert "the kubelet got the same answer" in finding["summary"]


def test_a_client_that_gives_a_small_answer_up_is_nothing():
    story = Story()
    story.call("ListPodSandbox", 0.05, scope=Scope.ALL, bytes=MIB, items=900)
    call = story.send("ListPodSandbox", peer=OTHER, scope=Scope.ALL)
    call.rpc.response_bytes = 16 << 10
    story.end(call, "client_cancel")
    story.live(2)
    assert found(story) == []


# OP-88


def test_a_kubelet_whose_version_the_proxy_at_its_socket_lacks_is_told_with_the_proxy():
    story = Story()
    behind = Peer("c9", PATH, 250, "koord-proxy", 200, "containerd")
    for number in range(4):
        old = story.send("ListContainers", peer=behind, scope=Scope.ALL)
        old.api = "v1alpha2"
        story.answer(old)
        kubelet = Peer(f"k{number}", PROXY, 400 + number, "kubelet", 250, "koord-proxy")
        story.call("Version", 0.001, "UNIMPLEMENTED", error="unknown service runtime.v1.RuntimeService", peer=kubelet)
        story.wait(10)
    (finding,) = found(story, "api_unimplemented")
    assert finding["severity"] == "critical"
    assert (
        f"kubelet needs runtime.v1, which the server at {PROXY} (koord-proxy, process 250) lacks" in finding["summary"]
    )
    assert "4 kubelet processes tried it" in finding["summary"]
    assert f"it asks {PATH} itself, with runtime.v1alpha2" in finding["summary"]


def test_a_kubelet_that_takes_the_older_version_instead_has_no_trouble():
    story = Story()
    story.call("Version", 0.001, "UNIMPLEMENTED", error="unknown service runtime.v1.RuntimeService")
    story.call("Version", 0.001)
    story.live(10)
    assert found(story) == []


def test_a_method_that_is_unknown_to_an_older_runtime_is_no_trouble():
    story = Story()
    story.call("RuntimeConfig", 0.001, "UNIMPLEMENTED", error="unknown method RuntimeConfig")
    story.live(10)
    assert found(story) == []
