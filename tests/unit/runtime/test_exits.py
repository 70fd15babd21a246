"""A container's end: when it died, when the runtime had been told, when its lists could show it."""

import pytest

from tests.unit.runtime.node import SHIM, Node, pod
from tests.unit.wire.shim import C1, C2, E1, S1, proto
from tracer.facts import Container
from tracer.runtime import exits as limits


@pytest.fixture
def node():
    node = Node()
    node.knows(S1, "web", C1)
    return node


def test_an_exit_has_its_three_times_its_status_and_its_pod(node):
    node.shim_call("Create", C1, payload=proto((1, 4711)))
    node.exit(4711, 137 << 8)
    died = node.now
    noticed = node.tell("/tasks/exit", (1, C1), (2, C1), (3, 4711), (4, 137))
    node.shim_call("Delete", C1, payload=proto((1, 4711), (2, 137)))
    (exited,) = node.exits.values()
    assert (exited.died_at, exited.noticed_at, exited.handled_at) == (died, noticed, node.now)
    assert (exited.container_id, exited.pid, exited.exit_status, exited.oom) == (C1, 4711, 137, False)
    assert (exited.pod, exited.container) == (pod("web"), Container(C1, "main", 0))
    assert node.runtime.exited(C1) is exited


@pytest.mark.parametrize(
    "method,payload", [("State", proto((1, C1), (3, 4711))), ("Connect", proto((1, SHIM), (2, 4711)))]
)
def test_the_process_of_a_container_older_than_the_tracer_is_known_from_questions(node, method, payload):
    node.shim_call(method, C1, payload=payload)
    node.exit(4711, 9)
    assert (node.exits[C1].pid, node.exits[C1].exit_status) == (4711, 137)


def test_an_exit_whose_process_was_not_known_has_no_time_of_death(node):
    noticed = node.tell("/tasks/exit", (1, C1), (2, C1), (3, 4711), (4, 1))
    assert (node.exits[C1].died_at, node.exits[C1].noticed_at, node.exits[C1].exit_status) == (None, noticed, 1)


def test_a_commands_end_is_not_the_containers(node):
    node.shim_call("Start", C1, E1, payload=proto((1, 4712)))
    node.exit(4712)
    node.tell("/tasks/exit", (1, C1), (2, E1), (3, 4712))
    assert node.exits == {}


def test_a_kill_for_want_of_memory_that_the_shim_tells_is_noted(node):
    node.shim_call("Create", C1, payload=proto((1, 4711)))
    node.tell("/tasks/oom", (1, C1))
    node.exit(4711, 9)
    assert node.exits[C1].oom


def test_it_is_noted_as_well_when_it_is_told_after_the_end(node):
    node.shim_call("Create", C1, payload=proto((1, 4711)))
    node.exit(4711, 9)
    node.tell("/tasks/oom", (1, C1))
    assert node.exits[C1].oom


def test_the_first_deletion_counts_and_what_is_asked_later_changes_nothing(node):
    node.tell("/tasks/exit", (1, C1), (2, C1), (3, 4711), (4, 1))
    node.shim_call("Delete", C1, payload=proto((1, 4711), (2, 1)))
    handled = node.exits[C1].handled_at
    node.shim_call("Delete", C1, payload=proto((1, 4711)))
    node.shim_call("State", C1, payload=proto((1, C1), (3, 4711)))
    node.exit(4711)
    assert (node.exits[C1].handled_at, node.exits[C1].exit_status, node.exits[C1].died_at) == (handled, 1, None)


def test_a_process_id_used_again_ends_only_the_container_that_has_it_now(node):
    node.shim_call("Create", C1, payload=proto((1, 4711)))
    node.shim_call("Create", C2, payload=proto((1, 4711)))
    node.exit(4711)
    assert set(node.exits) == {C2}


def test_exits_are_forgotten_beyond_the_limit(node, monkeypatch):
    monkeypatch.setattr(limits, "MAX_EXITS", 4)
    monkeypatch.setattr(limits, "MAX_RUNNING", 4)
    for at in range(9):
        node.shim_call("Create", f"{at:064x}", payload=proto((1, 5000 + at)))
        node.tell("/tasks/oom", (1, f"{at:064x}"))
    for at in range(9):
        node.tell("/tasks/exit", (1, f"{at:064x}"), (2, f"{at:064x}"))
    stage = node.runtime._exits
    assert (len(stage._running), len(stage._killed), len(stage._exits)) == (4, 4, 4)
