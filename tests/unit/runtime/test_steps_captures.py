"""Real runtimes: whose their steps are, and how much of a call they account for."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median

import pytest

from tests.unit.replayed import DATA
from tracer.capture import CaptureFile
from tracer.facts import CriCall
from tracer.pipeline import Pipeline
from tracer.records import Exec
from tracer.runtime.exits import Exited
from tracer.runtime.runtime import Runtime
from tracer.runtime.spent import share, unexplained
from tracer.runtime.step import Step

CONTAINERD = ["startup", "truth", "stalls", "slowcni", "evented", "blame", "restart", "traced"]
ALL = [*CONTAINERD, "crio"]
SANDBOX = {"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"}


@dataclass(frozen=True)
class Seen:
    calls: dict[str, CriCall]
    steps: dict[str, Step]
    exits: dict[str, Exited]
    runtime: Runtime
    sandbox_of: dict[str, str]
    now: int

    def named(self, method: str) -> list[CriCall]:
        return [call for call in self.calls.values() if call.method == method and call.rpc.end is not None]

    def of(self, call: CriCall) -> list[Step]:
        return [step for step in self.steps.values() if step.call is call]

    def share(self, method: str, *without: str) -> float:
        """At the median, of the calls whose service time is known."""
        shares = [
            share(call, [step for step in self.of(call) if step.kind not in without], self.now)
            for call in self.named(method)
        ]
        return median(each for each in shares if each is not None)


@cache
def seen(name: str, environment: Callable[[Exec], dict[str, str]] | None = None) -> Seen:
    """`environment` gives plugins the variables that a recording has and these captures lack."""
    with contextlib.closing(CaptureFile(DATA / f"{name}.jsonl.gz")) as source:
        pipeline = Pipeline(source.realtime_offset_ns)
        calls, steps, exits, ticked = {}, {}, {}, 0
        runtime, take = pipeline.runtime, pipeline.runtime.take_exits

        def exited():
            taken = take()
            exits.update((each.container_id, each) for each in taken)
            return taken

        def cri(event, feed=runtime.cri):
            calls[event.call.id] = event.call
            found = feed(event)
            steps.update((step.id, step) for step in [*found, *runtime.steps_of(event.call)])
            return found

        def record(each, feed=runtime.record):
            found = feed(each)
            steps.update((step.id, step) for step in found)
            return found

        runtime.take_exits, runtime.cri, runtime.record = exited, cri, record
        for each in source.records():
            if environment is not None and isinstance(each, Exec):
                each.env.update(environment(each))
            pipeline.feed(each)
            if pipeline.now - ticked > 50_000_000:
                ticked = pipeline.now
                pipeline.tick(ticked)
    sandboxes = {ident: known.sandbox_id for ident, known in pipeline.identity.containers.items()}
    return Seen(calls, steps, exits, runtime, sandboxes, pipeline.now)


@pytest.mark.parametrize("name", ALL)
def test_no_step_belongs_to_a_call_of_another_container_or_sandbox(name):
    found = seen(name)
    joined = [step for step in found.steps.values() if step.call is not None and step.subject is not None]
    assert joined
    for step in joined:
        call = step.call
        own = {call.container_id, call.sandbox_id}
        assert step.subject in own or (call.method in SANDBOX and found.sandbox_of.get(step.subject) in own), step


@pytest.mark.parametrize("name", ALL)
def test_each_command_in_a_container_has_one_call_and_each_execsync_one_command(name):
    found = seen(name)
    of_command = defaultdict(set)
    for step in found.steps.values():
        if step.exec_id is not None and step.call is not None:
            of_command[step.exec_id].add(step.call.id)
    assert all(len(calls) == 1 for calls in of_command.values())
    for call in found.named("ExecSync"):
        assert len({step.exec_id for step in found.of(call) if step.exec_id}) <= 1


@pytest.mark.parametrize("name", ALL)
def test_steps_within_steps_lie_within_their_time_and_have_their_call(name):
    steps = seen(name).steps
    children = [step for step in steps.values() if step.parent is not None]
    assert children
    for step in children:
        parent = steps[step.parent]
        assert parent.call is step.call
        assert parent.start <= step.start
        # A shim answers once runc ended; a program may leave a child behind for a moment.
        if parent.kind == "shim" and parent.end is not None:
            assert step.end is not None
            assert step.end <= parent.end


@pytest.mark.parametrize("name", CONTAINERD)
def test_every_runc_of_containerd_lies_in_a_call_to_its_shim(name):
    # "delete" runs once more when the shim itself is taken away, by "containerd-shim-runc-v2 delete".
    outside = [
        s.name for s in seen(name).steps.values() if s.kind == "runc" and s.parent is None and s.name != "delete"
    ]
    assert outside == []


@pytest.mark.parametrize("name,least", [("startup", 0.9), ("truth", 0.9), ("traced", 0.88), ("evented", 0.88)])
def test_the_steps_of_startcontainer_explain_its_service(name, least):
    assert len(seen(name).named("StartContainer")) >= 5
    assert seen(name).share("StartContainer") >= least


@pytest.mark.parametrize("name", ["startup", "stalls", "slowcni", "blame", "crio"])
def test_the_steps_of_execsync_explain_its_service(name):
    assert len(seen(name).named("ExecSync")) >= 15
    assert seen(name).share("ExecSync") >= 0.9


@pytest.mark.parametrize("name,least", [("startup", 0.69), ("truth", 0.69), ("evented", 0.66)])
def test_the_steps_of_runpodsandbox_but_plugins_explain_most_of_its_service(name, least):
    assert seen(name).share("RunPodSandbox", "cni") >= least


def test_where_one_sandbox_is_run_at_a_time_its_plugins_are_its_own():
    found = seen("startup")
    (call,) = found.named("RunPodSandbox")
    plugins = Counter(step.name for step in found.of(call) if step.kind == "cni")
    assert plugins == {"loopback": 1, "bridge": 1, "host-local": 1, "portmap": 1}
    assert found.share("RunPodSandbox") >= 0.83
    ipam = next(step for step in found.of(call) if step.name == "host-local")
    assert found.steps[ipam.parent].name == "bridge"


@pytest.mark.parametrize("name", ["truth", "evented", "crio"])
def test_plugins_of_sandboxes_that_are_run_at_once_stay_unjoined_without_their_environment(name):
    found = seen(name)
    runs = found.named("RunPodSandbox")
    assert len(runs) > 1
    assert [step for call in runs for step in found.of(call) if step.kind == "cni"] == []


class Environments:
    """The sandboxes that are run at once have their plugins in turn: whose each was cannot be told any more."""

    def __init__(self, name: str) -> None:
        self._runs = seen(name).named("RunPodSandbox")
        self._netns: list[str] = []  # that pinns made, in their order
        self._turns: Counter[str] = Counter()

    def __call__(self, record: Exec) -> dict[str, str]:
        if record.comm == "pinns":
            self._netns.append(record.argv[record.argv.index("-f") + 1])
        of = [run for run in self._runs if run.rpc.start <= record.time <= run.rpc.end]
        if not of or not record.argv[0].startswith("/opt/cni/bin/"):
            return {}
        turn = self._turns[record.argv[0]] % len(of)
        self._turns[record.argv[0]] += 1
        netns = self._netns[turn] if self._netns else f"cni-{turn}"
        return {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": of[turn].sandbox_id, "CNI_NETNS": f"/var/run/netns/{netns}"}


@pytest.mark.parametrize(
    "name,least,steps",
    [
        ("truth", 0.86, {"loopback": 1, "bridge": 1, "host-local": 1, "portmap": 1}),
        ("evented", 0.83, {"loopback": 1, "bridge": 1, "host-local": 1, "portmap": 1}),
        ("crio", 0.55, {"pinns": 1, "bridge": 2, "host-local": 2, "portmap": 2}),
    ],
)
def test_their_environment_makes_plugins_their_sandboxs(name, least, steps):
    """These captures do not tell when a program was forked: what it waited for its file is missing."""
    found = seen(name, Environments(name))
    for run in found.named("RunPodSandbox"):
        assert Counter(s.name for s in found.of(run) if s.kind == "cni" or s.name == "pinns") == steps
    assert found.share("RunPodSandbox") >= least


def test_the_stopped_shim_is_the_open_call_of_the_probe_with_its_process_pod_and_container():
    found = seen("stalls")
    (probe,) = [call for call in found.named("ExecSync") if call.rpc.answered - call.rpc.received > 10_000_000_000]
    steps = sorted(found.of(probe), key=lambda step: step.start)
    slow = [step for step in steps if step.end - step.start > 5_000_000_000]
    assert [(step.name, step.pid) for step in slow] == [("State", 8413), ("Exec", 8413)]
    assert {step.container_id for step in slow} == {probe.container_id}
    assert {step.pod for step in slow} == {probe.pod}
    assert {step.container for step in slow} == {probe.container}
    assert probe.pod.name == "web-node1"
    assert unexplained(probe, found.of(probe), found.now) < 10_000_000


def test_a_slow_plugin_has_its_five_seconds_and_a_failing_one_its_exit_code():
    found = seen("slowcni")
    slow, *failing = sorted(found.named("RunPodSandbox"), key=lambda call: call.rpc.start)
    (plugin,) = [step for step in found.of(slow) if step.kind == "cni" and step.name == "bridge"]
    assert round((plugin.end - plugin.start) / 1e9, 1) == 5.0
    assert plugin.exit_code == 0
    assert len(failing) == 2
    for call in failing:
        codes = [step.exit_code for step in found.of(call) if step.name == "bridge"]
        assert codes == [1, 0]  # ADD, and DEL of what there was of it


def test_conmon_and_runc_are_behind_crios_calls():
    found = seen("crio")
    for call in found.named("ExecSync"):
        assert Counter((step.kind, step.name) for step in found.of(call)) == {
            ("exec", "conmon"): 1,
            ("runc", "exec"): 1,
        }
    for call in found.named("CreateContainer"):
        assert {("exec", "conmon"), ("runc", "state")} <= {(step.kind, step.name) for step in found.of(call)}


@pytest.mark.parametrize("name,count", [("truth", 7), ("startup", 4), ("evented", 7), ("slowcni", 2)])
def test_every_exit_has_its_times_in_order(name, count):
    exits = seen(name).exits
    assert len(exits) == count
    for exited in exits.values():
        assert exited.died_at < exited.noticed_at < exited.handled_at
        assert exited.handled_at - exited.died_at < 200_000_000
        assert exited.pod is not None


@pytest.mark.parametrize("name", ALL)
def test_nothing_stays_open_but_what_the_capture_cut_off(name):
    still = [
        step
        for step in seen(name).runtime.open_steps()
        if step.shown and step.name not in ("Wait", "State") and seen(name).now - step.start > 5_000_000_000
    ]
    assert still == []
