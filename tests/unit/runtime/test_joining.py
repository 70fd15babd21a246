"""Each step belongs to the call that caused it, or to none: scripts of what a node does."""

import pytest

from tests.unit.runtime.node import CONTAINERD, MS, SHIM, Node, S, cni, pod, runc, shim_start
from tests.unit.wire.shim import C1, C2, E1, E2, S1, S2, proto
from tracer.facts import Container
from tracer.runtime import joining
from tracer.runtime.joining import KEEP_NS
from tracer.runtime.runtime import QUIET_NS


@pytest.fixture
def node():
    node = Node()
    node.knows(S1, "web", C1)
    node.knows(S2, "db", C2)
    return node


def exec_in(node, ident, exec_id, *, shim=SHIM, status=0):
    """What containerd asks for one ExecSync, until the command's end."""
    node.shim_call("Exec", ident, exec_id, shim=shim)
    wait = node.shim_ask("Wait", ident, exec_id, shim=shim)
    start = node.shim_ask("Start", ident, exec_id, shim=shim)
    pid = node.run(*runc("exec", "--process", "/tmp/p", "--pid-file", f"/x/{exec_id}.pid", ident), ppid=shim)
    node.exit(pid)
    node.shim_answer(start, proto((1, 4711)))
    node.shim_answer(wait, proto((1, status)))
    return lambda: node.shim_call("Delete", ident, exec_id, shim=shim, payload=proto((1, 4711), (2, status)))


EXECUTED = [("shim", "Exec"), ("shim", "Wait"), ("shim", "Start"), ("runc", "exec"), ("shim", "Delete")]


# containers


def test_a_containers_start_has_its_shims_calls_and_runc_within_them(node):
    call = node.ask("StartContainer", container_id=C1)
    starting = node.run(*shim_start(C1))
    node.exit(starting)
    create = node.shim_ask("Create", C1, "/bundle")
    pid = node.run(*runc("create", "--bundle", "/b", C1), ppid=SHIM)
    node.exit(pid)
    node.shim_answer(create, proto((1, 4711)))
    node.answer(call)
    assert node.of(call) == [("exec", "containerd-shim-runc-v2 start"), ("shim", "Create"), ("runc", "create")]
    step = node.program(pid)
    assert step.parent == f"t{SHIM}-1"
    assert (step.container_id, step.sandbox_id, step.pod, step.container) == (
        C1,
        S1,
        pod("web"),
        Container(C1, "main", 0),
    )
    assert (step.exit_code, step.signal) == (0, None)


def test_two_containers_that_start_at_once_in_one_shim_are_kept_apart(node):
    node.knows(S1, "web", C1, "ab" * 32)
    one, two = node.ask("StartContainer", container_id=C1), node.ask("StartContainer", container_id="ab" * 32)
    first, second = node.shim_ask("Create", C1), node.shim_ask("Create", "ab" * 32)
    node.run(*runc("create", "ab" * 32), ppid=SHIM)
    node.run(*runc("create", C1), ppid=SHIM)
    for asked, call in ((first, one), (second, two)):
        node.shim_answer(asked)
        assert node.of(call) == [("shim", "Create"), ("runc", "create")]
        assert len({step.subject for step in node.runtime.steps_of(call)}) == 1


def test_what_runs_while_no_call_is_about_it_belongs_to_none(node):
    call = node.ask("StartContainer", container_id=C1)
    node.shim_call("Kill", C2, more=proto((3, 9)))
    pid = node.run(*runc("delete", C2), ppid=SHIM)
    node.exit(pid)
    assert node.of(call) == []
    assert node.program(pid).call is None
    assert node.program(pid).pod == pod("db")  # whose it is is known all the same


def test_a_step_before_its_call_was_read_or_after_its_answer_is_not_its_own(node):
    call = node.ask("StopContainer", container_id=C1, read=False)
    node.shim_call("Kill", C1)
    call.rpc.received = node.now
    node.shim_call("Kill", C1)
    node.answer(call)
    node.shim_call("Delete", C1)
    assert node.of(call) == [("shim", "Kill")]


def test_an_update_has_runcs_update(node):
    call = node.ask("UpdateContainerResources", container_id=C1)
    update = node.shim_ask("Update", C1)
    node.run(*runc("update", "--resources=-", C1), ppid=SHIM)
    node.shim_answer(update)
    assert node.of(call) == [("shim", "Update"), ("runc", "update")]


def test_what_a_call_cannot_cause_is_not_its_own(node):
    call = node.ask("UpdateContainerResources", container_id=C1)
    node.shim_call("Kill", C1)
    node.shim_call("Stats", C1)
    assert node.of(call) == []


def test_two_calls_that_both_may_be_the_cause_leave_it_unjoined(node):
    one, two = node.ask("StopContainer", container_id=C1), node.ask("StopContainer", container_id=C1)
    node.shim_call("Kill", C1)
    assert node.of(one) == node.of(two) == []


def test_stopping_a_sandbox_is_behind_the_kills_of_its_containers(node):
    call = node.ask("StopPodSandbox", sandbox_id=S1)
    node.shim_call("Kill", C1)
    node.shim_call("Kill", S1)
    node.shim_call("Kill", C2)
    assert node.of(call) == [("shim", "Kill")] * 2


def test_a_question_that_states_no_namespace_is_another_clients(node):
    call = node.ask("ExecSync", container_id=C1)
    node.shim_call("State", C1, namespaced=False)
    assert node.of(call) == []
    node.shim_call("State", C1)
    assert node.of(call) == [("shim", "State")]


# questions


def test_small_questions_are_not_shown_unless_they_are_slow(node):
    node.ask("ExecSync", container_id=C1)
    node.shim_call("State", C1)
    assert node.steps == {}
    asked = node.shim_ask("State", C1, read=False)
    node.wait(QUIET_NS + MS)
    ((ident, step),) = node.steps.items()
    assert (step.name, step.end, step.received, step.pid) == ("State", None, None, SHIM)
    node.shim_answer(asked)
    assert node.steps[ident].end is not None


def test_a_question_that_failed_is_shown(node):
    asked = node.shim_ask("State", C1)
    node.shim_answer(asked, status=5, text="not found")
    assert [(step.status, step.error) for step in node.steps.values()] == [("NOT_FOUND", "not found")]


def test_the_wait_for_a_containers_end_is_no_step(node):
    node.shim_ask("Wait", C1)
    assert node.runtime.open_steps() == []


# commands in a container


def test_an_execsync_has_the_whole_of_its_command(node):
    call = node.ask("ExecSync", container_id=C1)
    exec_in(node, C1, E1)()
    node.answer(call, exit_code=0)
    assert node.of(call) == EXECUTED
    assert {step.exec_id for step in node.runtime.steps_of(call)} == {E1}


def test_a_command_that_begins_while_one_call_has_its_own_is_the_others(node):
    one = node.ask("ExecSync", container_id=C1)
    node.shim_call("Exec", C1, E1)
    two = node.ask("ExecSync", container_id=C1)
    node.shim_call("Exec", C1, E2)
    node.shim_call("Start", C1, E1)
    assert node.of(one) == [("shim", "Exec"), ("shim", "Start")]
    assert node.of(two) == [("shim", "Exec")]


def test_of_two_commands_that_cannot_be_told_apart_each_is_known_once_the_first_is_answered(node):
    one, two = node.ask("ExecSync", container_id=C1), node.ask("ExecSync", container_id=C1)
    done_1, done_2 = exec_in(node, C1, E1), exec_in(node, C1, E2)
    assert node.of(one) == node.of(two) == []
    done_2()
    node.answer(one, exit_code=0)
    assert {step.exec_id for step in node.runtime.steps_of(one)} == {E2}
    assert {step.exec_id for step in node.runtime.steps_of(two)} == {E1}
    done_1()
    assert node.of(two) == EXECUTED


def test_of_two_commands_that_are_over_at_once_the_exit_codes_tell_which_is_whose(node):
    one, two = node.ask("ExecSync", container_id=C1), node.ask("ExecSync", container_id=C1)
    done_1, done_2 = exec_in(node, C1, E1, status=3), exec_in(node, C1, E2)
    done_1()
    done_2()
    node.answer(one, exit_code=0)
    node.answer(two, exit_code=3)
    assert {step.exec_id for step in node.runtime.steps_of(one)} == {E2}
    assert {step.exec_id for step in node.runtime.steps_of(two)} == {E1}


def test_two_commands_that_nothing_tells_apart_stay_unjoined(node):
    one, two = node.ask("ExecSync", container_id=C1), node.ask("ExecSync", container_id=C1)
    done_1, done_2 = exec_in(node, C1, E1), exec_in(node, C1, E2)
    done_1()
    done_2()
    node.answer(one, exit_code=0)
    node.answer(two, exit_code=0)
    assert node.of(one) == node.of(two) == []


def test_commands_of_two_containers_at_once_are_kept_apart(node):
    one, two = node.ask("ExecSync", container_id=C1), node.ask("ExecSync", container_id=C2)
    exec_in(node, C2, E1)()
    exec_in(node, C1, E2)()
    assert {step.subject for step in node.runtime.steps_of(one)} == {C1}
    assert {step.subject for step in node.runtime.steps_of(two)} == {C2}


def test_a_command_that_a_streaming_client_may_run_is_not_the_probes(node):
    node.answer(node.ask("Exec", container_id=C1))
    call = node.ask("ExecSync", container_id=C1)
    exec_in(node, C1, E1)
    assert node.of(call) == []


def test_a_streaming_clients_command_without_a_probe_uses_its_request_up(node):
    node.answer(node.ask("Exec", container_id=C1))
    exec_in(node, C1, E1)()
    call = node.ask("ExecSync", container_id=C1)
    exec_in(node, C1, E2)()
    assert {step.exec_id for step in node.runtime.steps_of(call)} == {E2}


def test_the_steps_of_a_command_older_than_the_tracer_belong_to_none(node):
    call = node.ask("ExecSync", container_id=C1)
    node.shim_call("Delete", C1, E1)
    assert node.of(call) == []


# sandboxes


def test_a_sandboxs_steps_are_its_calls_once_the_answer_told_its_id(node):
    one = node.ask("RunPodSandbox", pod=pod("a"))
    two = node.ask("RunPodSandbox", pod=pod("b"))
    new_1, new_2 = "a1" * 32, "b1" * 32
    for ident in (new_2, new_1):
        node.exit(node.run(*shim_start(ident)))
        node.shim_call("Create", ident, shim=int(ident[0], 16))
    assert node.of(one) == node.of(two) == []
    node.answer(one, sandbox_id=new_1)
    node.answer(two, sandbox_id=new_2)
    for call, ident in ((one, new_1), (two, new_2)):
        assert node.of(call) == [("exec", "containerd-shim-runc-v2 start"), ("shim", "Create")]
        assert {step.subject for step in node.runtime.steps_of(call)} == {ident}
        assert {step.sandbox_id for step in node.runtime.steps_of(call)} == {ident}
        assert {step.container_id for step in node.runtime.steps_of(call)} == {None}


def test_the_only_sandbox_that_is_run_has_the_new_id_at_once(node):
    call = node.ask("RunPodSandbox", pod=pod("a"))
    asked = node.shim_ask("Create", "a1" * 32)
    assert node.of(call) == [("shim", "Create")]
    ((_, step),) = node.steps.items()
    assert (step.pod, step.sandbox_id, step.container_id) == (pod("a"), "a1" * 32, None)
    node.shim_answer(asked)
    node.answer(call, sandbox_id="a1" * 32)
    assert node.of(call) == [("shim", "Create")]


def test_a_guess_that_the_answer_contradicts_is_taken_back(node):
    call = node.ask("RunPodSandbox", pod=pod("a"))
    node.shim_call("Create", "f0" * 32)
    node.answer(call, sandbox_id="a1" * 32)
    assert node.of(call) == []
    ((_, step),) = node.steps.items()
    assert step.call is None
    assert node.runtime.stats.joining.taken_back == 1


def test_an_id_that_is_known_is_not_the_new_sandboxs(node):
    call = node.ask("RunPodSandbox", pod=pod("a"))
    node.shim_call("Create", C1)
    assert node.of(call) == []


def test_a_plugins_environment_joins_it_at_once_among_many_calls(node):
    one, two = node.ask("RunPodSandbox", pod=pod("a")), node.ask("RunPodSandbox", pod=pod("b"))
    first = node.run("/opt/cni/bin/bridge", **cni("ADD", "a1" * 32, "a"))
    second = node.run("/opt/cni/bin/bridge", **cni("ADD", "b1" * 32, "b"))
    ipam = node.run("/opt/cni/bin/host-local", ppid=first, **cni("ADD", "a1" * 32, "a"))
    assert node.of(one) == [("cni", "bridge"), ("cni", "host-local")]
    assert node.of(two) == [("cni", "bridge")]
    assert node.program(ipam).parent == node.program(first).id
    assert node.program(second).pod == pod("b")
    node.shim_call("Create", "b1" * 32)  # and what has that id now is known to be the same call's
    assert node.of(two) == [("cni", "bridge"), ("shim", "Create")]


def test_a_plugin_that_failed_has_its_exit_code(node):
    node.ask("RunPodSandbox", pod=pod("a"))
    pid = node.run("/opt/cni/bin/bridge", **cni("ADD", "a1" * 32, "a"))
    node.exit(pid, 1 << 8)
    assert (node.program(pid).exit_code, node.program(pid).signal, node.program(pid).command) == (1, None, "ADD")


def test_a_program_began_when_its_process_was_forked(node):
    before, call = node.ask("StopPodSandbox", sandbox_id=S1), node.ask("RunPodSandbox", pod=pod("a"))
    node.answer(before)
    forked = node.now + MS
    node.now += 50 * MS
    node.again(7, "/opt/cni/bin/bridge", forked=forked)
    assert node.program(7).start == forked
    assert node.of(call) == [("cni", "bridge")]


def test_a_program_that_a_signal_ended_has_the_signal_and_no_exit_code(node):
    pid = node.run(*runc("start", C1), ppid=SHIM)
    node.exit(pid, 9)
    assert (node.program(pid).exit_code, node.program(pid).signal) == (None, 9)


def test_without_environment_a_plugin_is_the_only_open_calls(node):
    call = node.ask("StopPodSandbox", sandbox_id=S1)
    node.run("/opt/cni/bin/bridge")
    assert node.of(call) == [("cni", "bridge")]


def test_without_environment_a_plugin_of_two_open_calls_stays_unjoined(node):
    one, two = node.ask("StopPodSandbox", sandbox_id=S1), node.ask("RunPodSandbox", pod=pod("a"))
    pid = node.run("/opt/cni/bin/bridge")
    node.answer(one)
    node.answer(two, sandbox_id="a1" * 32)
    assert node.program(pid).call is None


def test_a_call_that_is_named_late_takes_a_plugin_back_that_could_be_its_own(node):
    late = node.ask("RunPodSandbox", pod=pod("a"), name="late")
    call = node.ask("StopPodSandbox", sandbox_id=S1)
    pid = node.run("/opt/cni/bin/bridge")
    assert node.program(pid).call is call
    node.answer(late, sandbox_id="a1" * 32)
    assert node.program(pid).call is None


def test_a_call_that_is_named_late_has_the_steps_that_were_before(node):
    late = node.ask("StartContainer", container_id=C1, name="late")
    node.shim_call("Create", C1)
    node.answer(late)
    assert node.of(late) == [("shim", "Create")]


def test_a_call_that_loses_its_name_loses_its_steps(node):
    call = node.ask("StartContainer", container_id=C1)
    node.shim_call("Create", C1)
    node.answer(call)
    node.renamed(call, None)
    assert node.of(call) == []
    assert [step.call for step in node.steps.values()] == [None]


def test_a_deleting_plugin_has_its_sandboxs_call_whatever_else_is_open(node):
    one, two = node.ask("StopPodSandbox", sandbox_id=S1), node.ask("StopPodSandbox", sandbox_id=S2)
    node.run("/opt/cni/bin/bridge", **cni("DEL", S2, "db"))
    assert (node.of(one), node.of(two)) == ([], [("cni", "bridge")])


def test_a_wrapper_that_becomes_the_plugin_is_one_step(node):
    call = node.ask("RunPodSandbox", pod=pod("a"))
    env = cni("ADD", "a1" * 32, "a")
    pid = node.run("/bin/sh", "/opt/cni/bin/bridge", comm="bridge", **env)
    sleep = node.run("sleep", "5", ppid=pid, **env)
    node.exit(sleep)
    node.again(pid, "/opt/cni/bin/bridge.real", **env)
    node.exit(pid)
    assert node.of(call) == [("cni", "bridge"), ("exec", "sleep")]
    assert node.program(pid).end == node.now


# CRI-O


def test_conmon_and_runc_are_behind_crios_execsync(node):
    call = node.ask("ExecSync", container_id=C1)
    conmon = node.run("/usr/bin/conmon", "-c", C1, "-e", "-r", "/usr/sbin/runc")
    runs = node.run("/usr/sbin/runc", "--root=/run/crun", "exec", "--process", "/tmp/p", C1, ppid=conmon)
    node.exit(runs)
    node.exit(conmon)
    node.answer(call, exit_code=0)
    assert node.of(call) == [("exec", "conmon"), ("runc", "exec")]
    assert node.program(runs).parent == node.program(conmon).id


def test_conmon_is_behind_the_container_that_the_answer_names(node):
    one, two = node.ask("CreateContainer", sandbox_id=S1), node.ask("CreateContainer", sandbox_id=S2)
    node.exit(node.run("/usr/bin/conmon", "-c", "a1" * 32, "-u", "a1" * 32))
    node.exit(node.run("/usr/sbin/runc", "--root", "/run/crun", "state", "a1" * 32))
    assert node.of(one) == node.of(two) == []
    node.answer(two, container_id="a1" * 32)
    assert (node.of(one), node.of(two)) == ([], [("exec", "conmon"), ("runc", "state")])


def test_pinns_is_the_calls_whose_plugin_is_given_its_namespace(node):
    one, two = node.ask("RunPodSandbox", pod=pod("a")), node.ask("RunPodSandbox", pod=pod("b"))
    node.exit(node.run("/usr/local/bin/pinns", "-d", "/var/run", "-f", "ns-1", "--net"))
    node.exit(node.run("/usr/local/bin/pinns", "-d", "/var/run", "-f", "ns-2", "--net"))
    node.run("/opt/cni/bin/bridge", **cni("ADD", "b1" * 32, "b", "/var/run/netns/ns-2"))
    assert node.of(one) == []
    assert node.of(two) == [("exec", "pinns"), ("cni", "bridge")]


def test_unpigz_is_the_only_pulls(node):
    call = node.ask("PullImage")
    node.exit(node.run("unpigz", "-d", "-c"))
    assert node.of(call) == [("exec", "unpigz")]
    node.ask("PullImage")
    node.exit(node.run("unpigz", "-d", "-c"))
    assert node.of(call) == [("exec", "unpigz")]


# what is lost, and bounds


def test_a_process_id_that_is_used_again_by_another_is_another_step(node):
    pid = node.run(*runc("start", C1), ppid=SHIM)
    node.again(pid, *runc("kill", C2, "9"), ppid=9999)
    found = sorted((s for s in node.steps.values() if s.pid == pid), key=lambda step: step.start)
    assert [(step.name, step.end) for step in found] == [("start", None), ("kill", None)]
    assert node.runtime.open_steps() == [found[1]]


def test_a_lost_connection_ends_its_steps_without_a_status(node):
    call = node.ask("StopContainer", container_id=C1)
    shim, _ = node.shim_ask("Kill", C1)
    shim.close()
    node._told(shim)
    ((_, step),) = node.steps.items()
    assert (step.call, step.status, step.end) == (call, None, shim.time)
    assert node.runtime.open_steps() == []


def test_steps_and_calls_are_let_go_a_minute_after_they_were_over(node):
    call = node.ask("StartContainer", container_id=C1)
    node.shim_call("Create", C1)
    node.answer(call)
    node.wait(KEEP_NS - S)
    assert node.of(call) == [("shim", "Create")]
    node.wait(20 * S)
    assert node.of(call) == []
    inner = node.runtime._joining
    assert (inner._subjects, inner._causes, inner._of_call) == ({}, {}, {})


def test_an_open_call_keeps_its_steps_for_as_long_as_it_lasts(node):
    call = node.ask("StartContainer", container_id=C1)
    node.shim_call("Create", C1)
    node.shim_ask("Start", C1)
    for _ in range(40):
        node.wait(10 * S)
    assert node.of(call) == [("shim", "Create"), ("shim", "Start")]


def test_every_table_has_its_limit(node, monkeypatch):
    from tracer.runtime import runtime

    for name in ("MAX_SUBJECTS", "MAX_STEPS", "MAX_SESSIONS", "MAX_CAUSES", "MAX_OF_CALL", "MAX_STRAYS"):
        monkeypatch.setattr(joining, name, 8)
    monkeypatch.setattr(runtime, "MAX_OPEN", 8)
    call = node.ask("ExecSync", container_id=C1)
    for at in range(30):
        ident = f"{at:064x}"
        node.shim_call("Kill", ident)
        node.shim_ask("Exec", C1, ident)
        node.shim_call("State", C1)
        node.run("/opt/cni/bin/bridge")
        node.ask("StopContainer", container_id=ident)
    inner = node.runtime._joining
    assert len(inner._subjects) <= 8
    assert len(inner._causes) <= 8
    assert len(inner._strays) <= 8
    assert len(node.runtime.open_steps()) <= 8
    assert all(len(each.steps) <= 8 and len(each.sessions) <= 8 for each in inner._subjects.values())
    assert len(node.runtime.steps_of(call)) <= 8
    assert node.runtime.stats.joining.evicted > 0
    assert node.runtime.stats.evicted > 0


def test_the_runtimes_own_processes_are_known_from_its_connections():
    node = Node()
    node.run("apparmor_parser", "-V", ppid=CONTAINERD)
    assert node.steps == {}
    node.ask("Version")
    pid = node.run("apparmor_parser", "-V", ppid=CONTAINERD)
    assert node.program(pid).name == "apparmor_parser"
