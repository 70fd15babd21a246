"""Walking from page to page while rows come and change."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.store.sample import NOW, SECOND, call, pod
from tracer.store import CursorError, Filter, Store, Window
from tracer.store.cursor import Cursor


def walk(page_after, between=lambda: None, pages=1000):
    """The ids of page after page, `between` being done after each."""
    found, cursor = [], None
    for _ in range(pages):
        items, cursor = page_after(cursor)
        found += [json.loads(item)["id"] for item in items]
        if cursor is None:
            return found
        between()
    raise AssertionError("the walk has no end")


# What happens between two pages: calls that come, of any age, and calls that are handed out again.
CHANGES = st.lists(st.tuples(st.sampled_from(["new", "again"]), st.integers(0, 40), st.booleans()), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.lists(CHANGES, max_size=20),
    st.integers(1, 7),
    st.booleans(),
)
def test_a_walk_meets_each_row_once_and_none_that_was_there_is_left_out(starts, changes, limit, of_pod):
    with Store(None) as store:
        before = [call(f"b{n}", NOW + start, pod=pod()) for n, start in enumerate(starts)]
        store.feed(before)
        assert store.flush()
        todo = iter(changes)
        count = 0

        def between():
            nonlocal count
            for what, number, is_open in next(todo, []):
                count += 1
                if what == "new":
                    store.feed([call(f"n{count}", NOW + number, None if is_open else 0.1, pod=pod())])
                else:
                    old = before[number % len(before)]
                    store.feed([call(old.id, old.start, None if is_open else 0.2, pod=pod())])
            assert store.flush()

        def page_after(cursor):
            if of_pod:
                rows, following = store.timeline("default", "web-0", limit=limit, cursor=cursor)
                return [row.fields for row in rows], following
            page = store.page("call", limit=limit, cursor=cursor)
            return page.items, page.next

        found = walk(page_after, between)
        assert len(found) == len(set(found))
        assert {row.id for row in before} <= set(found)
        newest_first = sorted(enumerate(before), key=lambda pair: (pair[1].start, pair[0]), reverse=True)
        assert [id_ for id_ in found if id_[0] == "b"] == [row.id for _, row in newest_first]


def test_a_walk_keeps_the_window_it_began_with(store):
    store.feed([call(f"c3-{n}", NOW + n * SECOND) for n in range(10)])
    store.flush()
    first = store.page("call", Window(since=NOW), limit=4)
    rest = store.page("call", Window(since=NOW + 5 * SECOND), cursor=first.next)
    assert len(first.items) + len(rest.items) == 10


def test_a_walk_over_pods_meets_each_once_while_they_get_rows(store):
    store.feed([call(f"c3-{n}", NOW + n, pod=pod(f"web-{n}")) for n in range(10)])
    store.flush()
    names, cursor = [], None
    for turn in range(10):
        pods, cursor = store.pods(limit=3, cursor=cursor)
        names += [found.name for found in pods]
        store.feed([call(f"d3-{turn}", NOW + 100 + turn, pod=pod(f"web-{turn}"))])
        store.flush()
        if cursor is None:
            break
    assert names == [f"web-{n}" for n in reversed(range(10))]


@pytest.mark.parametrize("text", ["", "x", "AAAA", "é", "A" * 48, "=" * 48, "A" * 5000])
def test_a_text_that_is_no_cursor_is_refused(store, text):
    with pytest.raises(CursorError):
        store.page("call", cursor=text)
    with pytest.raises(CursorError):
        store.timeline("default", "web-0", cursor=text)
    with pytest.raises(CursorError):
        store.pods(cursor=text)


def test_a_forged_place_gives_rows_or_none_and_no_other_error(store):
    store.feed([call("c3-1"), call("c3-3")])
    store.flush()
    numbers = st.integers(-(1 << 63), (1 << 63) - 1)

    @given(numbers, numbers, numbers, numbers)
    def forged(since, until, start, seq):
        text = Cursor(since, until, start, seq).encode(("call", Filter()))
        if min(since, until, start, seq) < 0:
            with pytest.raises(CursorError):
                store.page("call", cursor=text)
        else:
            assert len(store.page("call", cursor=text).items) <= 2

    forged()


def test_a_cursor_of_other_filters_is_refused(store):
    store.feed([call("c3-1"), call("c3-3")])
    store.flush()
    cursor = store.page("call", limit=1).next
    with pytest.raises(CursorError, match="filters"):
        store.page("call", where=Filter(method="ListContainers"), cursor=cursor)
    with pytest.raises(CursorError, match="filters"):
        store.page("relist", cursor=cursor)
