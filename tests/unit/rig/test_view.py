"""The demonstration's terminal view."""

import pytest
from rich.console import Console

from tests.rig.view import Snapshot, health, relist_line, screen

LONG = {"namespace": "n" * 63, "name": "p" * 253, "uid": "u"}
EVENT = {"type": "ContainerStarted", "pod": LONG}
STAGE = {"name": "stop_container", "duration_seconds": 123.4}
RELIST = {
    "start": "2026-11-30T21:58:47.930080560Z",
    "kind": "generic",
    "duration_seconds": 0.0123,
    "list_sandboxes_seconds": 0.001,
    "list_containers_seconds": None,
    "inspect_seconds": 2.5,
    "events": [EVENT] * 9,
}
SYNC = {
    "start": "2026-11-30T21:58:47.930080560Z",
    "pod": LONG,
    "kind": "recreate_sandbox",
    "duration_seconds": None,
    "stages": [STAGE] * 9,
}
CALL = {
    "method": "UpdatePodSandboxResources",
    "duration_seconds": None,
    "ended_by": None,
    "status": None,
    "pod": LONG,
    "container": {"name": "c" * 63},
}
UNKNOWN = {
    "method": None,
    "duration_seconds": 1.0,
    "ended_by": "deadline",
    "status": None,
    "pod": None,
    "container": None,
}
WAITING = {"method": "ContainerStatus", "age_seconds": 170.0, "pod": LONG, "container": None}
PLEG = {"age_seconds": 171.0, "seconds_until_unhealthy": 9.0, "stage": "inspect", "waiting_for": WAITING}


def pods(count):
    return [SYNC | {"pod": LONG | {"name": f"{i}-{LONG['name']}"}} for i in range(count)]


@pytest.mark.parametrize("trouble", [None, "12:00:00 trouble for 20 s: " + "something breaks " * 20])
@pytest.mark.parametrize("width", [80, 200])
def test_it_fits_a_terminal_of_24_lines_whatever_the_answers_hold(width, trouble):
    verdict = {"sentence": "a long sentence " * 60, "state": "trouble"}
    now = Snapshot(pleg=PLEG, relists=[RELIST] * 50, passes=pods(50), calls=[CALL, UNKNOWN] * 50, verdict=verdict)
    console = Console(width=width, height=24)
    with console.capture() as picture:
        console.print(screen(now, "http://127.0.0.1:9559", trouble))
    lines = picture.get().splitlines()
    assert len(lines) <= 23, "one line is left for the cursor"
    assert max(map(len, lines)) <= width


def test_a_node_of_which_nothing_is_known_yet_can_be_shown():
    now = Snapshot(
        pleg=dict.fromkeys(PLEG),
        relists=[],
        passes=[],
        calls=[],
    )
    console = Console(width=80)
    with console.capture() as picture:
        console.print(screen(now, "http://127.0.0.1:9559"))
    assert "no relist seen yet" in picture.get()
    assert "curl 'http://127.0.0.1:9559/api/v1/pods'" in picture.get()


def test_a_hanging_relist_is_told_with_what_it_waits_for():
    told = health(Snapshot(pleg=PLEG, relists=[], passes=[], calls=[])).plain
    assert told.startswith("PLEG healthy: last relist began 171.0 s ago, 9 s until unhealthy; now inspect")
    assert "waits 170.0 s for ContainerStatus" in told


def test_an_unhealthy_pleg_is_told():
    late = PLEG | {"seconds_until_unhealthy": -1.0}
    assert health(Snapshot(pleg=late, relists=[], passes=[], calls=[])).plain.startswith("PLEG NOT healthy")


def test_where_trouble_is_made_that_and_the_verdict_are_shown():
    verdict = {"sentence": "The runtime does not read its socket.", "state": "trouble"}
    now = Snapshot(pleg=PLEG, relists=[], passes=[], calls=[], verdict=verdict)
    console = Console(width=80)
    with console.capture() as picture:
        console.print(screen(now, "http://127.0.0.1:9559", "12:00:00 trouble for 15 s: containerd is stopped"))
    lines = picture.get().splitlines()
    assert lines[-2] == "12:00:00 trouble for 15 s: containerd is stopped"
    assert lines[-1].strip() == "criscope says: The runtime does not read its socket."


def test_a_part_that_was_not_seen_is_no_zero():
    assert "sandboxes 1.0 ms + containers - + inspection 2.50 s" in relist_line(RELIST)
