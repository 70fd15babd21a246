"""Groups: which rows make one tree, when that is decided, and that nothing is held for ever."""

import pytest

from tests.unit.store.sample import NOW, SECOND, call, relist, step, sync_pass
from tracer.outputs.otlp.groups import HOLD_NS, MAX_HELD, WAIT_NS, Groups

RELIST = {"kind": "relist", "id": "r1"}
SYNC = {"kind": "sync", "id": "s1"}
LONE = {"kind": "probe", "id": "p1"}


def members(groups):
    return [{row.id for row in [*filter(None, [g.root]), *g.calls.values(), *g.steps.values()]} for g in groups]


@pytest.fixture
def groups():
    return Groups(1.0)


def feed(groups, *rows):
    groups.feed(rows)


def whole():
    return [
        step("t1", NOW, 0.1, call="c1"),
        call("c1", NOW, 0.2, activity=SYNC),
        step("t2", NOW + SECOND, 0.1, call="c2"),
        call("c2", NOW + SECOND, 0.2, activity=SYNC),
        sync_pass("s1", NOW, 1.2, calls=["c1", "c2"]),
    ]


@pytest.mark.parametrize("turn", range(5))
def test_a_pass_its_calls_and_their_steps_are_one_group_in_whatever_order_they_come(groups, turn):
    rows = whole()
    feed(groups, *rows[turn:], *rows[:turn])
    end = NOW + int(1.2 * SECOND)
    assert groups.expire(end + HOLD_NS - 1) == []
    assert members(groups.expire(end + HOLD_NS)) == [{"s1", "c1", "c2", "t1", "t2"}]
    assert groups.held == 0


def test_a_call_of_no_relist_or_pass_is_a_group_with_its_steps(groups):
    feed(groups, step("t1", call="c1"), call("c1", activity=LONE), call("c2", activity=LONE))
    assert members(groups.expire(NOW + 3 * SECOND)) == [{"c2"}, {"c1", "t1"}]


def test_a_group_waits_for_what_of_it_ends_last(groups):
    feed(groups, relist("r1", NOW, 0.1, calls=["c1"]), call("c1", NOW, 0.1, activity=RELIST))
    feed(groups, step("t1", NOW, 1.0, call="c1"))
    assert groups.expire(NOW + 2 * SECOND + SECOND // 2) == []
    assert members(groups.expire(NOW + 3 * SECOND)) == [{"r1", "c1", "t1"}]


def test_a_call_whose_activity_turns_out_later_moves_with_its_steps(groups):
    feed(groups, call("c1", activity={"kind": "unknown", "id": None}), step("t1", call="c1"))
    feed(groups, relist("r1", calls=["c1"]), call("c1", activity=RELIST))
    assert members(groups.expire(NOW + 3 * SECOND)) == [{"r1", "c1", "t1"}]


def test_a_step_whose_cause_is_taken_back_goes(groups):
    feed(groups, call("c1", activity=LONE), call("c2", activity=LONE))
    feed(groups, step("t1", call="c1"), step("t2", call="c1"), step("t3", call="c9"))
    feed(groups, step("t1", call="c2"), step("t2", call=None), step("t3", call=None))
    assert sorted(map(sorted, members(groups.expire(NOW + 3 * SECOND)))) == [["c1"], ["c2", "t1"]]
    assert groups.held == 0


def test_an_open_pass_keeps_its_calls_as_long_as_it_lasts(groups):
    open_pass = sync_pass("s1", NOW, None, calls=["c1", "c2"])
    feed(groups, call("c1", activity=SYNC), open_pass, call("c2", NOW, None, activity=SYNC))
    assert groups.expire(NOW + 10 * WAIT_NS) == []
    feed(groups, call("c2", NOW, 5000.0, activity=SYNC), sync_pass("s1", NOW, 5000.0, calls=["c1", "c2"]))
    assert members(groups.expire(NOW + 5002 * SECOND)) == [{"s1", "c1", "c2"}]


def test_a_call_whose_pass_never_comes_is_given_alone_in_the_end(groups):
    feed(groups, call("c1", activity=SYNC), call("c2", activity=SYNC), step("t2", call="c2"))
    assert groups.expire(NOW + WAIT_NS) == []
    assert members(groups.expire(NOW + 2 * WAIT_NS)) == [{"c1"}, {"c2", "t2"}]


def test_a_step_whose_call_never_comes_is_forgotten(groups):
    feed(groups, step("t1", call="c1"))
    assert groups.expire(NOW + 2 * WAIT_NS) == []
    assert groups.held == 0


def test_a_stream_is_no_part_of_the_relist_that_listens_to_it(groups):
    feed(groups, relist("r1", calls=[]), call("c1", NOW, None, activity=RELIST, streaming=True))
    assert members(groups.expire(NOW + 3 * SECOND)) == [{"r1"}]
    feed(groups, call("c1", NOW, 3600.0, activity=RELIST, streaming=True))
    assert members(groups.expire(NOW + 4000 * SECOND)) == [{"c1"}]


def test_what_comes_after_the_decision_is_counted_and_not_given_again(groups):
    rows = whole()
    feed(groups, *rows)
    assert len(groups.expire(NOW + 60 * SECOND)) == 1
    feed(groups, *rows)
    assert (groups.expire(NOW + 120 * SECOND), groups.held, groups.late) == ([], 0, len(rows))


def test_the_end_decides_everything_that_is_over(groups):
    feed(groups, *whole()[:-1], call("c9", activity=LONE), call("c8", NOW, None, activity=LONE))
    assert sorted(map(sorted, members(groups.finish()))) == [["c1", "t1"], ["c2", "t2"], ["c9"]]
    assert groups.held == 0


def test_no_more_rows_are_held_than_the_bound(groups):
    for number in range(3 * MAX_HELD):
        feed(groups, call(f"c{number}", NOW, None, activity=LONE), step(f"t{number}", call=f"c{number}"))
        if groups.full:
            groups.expire(NOW)
        assert groups.held <= MAX_HELD + 2
    groups.finish()
    assert (groups.held, groups._held, groups._place, groups._cause) == (0, {}, {}, {})


def test_reminders_do_not_pile_up(groups):
    for number in range(5000):
        now = NOW + number * SECOND
        ids = [f"c{number}-{each}" for each in range(3)]
        activity = {"kind": "relist", "id": f"r{number}"}
        feed(groups, *(call(each, now, 0.1, activity=activity) for each in ids), relist(f"r{number}", now, calls=ids))
        assert len(groups.expire(now)) <= 1
    assert len(groups._due) < 20
    assert groups.held < 20


# what is kept


def slow_root():
    return [sync_pass("s1", NOW, 1.1, calls=[])]


def slow_call():
    return [sync_pass("s1", NOW, 0.4, calls=["c1"]), call("c1", NOW, 1.1, activity=SYNC)]


def slow_lone_call():
    return [call("c1", NOW, 1.1, activity=LONE)]


def failed_relist():
    return [relist("r1", NOW, 0.1, calls=[], outcome="failed")]


def failed_call():
    return [relist("r1", NOW, 0.1, calls=["c1"]), call("c1", NOW, 0.1, activity=RELIST, status="NOT_FOUND")]


def abandoned_call():
    return [call("c1", NOW, 0.1, activity=LONE, status=None, ended_by="deadline")]


@pytest.mark.parametrize("rows", [slow_root, slow_call, slow_lone_call, failed_relist, failed_call, abandoned_call])
def test_a_slow_or_failed_group_is_kept_whole(rows):
    groups = Groups(0.0)
    feed(groups, *rows())
    assert members(groups.finish()) == [{row.id for row in rows()}]


@pytest.mark.parametrize(
    "row",
    [
        call("c1", activity=LONE),
        call("c1", NOW, 3600.0, activity=LONE, streaming=True),
        call("c1", NOW, 0.1, activity=LONE, status=None, ended_by="unknown"),
        relist("r1", calls=[]),
        sync_pass("s1", NOW, 0.9, calls=[]),
    ],
)
def test_what_is_neither_is_not_kept_without_a_share(row):
    groups = Groups(0.0)
    feed(groups, row)
    assert (groups.finish(), groups.unsampled) == ([], 1)


def test_the_share_is_taken_by_the_trace_id_as_the_ratio_sampler_does():
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    groups, sampler = Groups(0.25), TraceIdRatioBased(0.25)
    ids = {f"c{n}": f"{n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}" for n in range(1, 400)}
    feed(groups, *(call(key, activity=LONE, trace_id=trace, span_id="ab" * 8) for key, trace in ids.items()))
    kept = {next(iter(group.calls)) for group in groups.finish()}
    assert kept == {
        key for key, trace in ids.items() if sampler.should_sample(None, int(trace, 16), "").decision.is_sampled()
    }
    assert 60 < len(kept) < 140
