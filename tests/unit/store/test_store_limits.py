"""The queue, the age and the size are bounded, whatever happens."""

import json
import sqlite3
import threading
import time

from tests.unit.store.sample import SECOND, call, noise, pod
from tracer.store import Store
from tracer.store.queue import QUEUE_ROWS
from tracer.store.retention import AGE_SECONDS, STORE_BYTES_LEAST

RECENT = time.time_ns() - 60 * SECOND


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


def test_a_disk_that_stalls_never_makes_the_tracer_wait_and_the_oldest_rows_go(path):
    with Store(path) as store:
        store.feed([call("first", RECENT)])
        store.flush()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        count = 3 * QUEUE_ROWS
        rows = [call(f"c3-{n}", RECENT + n) for n in range(count)]
        began = time.monotonic()
        for row in rows:
            store.feed([row])
        assert time.monotonic() - began < 2
        other.execute("ROLLBACK")
        other.close()
        assert store.flush()
        status = store.status()
        assert status.dropped >= count - QUEUE_ROWS - 1000
        assert status.rows == 1 + count - status.dropped
        newest = [json.loads(item)["id"] for item in store.page("call", limit=1000).items]
        assert newest == [f"c3-{n}" for n in reversed(range(count - 1000, count))]


def test_a_row_whose_end_was_dropped_does_not_stay_open(path):
    with Store(path) as store:
        store.feed([call("hung", RECENT, None)])
        store.flush()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.feed([call("hung", RECENT, 1.0)])
        store.feed(call(f"c3-{n}", RECENT + n) for n in range(2 * QUEUE_ROWS))
        other.execute("ROLLBACK")
        other.close()
        assert store.flush()
        fields = json.loads(store.row("call", "hung") or "")
        # Either it was taken before the stall, and its end is known, or it was dropped, and its end is not.
        assert fields["ended_by"] in {"server", "unknown"}
        assert (fields["duration_seconds"] is None) == (fields["ended_by"] == "unknown")


def test_a_store_held_by_another_process_says_so_and_catches_up(path):
    with Store(path) as store:
        store.feed([call("c3-1", RECENT)])
        store.flush()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.feed([call("c3-3", RECENT)])
        until(lambda: store.status().state == "locked")
        assert store.row("call", "c3-1"), "it can be read meanwhile"
        other.execute("ROLLBACK")
        other.close()
        assert store.flush()
        assert store.row("call", "c3-3")


def test_the_newest_state_of_a_row_is_the_one_that_is_written(store):
    for n in range(50):
        store.feed([call("c3-1", RECENT, None, response_bytes=n)])
    store.feed([call("c3-1", RECENT, 1.0)])
    store.flush()
    assert json.loads(store.row("call", "c3-1") or "")["ended_by"] == "server"
    assert store.status().written < 50


def test_a_private_store_makes_its_caller_wait_and_drops_nothing(store):
    count = 5 * QUEUE_ROWS
    store.feed(call(f"c3-{n}", RECENT + n) for n in range(count))
    assert store.flush()
    assert (store.status().rows, store.status().dropped) == (count, 0)


def test_a_patient_store_at_a_path_keeps_rows_of_any_age(path):
    with Store(path, patient=True) as store:
        store.feed([call("c3-1", SECOND)])
        store.flush()
        time.sleep(0.6)
        store.feed([call("c3-3", SECOND)])
        store.flush()
        assert store.status().rows == 2


def test_what_is_open_and_says_nothing_new_is_not_written_again(path):
    """It is handed out four times a second: a thousand hung calls must not become two thousand writes a second."""
    hung = [call(f"c3-{n}", RECENT, None) for n in range(1000)]
    with Store(path) as store:
        store.feed(hung)
        store.flush()
        before = path.with_name("store.db-wal").stat().st_mtime_ns
        for _ in range(3):
            store.feed(hung)
            store.flush()
        assert path.with_name("store.db-wal").stat().st_mtime_ns == before
        store.feed([call("c3-0", RECENT, None, response_bytes=7)])
        store.flush()
        assert path.with_name("store.db-wal").stat().st_mtime_ns > before
        store.feed([call("c3-0", RECENT, 1.0)])
        store.flush()
        assert json.loads(store.row("call", "c3-0") or "")["duration_seconds"] == 1.0


def test_rows_older_than_the_age_limit_go_and_open_ones_stay(path):
    old = time.time_ns() - (AGE_SECONDS + 60) * SECOND
    with Store(path) as store:
        store.feed(call(f"old-{n}", old + n, pod=pod("gone")) for n in range(3000))
        store.feed([call("hung", old, None), call("young", old + 120 * SECOND, pod=pod())])
        store.flush()
        until(lambda: store.status().rows == 2)
        assert {json.loads(item)["id"] for item in store.page("call").items} == {"hung", "young"}
        assert [found.name for found in store.pods()[0]] == ["web-0"]
        assert store.status().deleted == 3000


def test_a_private_store_keeps_a_capture_of_any_age(store):
    store.feed([call("c3-1", SECOND)])
    store.flush()
    time.sleep(1.2)
    assert store.row("call", "c3-1")


def test_the_files_never_outgrow_their_limit_and_the_newest_rows_survive(path):
    """Writing half again as much as fits, while others read."""
    with Store(path, max_bytes=STORE_BYTES_LEAST) as store:
        stop = threading.Event()
        largest = 0

        def read():
            while not stop.is_set():
                store.page("call", limit=200)
                time.sleep(0.01)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        count = 6_000
        try:
            for n in range(0, count, 500):
                store.feed(call(f"c3-{i}", RECENT + i, error=noise(4000), pod=pod()) for i in range(n, n + 500))
                assert store.flush()
                largest = max(largest, sum(file.stat().st_size for file in path.parent.iterdir()))
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert largest <= STORE_BYTES_LEAST
        status = store.status()
        assert status.deleted > count / 5
        assert status.rows == count - status.deleted
        assert (status.dropped, status.state) == (0, "ok")
        assert json.loads(store.page("call", limit=1).items[0])["id"] == f"c3-{count - 1}"


def test_the_room_of_deleted_rows_goes_back_to_the_file_system(path):
    with Store(path) as store:
        soon_old = time.time_ns() - (AGE_SECONDS - 3) * SECOND
        store.feed([call(f"c3-{n}", soon_old + n, error=noise(20_000)) for n in range(500)])
        store.flush()
        assert store.status().rows == 500
        until(lambda: path.stat().st_size > 4_000_000, 2)
        until(lambda: store.status().rows == 0)
        until(lambda: path.stat().st_size < 1_000_000, 30)


def test_when_all_is_open_the_oldest_open_rows_go(path):
    with Store(path, max_bytes=STORE_BYTES_LEAST) as store:
        for n in range(0, 6_000, 500):
            store.feed(call(f"c3-{i}", RECENT + i, None, error=noise(4000)) for i in range(n, n + 500))
            assert store.flush()
        assert store.status().deleted > 0
        assert store.status().state == "ok"
        assert store.row("call", "c3-5999")
