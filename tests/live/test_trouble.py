"""The trouble maker's switches do to the real thing what they say, as the tracer's REST interface shows it."""

import subprocess
import sys
import time
import urllib.error
from dataclasses import dataclass

import pytest

from tests.live.tracer import Tracer, traced
from tests.rig import disk, driver, orders, registry, shims
from tests.rig.freeze import frozen
from tests.rig.node import Node
from tests.rig.proxy import Proxy
from tests.rig.throttle import throttled

pytestmark = pytest.mark.long

DISK_BYTES = 128 << 20

PROBE_SECONDS = 10.0
"""A probe comes each two seconds; on a busy machine later."""


@dataclass
class Scene:
    node: Node
    tracer: Tracer
    kubelet: orders.Orders

    def open_call(self, method: str, pod: str, *, seconds: float = PROBE_SECONDS) -> dict:
        """The open call of this method about this pod, once there is one that is a second old."""
        query = f"/api/v1/calls?status=open&min_duration=1&method={method}&pod={pod}"
        return within(seconds, lambda: next(iter(self.tracer.get(query)["items"]), None))

    def pleg(self, seconds: float = PROBE_SECONDS) -> dict:
        """The PLEG's health, once it waits for a call for a second."""

        def waiting():
            now = self.tracer.get("/api/v1/pleg")
            return now if now["waiting_for"] and now["waiting_for"]["age_seconds"] > 1 else None

        return within(seconds, waiting)

    def ended(self, method: str, pod: str, since: int) -> tuple[dict, dict]:
        """The first such call that began after `since` and ended: the driver's note of it, and the tracer's row."""
        call = self.kubelet.await_call(method, pod=pod, since=since)

        def same():
            rows = self.tracer.get(f"/api/v1/calls?method={method}&pod={pod}&limit=100")["items"]
            took = (call["end"] - call["start"]) / 1e9
            return next((row for row in rows if abs((row["duration_seconds"] or 0) - took) < 0.005), None)

        return call, within(5, same)


def within(seconds, what):
    due = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < due, f"not within {seconds} s"
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    directory = tmp_path_factory.mktemp("trouble")
    with Node(disk_bytes=DISK_BYTES) as node, traced(node.socket, directory) as tracer:
        with orders.steady(node.socket, directory / "oracle.jsonl") as kubelet:
            yield Scene(node, tracer, kubelet)


def test_a_stopped_shim_shows_one_open_probe_of_its_pod_whose_age_grows(scene):
    with frozen(shims.pid(scene.node, "cart")):
        call = scene.open_call("ExecSync", "cart")
        assert call["container"]["name"] == "web"
        assert call["request_wait_seconds"] is not None, "the runtime has it"
        assert call["response_wait_seconds"] is None, "and has not answered"
        age = 'criscope_cri_oldest_call_age_seconds{method="ExecSync"}'
        first, second = (metric(scene.tracer, age, after) for after in (0, 2))
        assert second - first == pytest.approx(2, abs=0.5)
        since = time.monotonic_ns()
        scene.kubelet.await_call("ExecSync", pod="search", since=since, seconds=PROBE_SECONDS)
        assert scene.tracer.get("/api/v1/pleg")["age_seconds"] < 3, "relists go on"
    row = within(5, lambda: over(scene.tracer, call["id"]))
    assert row["ended_by"] == "server"
    assert row["service_seconds"] > 3


def test_a_stopped_runtime_leaves_the_relists_request_in_the_socket(scene):
    with frozen(scene.node.pid):
        first = scene.pleg()
        assert first["waiting_for"]["stage"] == "request_wait"
        assert first["waiting_for"]["method"] in ("ListPodSandbox", "ListContainers")
        time.sleep(1)
        second = scene.pleg()
        assert second["relist"] == first["relist"]
        assert second["age_seconds"] > first["age_seconds"] + 0.9
    row = within(5, lambda: over(scene.tracer, first["waiting_for"]["id"]))
    assert row["status"] == "OK"
    assert row["request_wait_seconds"] > 2


def test_a_stopped_kubelet_makes_no_relist_and_no_call_waits_for_the_runtime(scene):
    since = time.time()
    with frozen(scene.kubelet.pid):
        time.sleep(4)
        now = scene.tracer.get("/api/v1/pleg")
        assert now["age_seconds"] > 3
        assert (now["waiting_for"] or {"stage": "response_wait"})["stage"] == "response_wait"

    def late():
        relists = scene.tracer.get(f"/api/v1/relists?since={since}")["items"]
        return [relist for relist in relists if relist["kind"] == "generic" and relist["interval_seconds"] > 4]

    assert len(within(5, late)) == 1


def test_a_sleeping_cni_plugin_holds_the_sandbox_of_the_pod_meant(scene):
    since = time.monotonic_ns()
    with scene.node.plugins.slow(60, pods="slow-*"):
        scene.kubelet.add("slow-1")
        assert scene.open_call("RunPodSandbox", "slow-1")["request_wait_seconds"] is not None
        scene.kubelet.add("quick-1")
        call, _ = scene.ended("RunPodSandbox", "quick-1", since)
        assert call["status"] == "OK"
    call, row = scene.ended("RunPodSandbox", "slow-1", since)
    assert (call["status"], row["status"]) == ("OK", "OK")
    assert 1 < row["service_seconds"] < 60, "woken when the block ended"


def test_a_failing_cni_plugin_fails_the_sandbox_with_its_words(scene):
    since = time.monotonic_ns()
    with scene.node.plugins.failing("the address pool is empty", pods="failing-*"):
        scene.kubelet.add("failing-1")
        call, row = scene.ended("RunPodSandbox", "failing-1", since)
    assert "the address pool is empty" in call["error"]
    assert (row["status"], row["ended_by"]) == (call["status"], "server") == ("UNKNOWN", "server")


def test_a_throttled_runtime_takes_its_time(scene):
    since = time.monotonic_ns()
    before = scene.ended("ExecSync", "cart", since)[1]
    with throttled(scene.node, 0.01):
        time.sleep(2)
        row = scene.ended("ExecSync", "cart", time.monotonic_ns())[1]
    assert row["service_seconds"] + row["request_wait_seconds"] > 3 * before["duration_seconds"]
    assert not (scene.node.footprint.cgroups()[0] / "runtime").exists()


def test_a_full_disk_fails_what_is_created_and_is_empty_again_afterwards(scene):
    since = time.monotonic_ns()
    with disk.full(scene.node):
        scene.kubelet.add("full-1")
        call, row = scene.ended("RunPodSandbox", "full-1", since)
    assert "no space left on device" in call["error"]
    assert row["status"] == "UNKNOWN"
    since = time.monotonic_ns()
    scene.kubelet.add("roomy-1")
    assert scene.ended("RunPodSandbox", "roomy-1", since)[0]["status"] == "OK"


def test_a_silent_registry_holds_the_pull_until_the_block_ends(scene):
    since = time.monotonic_ns()
    with registry.silent() as image:
        scene.kubelet.add("pulling-1", image=image)
        assert scene.open_call("PullImage", "pulling-1")["image"] == image
    assert scene.ended("PullImage", "pulling-1", since)[0]["status"] != "OK"


def test_a_call_hung_by_the_proxy_is_in_the_runtimes_hands_as_its_client_sees_it(tmp_path):
    with Node() as node, Proxy(node.socket) as proxy:
        sockets = (str(proxy.socket), tmp_path, "--socket", str(node.socket))
        with traced(*sockets) as tracer, orders.steady(proxy.socket, tmp_path / "oracle.jsonl") as kubelet:
            scene = Scene(node, tracer, kubelet)
            with proxy.hang("ListContainers") as trouble:
                trouble.await_strike()
                now = scene.pleg()
                assert now["runtime"] == str(proxy.socket)
                waiting = now["waiting_for"]
                assert (waiting["method"], waiting["stage"]) == ("ListContainers", "service")
            row = within(5, lambda: over(tracer, waiting["id"]))
            assert row["status"] == "OK"
            assert row["service_seconds"] > 1
            tracer.settle()
            rows = tracer.everything("calls")
    mine = [row for row in rows if row["client"]["comm"] in ("kubelet", "cri-proxy")]
    assert {(row["runtime"], row["client"]["role"]) for row in mine} == {
        (str(proxy.socket), "kubelet"),
        (str(node.socket), "other"),
    }
    behind = [row for row in rows if row["client"]["comm"] == "cri-proxy" and row["method"] == "ListContainers"]
    assert max(row["duration_seconds"] for row in behind) < 1, "the runtime itself was not slow"


@pytest.mark.usefixtures("machine_as_before")
def test_the_demonstration_tells_the_trouble_it_makes():
    command = [sys.executable, "-m", "tests.rig.demo", "--listen", "127.0.0.1:9561", "--trouble", "runtime"]
    done = subprocess.run(
        [*command, "--seconds", "16"], cwd=driver.REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    assert "trouble for 15 s: containerd is stopped (SIGSTOP)\n" in done.stdout
    assert "now list_sandboxes, waits" in done.stdout
    assert "the trouble is over\n" in done.stdout, "it is undone when the demonstration ends"


def metric(tracer, name, after):
    time.sleep(after)
    (line,) = [line for line in tracer.get("/metrics").splitlines() if line.startswith(name)]
    return float(line.split()[-1])


def over(tracer, number):
    """The row of a call that has ended."""
    try:
        row = tracer.get(f"/api/v1/calls/{number}")
    except urllib.error.HTTPError:  # it is written a moment after it is shown as open
        return None
    return row if row["ended_by"] else None
