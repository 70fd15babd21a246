"""How much of a call's service its steps account for."""

import pytest

from tests.unit.runtime.node import PEER
from tracer.calls import Call
from tracer.facts import CriCall
from tracer.runtime.spent import explained, share, unexplained
from tracer.runtime.step import Step


def call(received=100, answered=200):
    rpc = Call(PEER, 1, 90, received=received, answered=answered)
    rpc.ended_by = "server" if answered is not None else None
    return CriCall(rpc, "runtime.v1.RuntimeService", "ExecSync", "v1", "header")


def step(start, end, parent=None):
    return Step(f"{start}", "shim", "State", start, end, parent=parent)


@pytest.mark.parametrize(
    "spans,covered",
    [
        ([], 0),
        ([(110, 120), (130, 150)], 30),
        ([(110, 150), (120, 130), (140, 160)], 50),  # at the same time counts once
        ([(50, 110), (190, 300)], 20),  # only within the service
        ([(50, 300)], 100),
        ([(0, 90), (200, 250)], 0),
        ([(150, None)], 50),
        ([(120, 130), (110, 140)], 30),
    ],
)
def test_steps_explain_what_at_least_one_of_them_covers(spans, covered):
    steps = [step(*span) for span in spans]
    assert explained(call(), steps, 1000) == covered
    assert unexplained(call(), steps, 1000) == 100 - covered
    assert share(call(), steps, 1000) == covered / 100


def test_steps_within_steps_do_not_count():
    assert explained(call(), [step(110, 120), step(110, 190, parent="1")], 1000) == 10


def test_an_open_call_is_explained_as_far_as_it_got():
    assert explained(call(answered=None), [step(110, None)], 160) == 50
    assert unexplained(call(answered=None), [step(110, None)], 160) == 10


def test_without_its_stamps_nothing_is_said():
    lost = call(answered=None)
    lost.rpc.ended_by = "connection"
    for each in (call(received=None), lost):
        assert (explained(each, [], 1), unexplained(each, [], 1), share(each, [], 1)) == (None, None, None)


def test_a_call_of_no_time_has_no_share():
    assert share(call(answered=100), [], 100) is None
