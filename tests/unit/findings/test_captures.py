"""What the rules say of real nodes with real troubles, made on purpose."""

import pytest

from tests.unit.replayed import DATA, replayed

TROUBLES = ("warning", "critical")


def found(name):
    return [each for each in replayed(name)["findings"] if each["severity"] in TROUBLES]


def calls(name):
    return {call["id"]: call for call in replayed(name)["calls"]}


def test_a_stopped_runtime_a_stopped_kubelet_and_a_stopped_shim_are_three_findings_and_no_fourth():
    runtime, kubelet, shim = found("stalls")
    assert [each["kind"] for each in (runtime, kubelet, shim)] == [
        "runtime_not_reading",
        "kubelet_stalled",
        "shim_hung",
    ]
    every = calls("stalls")
    waits = sorted(every[ident]["request_wait_seconds"] for ident in runtime["calls"])
    assert waits[-3:] == pytest.approx([2.0, 3.3, 3.4], abs=0.1)
    assert kubelet["duration_seconds"] == pytest.approx(4, abs=0.5)
    assert "though nothing was open" in kubelet["summary"]
    (probe,) = [every[ident] for ident in shim["calls"]]
    assert (probe["method"], probe["service_seconds"]) == ("ExecSync", pytest.approx(11.4, abs=0.1))
    assert (probe["pod"]["name"], probe["container"]["name"]) == ("web-node1", "main")
    assert "process 8413" in shim["summary"]
    step = next(each for each in replayed("stalls")["steps"] if each["id"] == shim["evidence"][0]["step"])
    assert (step["kind"], step["call"], step["pid"]) == ("shim", probe["id"], 8413)


def test_a_stop_while_a_probe_is_open_is_not_the_probes_fault():
    reading, runtime, idle = found("blame")
    every = calls("blame")
    assert [each["kind"] for each in (reading, runtime, idle)] == [
        "kubelet_stalled", "runtime_not_reading", "kubelet_stalled",
    ]  # fmt: skip
    (unread,) = reading["calls"]
    assert every[unread]["response_wait_seconds"] == pytest.approx(4.0, abs=0.1)
    waits = [every[ident]["request_wait_seconds"] for ident in runtime["calls"]]
    assert sorted(wait for wait in waits if wait > 1)[-2:] == pytest.approx([4.7, 5.0], abs=0.1)
    probe = next(every[ident] for ident in runtime["calls"] if every[ident]["method"] == "ExecSync")
    assert probe["service_seconds"] == pytest.approx(5.1, abs=0.1)
    assert idle["calls"] == []
    assert "though nothing was open" in idle["summary"]


def test_a_slow_cni_plugin_is_named_with_its_pod_and_the_failing_one_with_the_runtimes_words():
    slow, failing = found("slowcni")
    assert (slow["kind"], slow["pods"][0]["name"]) == ("cni_slow", "slownet-node1")
    assert "bridge took 5.0 s" in slow["summary"]
    assert (failing["kind"], failing["pods"][0]["name"]) == ("cni_failing", "nonet-node1")
    assert "exit code 1" in failing["summary"]
    assert "no addresses left" in failing["summary"]
    retries = [c["id"] for c in replayed("slowcni")["calls"] if c["pod"] and c["pod"]["name"] == "nonet-node1"
               and c["method"] == "RunPodSandbox"]  # fmt: skip
    assert failing["calls"] == retries, "further attempts are followers"


def test_four_broken_pods_are_one_finding_each_with_their_cause_and_nothing_else_is_claimed():
    said = {each["kind"]: each for each in found("failures")}
    assert {kind: [pod["name"] for pod in each["pods"]] for kind, each in said.items()} == {
        "image_pull_failed": ["badimage-node1"],
        "start_failed": ["badcmd-node1"],
        "probe_timeout": ["slowprobe-node1"],
        "stop_ignored": ["stubborn-node1"],
    }
    assert len(found("failures")) == 4
    assert "connection refused" in said["image_pull_failed"]["summary"]
    assert "no such file or directory" in said["start_failed"]["summary"]
    assert "timeout of 1 s" in said["probe_timeout"]["summary"]
    assert "its whole grace of 5 s" in said["stop_ignored"]["summary"]


@pytest.mark.parametrize("name", ["truth", "startup", "traced", "evented", "crio", "k120", "midstream"])
def test_a_healthy_node_has_no_finding_of_warning_or_above(name):
    if not (DATA / f"{name}.jsonl.gz").exists():
        pytest.fail(f"{name} is not among the shipped captures")
    assert [(each["kind"], each["summary"]) for each in found(name)] == []
