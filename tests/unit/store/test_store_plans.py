"""No query reads every row: each is answered from an index."""

import sqlite3

import pytest

from tests.unit.store.sample import NOW, call, event, pod, relist, sync_pass
from tracer.store import Filter, Store, Window
from tracer.store.query import read_page, read_pods, read_row, read_timeline
from tracer.store.retention import delete_step


def plans(path, action) -> list[str]:
    """What SQLite does for each statement of `action`."""
    statements: list[str] = []
    db = sqlite3.connect(path, isolation_level=None)
    db.set_trace_callback(statements.append)
    action(db)
    db.set_trace_callback(None)
    found = [
        line[3]
        for statement in statements
        if statement.startswith(("SELECT", "DELETE"))
        for line in db.execute("EXPLAIN QUERY PLAN " + statement)
    ]
    db.close()
    return found


def page(where, window):
    return lambda db: read_page(db, "call", window, where, limit=100, cursor=None, now=NOW)


@pytest.mark.parametrize(
    "action",
    [
        page(Filter(), Window()),
        page(Filter(method="Status", status="OK", activity="relist"), Window(since=1, until=NOW)),
        page(Filter(min_duration=3), Window(since=1)),
        page(Filter(namespace="default"), Window()),
        page(Filter(namespace="default", pod="web-0", method="Status", min_duration=1), Window()),
        lambda db: read_timeline(db, "default", "web-0", Window(), limit=100, cursor=None),
        lambda db: read_row(db, "call", "c3-1"),
        lambda db: read_pods(db, namespace=None, name=None, limit=100, cursor=None),
        lambda db: delete_step(db, NOW),
    ],
)
def test_every_query_uses_an_index(path, action):
    with Store(path, patient=True) as store:
        store.feed([call("c3-1", pod=pod()), relist("r1"), event("e1"), sync_pass("s1")])
        store.flush()
    found = plans(path, action)
    assert found
    assert "SCAN row" not in found
