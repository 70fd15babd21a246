"""Real shims: every call of the captures."""

import contextlib
from functools import cache

import pytest

from tests.unit.replayed import DATA
from tests.unit.wire.shim import calls
from tracer.capture import CaptureFile
from tracer.paths import is_ttrpc
from tracer.records import Closed, Data, Exit, Opened

NAMES = ["startup", "truth", "stalls", "slowcni", "evented", "blame", "restart"]
SHIM_8413 = (8413, "containerd-shim")


@cache
def of(name):
    with contextlib.closing(CaptureFile(DATA / f"{name}.jsonl.gz")) as source:
        records = [
            each
            for each in source.records()
            if isinstance(each, (Closed, Exit)) or (isinstance(each, (Data, Opened)) and is_ttrpc(each.path))
        ]
    return calls(records)


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_read_and_every_answer_finds_its_request(name):
    found, stage = of(name)
    assert len(found) > 20
    assert (stage.stats.gaps, stage.stats.malformed, stage.stats.evicted) == (0, 0, 0)
    assert all(call.id for call in found)
    assert all(call.server_pid and call.client_pid for call in found)
    # What stays open: waits for processes that still ran, and questions that met the end of their task.
    for call in stage.open_calls():
        over = [c for c in found if c.method == "Delete" and c.id == call.id and c.start < call.start < c.answered]
        assert call.method == "Wait" or (call.method == "State" and over), call


@pytest.mark.parametrize("name", NAMES)
def test_stamps_are_in_order_and_all_there_also_on_connections_older_than_the_capture(name):
    found, _ = of(name)
    for call in found:
        if call.status is None:
            continue
        stamps = [call.start, call.sent, call.received, call.answered, call.read_answer, call.end]
        assert None not in stamps, call
        assert stamps == sorted(stamps), call


def test_the_stopped_shim_did_not_read_for_eleven_seconds():
    found, _ = of("stalls")
    slow = [c for c in found if c.received is not None and c.received - c.sent > 1_000_000_000]
    assert [(c.method, (c.server_pid, c.server_comm)) for c in slow] == [("State", SHIM_8413), ("Exec", SHIM_8413)]
    assert round((slow[0].received - slow[0].sent) / 1e9, 1) == 11.3
    assert (slow[0].answered - slow[0].received) / 1e9 < 0.01


def test_exits_are_told_with_the_status_that_the_task_was_deleted_with():
    found, _ = of("truth")
    told = {(c.id, c.exit_status) for c in found if c.topic == "/tasks/exit" and c.exec_id is None}
    deleted = {(c.id, c.exit_status) for c in found if c.method == "Delete" and c.exec_id is None}
    assert len(told) == 7
    assert told == deleted
