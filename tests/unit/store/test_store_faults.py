"""What a sick disk does costs rows, never the tracer; and it is said."""

import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.store.sample import SECOND, call, noise
from tracer.errors import StoreError
from tracer.store import Store
from tracer.store.retention import STORE_BYTES_LEAST

RECENT = time.time_ns() - 60 * SECOND
ROOT = Path(__file__).parents[3]


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def checkpoint(path: Path) -> None:
    db = sqlite3.connect(path, timeout=10)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def newest(store: Store) -> str:
    return json.loads(store.page("call", limit=1).items[0])["id"]


def test_on_a_full_disk_the_oldest_rows_make_room_for_the_newest(small_disk, caplog):
    with Store(small_disk / "store.db") as store:
        count = 8_000
        for n in range(0, count, 500):
            store.feed(call(f"c3-{i}", RECENT + i, error=noise(4000)) for i in range(n, n + 500))
            assert store.flush()
        status = store.status()
        assert status.state == "full"
        assert status.failures > 0
        assert status.dropped == 0
        assert status.deleted > 0
        assert status.rows == count - status.deleted
        assert newest(store) == f"c3-{count - 1}"
        assert caplog.text.count("tracing goes on") == 1
    db = sqlite3.connect(small_disk / "store.db")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_on_a_disk_that_others_filled_the_store_goes_on_within_the_room_it_has(small_disk):
    with Store(small_disk / "store.db") as store:
        store.feed(call(f"a{i}", RECENT + i, error=noise(4000)) for i in range(2000))
        assert store.flush()
        with (small_disk / "other").open("wb") as other:
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            os.posix_fallocate(other.fileno(), 0, free)
            for n in range(0, 3_000, 500):
                store.feed(call(f"b{i}", RECENT + 3000 + i, error=noise(4000)) for i in range(n, n + 500))
                assert store.flush()
        assert newest(store) == "b2999"
        assert store.status().dropped == 0
        assert store.status().state == "full"
        (small_disk / "other").unlink()
        store.feed(call(f"c{i}", RECENT + 20_000 + i) for i in range(500))
        assert store.flush()
        assert newest(store) == "c499"


def test_a_store_cannot_begin_on_a_full_disk_and_says_why(small_disk):
    with (small_disk / "other").open("wb") as other:
        os.posix_fallocate(other.fileno(), 0, os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize)
    with pytest.raises(StoreError, match=r"full.*--store"):
        Store(small_disk / "store.db")


def test_a_limit_on_the_size_of_files_is_lived_with(tmp_path):
    """RLIMIT_FSIZE gives EFBIG, which SQLite reports as an I/O error."""
    code = """
import resource, sys, json
from pathlib import Path
from tests.unit.store.sample import call, noise
from tests.unit.store.test_store_faults import RECENT, newest
from tracer.store import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 20, 12 << 20))
with Store(Path(sys.argv[1])) as store:
    for n in range(0, 4500, 500):
        store.feed(call(f"c3-{i}", RECENT + i, error=noise(4000)) for i in range(n, n + 500))
        assert store.flush(), store.status()
    status = store.status()
    print(json.dumps([status.state, status.dropped, status.deleted > 0, newest(store)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "store.db"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout) == ["io_error", 0, True, "c3-4499"], done.stderr


def test_a_damaged_file_is_set_aside_and_a_new_one_begun(path, caplog):
    with Store(path) as store:
        store.feed(call(f"old-{i}", RECENT + i) for i in range(5000))
        assert store.flush()
        checkpoint(path)
        with path.open("r+b") as file:
            size = path.stat().st_size
            for offset in range(4096, size, 4096):
                file.seek(offset)
                file.write(b"\xa5" * 4000)
        until_replaced = time.monotonic() + 20
        n = 0
        while store.status().state != "damaged" and time.monotonic() < until_replaced:
            n += 500
            store.feed(call(f"new-{i}", RECENT + 5000 + i) for i in range(n - 500, n))
            assert store.flush()
        assert store.status().state == "damaged"
        store.feed([call("last", RECENT + 5000 + n)])
        assert store.flush()
        assert newest(store) == "last"
        assert path.with_name("store.db-damaged").exists()
        assert store.status().rows == len(store.page("call", limit=1000).items) or store.status().rows > 1000
    assert "tracing goes on" in caplog.text
    with Store(path) as store:
        assert newest(store) == "last"


def test_a_store_found_damaged_is_set_aside_when_it_is_opened(path):
    with Store(path) as store:
        store.feed(call(f"old-{i}", RECENT + i) for i in range(1000))
        store.flush()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 20_000)
    with Store(path) as store:
        store.feed([call("new", RECENT)])
        store.flush()
        assert newest(store) == "new"
    assert path.with_name("store.db-damaged").exists()


def test_a_file_cut_short_under_the_store_is_survived(path):
    with Store(path) as store:
        store.feed(call(f"old-{i}", RECENT + i) for i in range(2000))
        store.flush()
        checkpoint(path)
        os.truncate(path, 40_960)
        for n in range(20):
            store.feed(call(f"new-{n}-{i}", RECENT + 5000 + i) for i in range(500))
            assert store.flush()
        store.feed([call("last", RECENT + 99_999)])
        assert store.flush()
        assert newest(store) == "last"


def test_a_file_removed_under_the_store_is_made_anew(path):
    with Store(path) as store:
        store.feed([call("old", RECENT)])
        store.flush()
        for file in path.parent.glob("store.db*"):
            file.unlink()
        store.feed([call("new", RECENT + 1)])
        store.flush()

        def seen() -> bool:
            store.feed([call("last", RECENT + 2)])
            store.flush()
            try:
                return newest(store) == "last"
            except StoreError:
                return False

        until(seen)
        assert path.exists()


def test_a_directory_that_vanished_is_said_and_the_store_comes_back_with_it(tmp_path):
    directory = tmp_path / "data"
    with Store(directory / "store.db") as store:
        store.feed([call("old", RECENT)])
        store.flush()
        shutil.rmtree(directory)
        store.feed([call("lost", RECENT + 1)])
        until(lambda: store.status().state != "ok")
        directory.mkdir()
        store.feed([call("new", RECENT + 2)])
        assert store.flush()
        assert newest(store) == "new"


def test_reading_a_store_that_cannot_be_read_is_one_clear_error(path):
    with Store(path) as store:
        store.feed([call("c3-1", RECENT)])
        store.flush()
        store._readers.renew()
        path.rename(path.with_name("elsewhere"))
        with pytest.raises(StoreError, match="cannot be read"):
            store.page("call")
        path.with_name("elsewhere").rename(path)
        assert store.page("call").items


def test_a_fault_of_ours_costs_one_batch_and_is_logged(path, monkeypatch, caplog):
    with Store(path) as store:
        store.feed([call("c3-1", RECENT)])
        store.flush()
        monkeypatch.setattr("tracer.store.writer.columns", lambda _row: 1 / 0)
        with caplog.at_level(logging.ERROR):
            store.feed([call("c3-3", RECENT)])
            assert store.flush()
        assert "ZeroDivisionError" in caplog.text
        assert store.status().state == "failed"
        monkeypatch.undo()
        store.feed([call("c3-5", RECENT)])
        assert store.flush()
        assert store.row("call", "c3-5")


def test_the_size_limit_holds_when_the_reserve_is_given_back(path):
    with Store(path, max_bytes=STORE_BYTES_LEAST) as store:
        store._file.take_reserve()
        assert store._file.restore_reserve()
        assert store.status().bytes <= STORE_BYTES_LEAST


def test_a_store_that_cannot_write_still_ends_soon(path):
    store = Store(path)
    store.feed([call("c3-1", RECENT)])
    assert store.flush()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.feed(call(f"c3-{i}", RECENT) for i in range(3000))
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 5
    other.execute("ROLLBACK")
    other.close()


def test_a_damaged_row_is_one_clear_error_and_does_not_stop_the_next_run(path):
    with Store(path) as store:
        store.feed([call("c3-1", RECENT, None), call("c3-3", RECENT)])
        store.flush()
        db = sqlite3.connect(path)
        db.execute("UPDATE row SET packed = x'ff' WHERE id = 'c3-1'")
        db.commit()
        db.close()
        with pytest.raises(StoreError, match="cannot be read now: a row is damaged"):
            store.page("call")
    with Store(path) as store:
        store.feed([call("c3-5", RECENT)])
        assert store.flush()
        assert len(store.page("call").items) == 2
