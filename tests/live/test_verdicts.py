"""The verdict on real troubles, while they last and after: stage, call, pod and culprit."""

import subprocess
import time
from dataclasses import dataclass

import pytest

from tests.live.tracer import COMMAND, Tracer, traced
from tests.rig import orders, shims
from tests.rig.freeze import frozen
from tests.rig.node import Node
from tests.rig.proxy import Proxy
from tracer.rows import unix_ns

NAMED_SECONDS = 3.0
"""From the moment that something waits to the moment that a finding says why."""

NEXT_SECONDS = 4.0
"""Until something is asked of what was stopped: probes come each two seconds, relists each second."""


@dataclass
class Scene:
    node: Node
    tracer: Tracer
    kubelet: orders.Orders

    def named(self, kind: str) -> tuple[dict, dict]:
        """(verdict, finding) once an active finding of this kind leads the verdict at warning or above."""
        due = time.monotonic() + NEXT_SECONDS + NAMED_SECONDS + 3
        while True:
            verdict = self.tracer.get("/api/v1/why")
            told = [each for each in verdict["findings"] if each["state"] == "active" and each["kind"] == kind]
            if told:
                late = time.time() - unix_ns(told[0]["start"]) / 1e9
                assert late < NAMED_SECONDS, "named so long after it began to wait"
                while told[0]["severity"] == "info":
                    time.sleep(0.2)
                    told = [each for each in self.tracer.get("/api/v1/why")["findings"] if each["kind"] == kind]
                return self.tracer.get("/api/v1/why"), told[0]
            assert time.monotonic() < due, f"no {kind}: {verdict['sentence']} {verdict['findings']}"
            time.sleep(0.1)

    def ended(self, finding: dict, seconds: float = 12.0) -> dict:
        due = time.monotonic() + seconds
        while True:
            (row,) = [each for each in self.tracer.everything("findings") if each["id"] == finding["id"]]
            if row["state"] == "ended":
                return row
            assert time.monotonic() < due, "it has not ended"
            time.sleep(0.2)

    def others(self, finding: dict) -> list[str]:
        """Further findings of warning or above that began while this one lasted."""
        return [
            f"{each['kind']}: {each['summary']}"
            for each in self.tracer.everything("findings")
            if each["id"] != finding["id"] and each["severity"] != "info" and each["start"] >= finding["start"]
        ]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    directory = tmp_path_factory.mktemp("verdicts")
    with Node() as node, traced(node.socket, directory) as tracer:
        with orders.steady(node.socket, directory / "oracle.jsonl") as kubelet:
            yield Scene(node, tracer, kubelet)


def say(scene, expect):
    """What `criscope why` says."""
    done = subprocess.run([COMMAND, "why", "--url", scene.tracer.url], capture_output=True, text=True, timeout=30)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def metric(scene, name):
    for line in scene.tracer.get("/metrics").splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[-1])
    raise AssertionError(name)


def test_a_stopped_shim_is_named_with_its_pod_and_the_probe_that_waits_for_it(scene):
    pid = shims.pid(scene.node, "cart")
    with frozen(pid):
        verdict, finding = scene.named("shim_hung")
        assert f"process {pid}" in verdict["sentence"]
        assert "is stopped" in verdict["sentence"], "seen in /proc"
        assert [pod["name"] for pod in finding["pods"]] == ["cart"]
        call = scene.tracer.get(f"/api/v1/calls/{finding['calls'][0]}")
        assert (call["method"], call["stage"], call["pod"]["name"]) == ("ExecSync", "service", "cart")
        assert metric(scene, 'criscope_cri_oldest_call_age_seconds{method="ExecSync"}') > 1
        assert metric(scene, 'criscope_findings_active{kind="shim_hung"}') == 1
        assert "shim_hung" in say(scene, expect=1)
        time.sleep(3)
    row = scene.ended(finding)
    assert row["duration_seconds"] > 4
    assert scene.others(row) == []
    assert say(scene, expect=0).startswith("Nothing is slow now. Lately: The shim of pod shop/cart")


def test_a_stopped_runtime_is_named_with_what_waits_unread(scene):
    begin = time.time()
    with frozen(scene.node.pid):
        verdict, finding = scene.named("runtime_not_reading")
        assert f"process {scene.node.pid}" in verdict["sentence"]
        assert "is stopped" in verdict["sentence"]
        pleg = scene.tracer.get("/api/v1/pleg")
        assert pleg["waiting_for"]["stage"] == "request_wait"
        assert metric(scene, "criscope_pleg_relist_in_flight_seconds") > 1
        assert "runtime_not_reading" in say(scene, expect=1)
        time.sleep(3)
        lasted = time.time() - begin
    row = scene.ended(finding)
    assert row["duration_seconds"] == pytest.approx(lasted, abs=1.5), "from the first request that waited"
    assert scene.others(row) == []


def test_a_stopped_kubelet_is_named_itself(scene):
    begin = time.time()
    with frozen(scene.kubelet.pid):
        verdict, finding = scene.named("kubelet_stalled")
        assert f"process {scene.kubelet.pid}" in verdict["sentence"]
        assert "is stopped" in verdict["sentence"]
        time.sleep(2)
        lasted = time.time() - begin
    row = scene.ended(finding)
    assert row["duration_seconds"] == pytest.approx(lasted, abs=2), "from the relist that did not come"
    assert scene.others(row) == []


def test_a_sleeping_cni_plugin_is_named_with_its_pod(scene):
    with scene.node.plugins.slow(7, pods="slow-*"):
        scene.kubelet.add("slow-1")
        verdict, finding = scene.named("cni_slow")
        assert "bridge ADD" in verdict["sentence"]
        assert "extra/slow-1" in verdict["sentence"]
        call = scene.tracer.get(f"/api/v1/calls/{finding['calls'][0]}")
        assert (call["method"], call["pod"]["name"]) == ("RunPodSandbox", "slow-1")
        assert "cni_slow" in say(scene, expect=1) or finding["severity"] == "info"
        row = scene.ended(finding, 15)
    assert row["duration_seconds"] == pytest.approx(7, abs=1)
    assert scene.others(row) == []


def test_a_failing_cni_plugin_is_one_finding_with_the_runtimes_words_however_often_it_is_tried(scene):
    with scene.node.plugins.failing("the address pool is empty", pods="failing-*"):
        scene.kubelet.add("failing-1")
        _, finding = scene.named("cni_failing")
        due = time.monotonic() + 10
        while "the address pool is empty" not in finding["summary"]:
            assert time.monotonic() < due, finding
            time.sleep(0.2)
            _, finding = scene.named("cni_failing")
        assert [pod["name"] for pod in finding["pods"]] == ["failing-1"]
    assert scene.others(finding) == []


def test_a_restarted_runtime_is_an_event_and_a_finding_and_its_lost_calls_are_not_slow(scene):
    before = len(scene.tracer.everything("node-events"))
    with scene.node.down():
        verdict, finding = scene.named("runtime_down")
        assert "nobody serves" in verdict["sentence"]
        time.sleep(2)
    row = scene.ended(finding, 25)
    assert row["duration_seconds"] > 2
    kinds = [each["kind"] for each in scene.tracer.everything("node-events")[before:]]
    assert kinds == ["runtime_stopped", "runtime_started"]
    assert scene.others(row) == []


def test_a_call_that_a_proxy_holds_is_named_while_it_hangs(tmp_path):
    with (
        Node() as node,
        Proxy(node.socket) as proxy,
        traced(proxy.socket, tmp_path, "--socket", str(node.socket)) as tracer,
    ):
        with orders.steady(proxy.socket, tmp_path / "oracle.jsonl") as kubelet, proxy.hang("ListContainers"):
            scene = Scene(node, tracer, kubelet)
            due = time.monotonic() + NEXT_SECONDS + NAMED_SECONDS
            while not (waits := tracer.get("/api/v1/pleg")["waiting_for"]) or waits["age_seconds"] < 1:
                assert time.monotonic() < due
                time.sleep(0.1)
            assert (waits["method"], waits["stage"]) == ("ListContainers", "service")
            verdict, finding = scene.named("relist_blocked")
            assert "ListContainers" in verdict["sentence"]
            assert waits["id"] in finding["calls"]
            assert "ListContainers" in say(scene, expect=1)
        row = scene.ended(finding)
        assert scene.others(row) == []
