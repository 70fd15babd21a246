"""The terminal's view fits, and shows what matters first."""

import pytest

from tests.unit.store.sample import call, finding
from tracer.outputs.top import screen

PLEG = {
    "seconds_until_unhealthy": 120.0, "stage": "inspect", "stage_seconds": 60.0,
    "waiting_for": {"method": "ContainerStatus", "pod": {"namespace": "shop", "name": "web-0"}, "age_seconds": 59.5,
                    "stage": "service"},
}  # fmt: skip
SHARE = {"name": "agent-x (7)", "calls": 12, "service_share": 0.41, "bytes": 5_000_000}


def seen(**more):
    return {
        "health": {"version": "1", "status": "ok", "reasons": [], "source": "kernel", "runtimes": {"/run/c.sock": {}}},
        "pleg": PLEG,
        "findings": [finding(f"f{n}", seconds=None).fields for n in range(30)],
        "open": [call(f"c{n}", seconds=None, stage="service", service_seconds=3.2).fields for n in range(30)],
        "clients": [SHARE] * 30,
        "activities": [SHARE] * 30,
        "pods": [SHARE] * 300,
    } | more


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 50), (200, 100)])
def test_it_fits_whatever_there_is_to_show(width, height):
    lines = screen(seen(), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    for title in ("FINDINGS", "OPEN CALLS", "CLIENTS", "ACTIVITIES", "PODS"):
        assert any(line.startswith(title) for line in lines)


def test_pleg_and_what_it_waits_for_are_on_top():
    lines = screen(seen(), 120, 24)
    assert lines[1] == "PLEG  unhealthy in 120 s unless a relist begins; inspect for 60.0 s"
    assert "waits for ContainerStatus of shop/web-0, 59.5 s (service)" in lines[2]


def test_the_most_severe_finding_is_first():
    found = [finding("f1", seconds=None).fields, finding("f2", seconds=None, severity="critical").fields]
    lines = screen(seen(findings=found), 120, 40)
    assert lines[lines.index("FINDINGS") + 1].strip().startswith("critical")


def test_a_quiet_node_says_none():
    lines = screen(seen(findings=[], open=[]), 80, 24)
    assert lines[lines.index("FINDINGS") + 1].strip() == "none"


def test_what_came_from_a_peer_cannot_drive_the_terminal():
    lines = screen(seen(clients=[SHARE | {"name": "evil\x1b[2J\r\n (1)"}]), 80, 40)
    assert not any(char in line for line in lines for char in "\x1b\r\n")
