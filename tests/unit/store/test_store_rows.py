"""What is fed can be read: rows, filters, pods, timelines."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.store.sample import NOW, SECOND, call, event, pod, relist, sync_pass
from tracer.rows import Row
from tracer.store import Filter, Store, Window
from tracer.store.query import PAGE_BYTES

ALWAYS = Window()


def filled(store: Store, *rows: Row) -> Store:
    store.feed(rows)
    assert store.flush()
    return store


def ids(store: Store, kind="call", window=ALWAYS, **where) -> list[str]:
    page = store.page(kind, window, Filter(**where), now=NOW)
    return [json.loads(item)["id"] for item in page.items]


@pytest.mark.parametrize("row", [call("c3-1"), relist("rc3-1"), event("e1"), sync_pass("sc3-1")])
def test_a_row_comes_back_as_it_was_fed(store, row):
    filled(store, row)
    (item,) = store.page(row.kind).items
    assert json.loads(item) == row.fields
    assert json.loads(store.row(row.kind, row.id) or "") == row.fields


TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


def test_any_value_json_has_comes_back(store):
    @settings(max_examples=50)
    @given(VALUES)
    def stored(value):
        filled(store, call("c3-1", error=value))
        assert json.loads(store.row("call", "c3-1") or "")["error"] == value

    stored()


def test_a_row_is_replaced_at_its_place(store):
    filled(store, call("c3-1", NOW, None), call("c3-3", NOW + 1))
    filled(store, call("c3-1", NOW, 2.5))
    assert ids(store) == ["c3-3", "c3-1"]
    assert json.loads(store.row("call", "c3-1") or "")["duration_seconds"] == 2.5
    assert store.status().rows == 2


def test_the_newest_comes_first_and_of_one_start_the_last_to_come(store):
    filled(store, call("c3-1", NOW), call("c3-3", NOW - 1), call("c3-5", NOW), call("c3-7", NOW + 1))
    assert ids(store) == ["c3-7", "c3-5", "c3-1", "c3-3"]


@pytest.mark.parametrize(
    "where, expected",
    [
        ({"method": "ExecSync"}, ["c3-3"]),
        ({"status": "NOT_FOUND"}, ["c3-5"]),
        ({"status": "OK"}, ["c3-7", "c3-3", "c3-1"]),
        ({"status": "cancelled_by_client"}, ["c3-9"]),
        ({"status": "open"}, ["c3-11"]),
        ({"pod": "web-0"}, ["c3-7", "c3-3"]),
        ({"pod": "web-0", "namespace": "shop"}, ["c3-7"]),
        ({"namespace": "shop"}, ["c3-7"]),
        ({"activity": "probe"}, ["c3-3"]),
        ({"min_duration": 2.0}, ["c3-7"]),
        ({"min_duration": 1.0}, ["c3-7", "c3-3"]),
        ({"pod": "web-0", "min_duration": 2.0}, ["c3-7"]),
        ({"method": "nothing"}, []),
        ({"pod": "nothing"}, []),
    ],
)
def test_a_filter_lets_through_what_matches_and_nothing_else(store, where, expected):
    filled(
        store,
        call("c3-1", NOW),
        call("c3-3", NOW + 1, 1.0, method="ExecSync", pod=pod(), activity={"kind": "probe", "id": None}),
        call("c3-5", NOW + 2, status="NOT_FOUND"),
        call("c3-7", NOW + 3, 60.0, pod=pod(namespace="shop")),
        call("c3-9", NOW + 4, status=None, ended_by="client_cancel"),
        call("c3-11", NOW + 5, None),
    )
    assert ids(store, **where) == expected


def test_an_open_call_has_lasted_until_now(store):
    filled(store, call("c3-1", NOW - 60 * SECOND, None), call("c3-3", NOW - 5 * SECOND, None))
    assert ids(store, min_duration=30) == ["c3-1"]


def test_a_window_begins_with_since_and_ends_before_until(store):
    filled(store, *(call(f"c3-{n}", NOW + n) for n in range(5)))
    assert ids(store, window=Window(since=NOW + 1, until=NOW + 3)) == ["c3-2", "c3-1"]


@pytest.mark.parametrize(
    "kind, where, expected",
    [
        ("relist", {"status": "failed"}, ["r2"]),
        ("relist", {"activity": "pod_relist"}, ["r2"]),
        ("relist", {"min_duration": 1}, ["r2"]),
        ("pleg_event", {"status": "ContainerDied"}, ["e2"]),
        ("pleg_event", {"pod": "web-0"}, ["e2", "e1"]),
        ("sync_pass", {"status": "ok", "pod": "web-0"}, ["s1"]),
        ("sync_pass", {"activity": "terminate"}, ["s2"]),
        ("relist", {"method": "ListContainers"}, []),
    ],
)
def test_the_other_kinds_are_filtered_by_the_same_words(store, kind, where, expected):
    filled(
        store,
        relist("r1"),
        relist("r2", NOW + 1, 2.0, kind="pod", outcome="failed"),
        event("e1"),
        event("e2", NOW + 1, type="ContainerDied"),
        sync_pass("s1"),
        sync_pass("s2", NOW + 1, pod=pod("db-0"), kind="terminate"),
    )
    assert ids(store, kind, **where) == expected


def test_a_page_of_large_rows_ends_early_and_says_that_there_is_more(store):
    filled(store, *(relist(f"r{n}", NOW + n, calls=["c3-1"] * 50_000) for n in range(4)))
    page = store.page("relist")
    assert len(page.items) == 2
    assert sum(map(len, page.items)) <= PAGE_BYTES
    rest = store.page("relist", cursor=page.next)
    assert [json.loads(item)["id"] for item in page.items + rest.items] == ["r3", "r2", "r1", "r0"]
    assert rest.next is None


def test_two_pods_of_one_name_are_kept_apart_by_uid(store):
    filled(
        store,
        call("c3-1", NOW, pod=pod(uid="old")),
        sync_pass("s1", NOW + 1, pod=pod(uid="new")),
        event("e1", NOW + 2, pod=pod(uid="new")),
        call("c3-3", NOW + 3, pod=pod(uid="new", name="other")),
    )
    rows, following = store.timeline("default", "web-0")
    assert [(row.uid, row.kind) for row in rows] == [("new", "pleg_event"), ("new", "sync_pass"), ("old", "call")]
    assert following is None
    pods, _ = store.pods(name="web-0")
    assert [(found.uid, found.first, found.last) for found in pods] == [("new", NOW + 1, NOW + 2), ("old", NOW, NOW)]


def test_a_pod_learnt_late_is_in_the_timeline(store):
    filled(store, call("c3-1", NOW, None))
    filled(store, call("c3-1", NOW, pod=pod()))
    rows, _ = store.timeline("default", "web-0")
    assert [row.kind for row in rows] == ["call"]


def test_an_event_that_knows_only_the_uid_of_its_pod_is_kept(store):
    filled(
        store, event("e1", pod=None), event("e2", NOW + 1, pod={"namespace": "default", "name": "web-0", "uid": None})
    )
    assert ids(store, "pleg_event") == ["e2", "e1"]
    assert [found.uid for found in store.pods()[0]] == ["6f1d"]


@pytest.mark.parametrize(
    "bad",
    [
        call("c3-1", error="\ud800"),
        call("c3-1", error=object()),
        call("c3-1", method={}),
        call("c3-1", method=b"x"),
        call("c3-1", pod="web-0"),
        call("c3-1", -1),
        call("c3-1", 1 << 63),
        call("c3-1", error="x" * (1 << 20)),
    ],
)
def test_a_row_that_cannot_be_stored_is_counted_and_costs_no_other_row(store, bad):
    filled(store, call("c3-3"), bad, call("c3-5"))
    assert set(ids(store)) == {"c3-3", "c3-5"}
    assert store.status().rejected == 1
    assert store.status().state == "ok"


def test_an_open_row_whose_last_state_cannot_be_stored_does_not_stay_open(store):
    filled(store, call("c3-1", NOW, None))
    filled(store, call("c3-1", error="\ud800"))
    filled(store, call("c3-3"))
    assert json.loads(store.row("call", "c3-1") or "")["ended_by"] == "unknown"


def test_a_number_json_has_not_is_shown_as_unknown(store):
    filled(store, call("c3-1", deadline_seconds=float("nan")))
    assert json.loads(store.row("call", "c3-1") or "")["deadline_seconds"] is None
