"""Exec probes: which there are, how often they run, how they end; and kills that follow."""

import pytest

from tests.unit.kubelet.script import MS, S, Script, container, pod, sandbox
from tests.unit.replayed import DATA, offset
from tracer.capture import CaptureFile
from tracer.facts import Container
from tracer.kubelet import probes
from tracer.pipeline import Pipeline

A = [sandbox("a")], [container("a")]
IDENT = Container("a-main0", "main", 0)


def run(script, *, command="c0ffee00", lasts=10 * MS, status="OK", exit_code=0, ended_by="server", timeout=1):
    call = script.send(
        "ExecSync", pod=pod("a"), container=IDENT, container_id=IDENT.id, timeout=timeout, command=command
    )  # fmt: skip
    script.wait(lasts)
    if status == "OK" and ended_by == "server":
        call.exit_code = exit_code
    script.answer(call, status, ended_by)
    return call


def periodic(script, period, times, **how):
    """Runs at even distances, as a ticker gives them."""
    begun = script.now
    for number in range(times):
        script.wait(begun + number * period - script.now)
        run(script, **how)


def test_a_probe_is_its_container_and_command_and_all_its_runs_are_one_activity():
    script = Script()
    first, second, other = run(script), run(script), run(script, command="deadbeef")
    ids = [script.activity[call.id] for call in (first, second, other)]
    assert ids[0] == ids[1] != ids[2]
    assert {kind for kind, _ in ids} == {"probe"}
    assert [(probe.id, probe.runs) for probe in script.kubelet.probes] == [(ids[0][1], 2), (ids[2][1], 1)]
    assert script.kubelet.probes.get(ids[0][1]).timeout == 1


def test_its_period_is_measured_from_start_to_start():
    script = Script()
    periodic(script, 10 * S, 2)
    (probe,) = script.kubelet.probes
    assert probe.period is None  # two runs may be anything
    script.wait(10 * S - 50 * MS)
    run(script)
    assert abs(probe.period - 10 * S) <= 100 * MS


def test_runs_that_were_not_seen_do_not_lengthen_the_period():
    script = Script()
    begun = script.now
    for place in (0, 1, 4, 5, 8):
        script.wait(begun + place * 2 * S - script.now)
        run(script)
    (probe,) = script.kubelet.probes
    assert abs(probe.period - 2 * S) <= 100 * MS


def test_two_probes_with_one_command_have_no_period():
    """Readiness and liveness of one container with one command, three seconds apart: no call tells them apart."""
    script = Script()
    begun = script.now
    for place in (0, 3, 10, 13, 20, 23):
        script.wait(begun + place * S - script.now)
        run(script)
    (probe,) = script.kubelet.probes
    assert probe.period is None


def test_a_run_that_is_tried_again_after_an_error_is_no_period():
    script = Script()
    begun = script.now
    for place in range(4):
        script.wait(begun + place * 5 * S - script.now)
        for _ in range(3):
            run(script, status="UNKNOWN", lasts=MS)
    (probe,) = script.kubelet.probes
    assert abs(probe.period - 5 * S) <= 100 * MS
    assert (probe.runs, probe.results) == (12, {"error": 12})


@pytest.mark.parametrize(
    ("how", "result", "streak"),
    [
        ({}, "success", 0),
        ({"exit_code": 1}, "failure", 1),
        ({"status": "DEADLINE_EXCEEDED"}, "timeout", 1),  # the runtime killed the command
        ({"status": "UNKNOWN"}, "error", 0),  # it could not even run it
        ({"status": None}, "unknown", 0),
        ({"status": None, "lasts": 1100 * MS}, "timeout", 1),  # which error is not on the wire, but when is
        ({"status": None, "ended_by": "deadline"}, "lost", 0),  # the kubelet gave up
        ({"status": None, "ended_by": "client_cancel"}, "lost", 0),
        ({"status": None, "ended_by": "connection"}, "lost", 0),
        ({"status": None, "ended_by": "unknown"}, "unknown", 0),
    ],
)
def test_how_a_run_ended(how, result, streak):
    script = Script()
    run(script, **how)
    (probe,) = script.kubelet.probes
    assert (probe.result, probe.streak, probe.results) == (result, streak, {result: 1})


def test_failures_in_a_row_are_counted_until_a_success():
    script = Script()
    streaks = []
    for code in (0, 1, 1, 0, 1):
        run(script, exit_code=code)
        streaks.append(next(iter(script.kubelet.probes)).streak)
    assert streaks == [0, 1, 2, 0, 1]


def test_a_run_under_way_belongs_to_its_probe():
    script = Script()
    call = script.send("ExecSync", pod=pod("a"), container=IDENT, container_id=IDENT.id, timeout=1, command="c0ffee00")
    (probe,) = script.kubelet.probes
    assert script.kubelet.activity_of(call) == ("probe", probe.id)
    assert (probe.call, probe.result) == (call, "unknown")


def test_probes_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(probes, "MAX_PROBES", 2)
    script = Script()
    for command in ("aa", "bb", "aa", "cc"):
        run(script, command=command)
    assert [probe.call.command for probe in script.kubelet.probes] == ["aa", "cc"]
    assert script.kubelet.probes.forgotten == 1


def kill(script, *, failed, then=()):
    script.relist(*A)
    if failed:
        run(script, exit_code=1)
    script.call("StopContainer", pod=pod("a"), container=IDENT, container_id=IDENT.id, grace=30)
    for method in then:
        script.call(method, pod=pod("a"), sandbox_id="a-s0")
    (sync,) = script.passes.values()
    return sync


def test_a_kill_after_a_failed_probe_was_triggered_by_it():
    assert kill(Script(), failed=True).trigger == "probe"
    assert kill(Script(), failed=False).trigger == "unknown"


def test_the_termination_of_a_pod_whose_probe_fails_was_not():
    sync = kill(Script(), failed=True, then=["StopPodSandbox"])
    assert (sync.kind, sync.trigger) == ("terminate", "unknown")


@pytest.mark.parametrize(("name", "periods"), [("startup", {2}), ("traced", {2, 3, 4, 5}), ("crio", {3})])
def test_a_real_kubelets_probes_have_periods_of_whole_seconds(name, periods):
    pipeline = Pipeline(offset(name))
    source = CaptureFile(DATA / f"{name}.jsonl.gz")
    for record in source.records():
        pipeline.feed(record)
    source.close()
    found = [probe for kubelet in pipeline.kubelets.values() for probe in kubelet.probes if len(probe.starts) > 4]
    assert found
    assert {round(probe.period / S) for probe in found} <= periods
    for probe in found:
        assert abs(probe.period - round(probe.period / S) * S) < 100 * MS
        assert set(probe.results) <= {"success", "error"}
        assert probe.results["success"] >= probe.runs - 1
