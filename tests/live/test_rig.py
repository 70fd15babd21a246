"""The rig itself: what the other live tests rely on."""

import contextlib
import itertools
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.rig import driver, footprint, node, oracle

# A node of its own process, with a pod in it; prints where it is and then sleeps inside the block.
NODE_WITH_POD = """
import pathlib, sys, time
from tests.rig import driver, node
with node.Node() as running:
    path = pathlib.Path(sys.argv[1])
    with driver.running(running.socket, path, "demo"):
        while not path.exists() or '"StartContainer"' not in path.read_text():
            time.sleep(0.1)
        print(running.footprint.base, flush=True)
        time.sleep(60)
"""

# A driver that is stopped; prints its pid and then sleeps inside the block.
DRIVER_THAT_STANDS = """
import pathlib, sys, time
from tests.rig import driver, freeze, node
with node.Node() as running:
    path = pathlib.Path(sys.argv[1])
    with driver.running(running.socket, path, "demo") as process:
        while not path.exists() or not path.read_text():
            time.sleep(0.1)
        with freeze.frozen(process.pid):
            print(process.pid, flush=True)
            time.sleep(60)
"""


@pytest.fixture
def node_apart(machine_as_before, tmp_path):
    """A node with pods in a process of its own, and what it may leave."""
    command = [sys.executable, "-c", NODE_WITH_POD, str(tmp_path / "oracle.jsonl")]
    with subprocess.Popen(command, cwd=driver.REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base = Path(process.stdout.readline().strip())
            left = footprint.load(base / footprint.RECORD)
            assert left is not None
            assert left.processes(), "a node with a pod has processes"
            yield process, left
        finally:
            process.terminate()


@pytest.mark.usefixtures("machine_as_before")
def test_the_oracle_tells_the_life_of_a_pod_and_nothing_is_left_behind(tmp_path):
    path = tmp_path / "oracle.jsonl"
    with node.Node() as running:
        driver.run(running.socket, path, "pod")
        kept = running.footprint
    assert kept.remains() == []

    calls = oracle.read(path, "call")
    assert all(call["start"] < call["end"] for call in calls)
    assert [call["n"] for call in calls] == list(dict.fromkeys(call["n"] for call in calls))
    times = Counter(call["method"] for call in calls)
    once = ("RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync", "StopContainer", "RemovePodSandbox")
    assert {method: times[method] for method in once} == dict.fromkeys(once, 1)
    failed = [call for call in calls if call["ended"] != "ok" and call["method"] != "RuntimeConfig"]
    assert failed == []
    run = next(call for call in calls if call["method"] == "RunPodSandbox")
    assert run["pod"]["name"] == "one"
    assert len(run["sandbox_id"]) == 64
    assert run["deadline_seconds"] == 240

    relists = [entry for entry in oracle.read(path, "relist") if entry["scope"] == "generic"]
    gaps = [later["start"] - earlier["end"] for earlier, later in itertools.pairwise(relists)]
    assert all(gap >= 1e9 for gap in gaps), "a relist starts a second after the last one ended"
    assert [entry["pass"] for entry in oracle.read(path, "sync_pass")] == ["create", "terminate"]
    events = Counter(entry["type"] for entry in oracle.read(path, "pleg_event"))
    assert events["ContainerStarted"] == 2, "the sandbox and its container"


@pytest.mark.usefixtures("machine_as_before")
def test_a_tool_that_is_no_kubelet_has_another_name(tmp_path):
    with node.Node() as running:
        for scenario, name in (("other", "python"), ("demo", "kubelet")):
            path = tmp_path / f"{scenario}.jsonl"
            with driver.running(running.socket, path, scenario) as process:
                while not path.exists() or not path.read_text():
                    time.sleep(0.05)
                assert Path(f"/proc/{process.pid}/comm").read_text().startswith(name)
        calls = oracle.read(tmp_path / "other.jsonl", "call")
    assert {call["method"] for call in calls} == {"ListContainers"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_remove_everything(node_apart, number):
    process, left = node_apart
    process.send_signal(number)
    assert process.wait(timeout=30) != 0
    assert left.remains() == []


def test_a_killed_run_leaves_no_driver_that_stands_still(tmp_path):
    """SIGSTOP keeps a process from the SIGTERM that ends others."""
    path = tmp_path / "oracle.jsonl"
    command = [sys.executable, "-c", DRIVER_THAT_STANDS, str(path)]
    with subprocess.Popen(command, cwd=driver.REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        stopped = Path("/proc", process.stdout.readline().strip())
        assert stopped.exists()
        process.kill()
    due = time.monotonic() + 10
    while stopped.exists():
        assert time.monotonic() < due
        time.sleep(0.01)
    with node.Node():  # removes what the killed one left
        pass


@pytest.mark.usefixtures("machine_as_before")
def test_a_cni_plugin_that_sleeps_is_a_process_of_its_node():
    """So what a killed run left asleep is removed by the next, and sets up no network later."""
    environment = {"PATH": "/usr/bin:/bin", "CNI_COMMAND": "ADD", "CNI_ARGS": "K8S_POD_NAME=a"}
    with node.Node() as running, contextlib.ExitStack() as asleep:
        asleep.enter_context(running.plugins.slow(60))
        with subprocess.Popen(
            [running.footprint.plugins / "bridge"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as plugin:
            while not any(footprint.parent(pid) == plugin.pid for pid, _ in footprint.processes()):
                assert plugin.poll() is None
                time.sleep(0.01)
            assert plugin.pid in running.footprint.processes()
            asleep.close()
            assert plugin.wait(10) == 1, "the plugin itself, which got no configuration"


def test_what_a_killed_run_left_is_removed_by_the_next(node_apart):
    process, left = node_apart
    process.kill()
    process.wait(timeout=30)
    assert left.processes(), "nothing but the owner was killed"
    with node.Node():
        assert left.remains() == []


@pytest.mark.usefixtures("machine_as_before")
def test_a_containerd_that_does_not_start_is_reported_with_its_last_words(monkeypatch):
    monkeypatch.setattr(node, "_CONFIG", "version = nonsense")
    with pytest.raises(node.NodeError, match=r"containerd ended with status 1; its last words:\n.*toml"), node.Node():
        pass


def test_what_is_missing_is_said_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setitem(node.ENVIRONMENT, "PATH", str(tmp_path))
    assert node.why_not() == ("containerd, containerd-shim-runc-v2, ctr, runc, ip missing: run `make setup` as root")
