"""Which files the store takes, and how it leaves them."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.store.sample import call, relist, sync_pass
from tracer.errors import StoreError
from tracer.store import STORE_BYTES, Store, schema

# So that the age limit lets it live.
RECENT = time.time_ns() - 60 * 1_000_000_000


def refused(path: Path, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        Store(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text


def test_only_the_owner_can_read_any_of_the_files(path):
    with Store(path) as store:
        store.feed([call("c3-1", RECENT)])
        store.flush()
        files = list(path.parent.iterdir())
        assert {file.name for file in files} == {"store.db", "store.db-wal", "store.db-shm", "store.db-reserve"}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_store_that_others_could_read_is_closed_to_them(path):
    Store(path).close()
    path.chmod(0o644)
    Store(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_missing_directory_is_made_for_its_owner_only(tmp_path):
    Store(tmp_path / "made" / "store.db").close()
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700


def test_a_private_store_leaves_nothing_behind():
    store = Store(None)
    store.feed([call("c3-1")])
    store.flush()
    directory = store.path.parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    store.close()
    assert not directory.exists()


def test_another_programs_database_is_refused_and_left_as_it_was(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.commit()
    db.close()
    path.chmod(0o644)
    before = path.read_bytes()
    refused(path, "another program")
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_database_that_names_another_program_is_refused(path):
    db = sqlite3.connect(path)
    db.execute("PRAGMA application_id=77")
    db.close()
    refused(path, "another program")


def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(path):
    path.write_bytes(b"precious " * 1000)
    refused(path, "not a database")
    assert path.read_bytes() == b"precious " * 1000
    assert list(path.parent.iterdir()) == [path]


def test_a_newer_versions_store_is_refused_and_left_as_it_was(path):
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute("INSERT INTO migration VALUES ('from_the_future')")
    db.commit()
    db.close()
    refused(path, "newer criscope")
    db = sqlite3.connect(path)
    assert ("from_the_future",) in db.execute("SELECT name FROM migration").fetchall()
    db.close()


def test_a_directory_is_refused(tmp_path):
    refused(tmp_path, "directory")


def test_a_symbolic_link_is_refused(path):
    (path.parent / "elsewhere").touch()
    path.symlink_to(path.parent / "elsewhere")
    refused(path, "symbolic link")


def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path):
    """Root may write anywhere, so the store is opened by nobody."""
    tmp_path.chmod(0o555)
    nobody = 65534 if os.getuid() == 0 else None
    for parent in list(tmp_path.parents)[:-1]:
        if (
            nobody
            and parent.stat().st_uid == 0
            and not parent.stat().st_mode & stat.S_IXOTH
            and parent.is_relative_to("/tmp")
        ):
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    code = "import sys; from pathlib import Path; from tracer.store import Store; Store(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store.db")],
        user=nobody,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.stderr.splitlines()[-1].endswith("store.db: Permission denied; name a writable file with --store")


def test_one_file_has_one_writer(path):
    with Store(path):
        refused(path, "another criscope")
    Store(path).close()


def test_a_size_too_small_to_work_with_is_refused(path):
    with pytest.raises(StoreError, match="too small"):
        Store(path, max_bytes=1 << 20)
    assert STORE_BYTES == 512 << 20


def test_what_a_killed_run_left_open_is_closed_as_unknown(path):
    with Store(path) as store:
        store.feed(
            [
                call("c3-1", RECENT, None),
                relist("rc3-1", RECENT, None),
                sync_pass("sc3-1", RECENT, None),
                call("c3-3", RECENT + 5),
            ]
        )
        store.flush()
    with Store(path) as store:
        store.feed([call("d3-1", RECENT + 10)])
        store.flush()
        was_open = [
            json.loads(store.row(kind, id_) or "")
            for kind, id_ in (("call", "c3-1"), ("relist", "rc3-1"), ("sync_pass", "sc3-1"))
        ]
        assert [row.get("ended_by", row.get("outcome")) for row in was_open] == ["unknown"] * 3
        assert [row["duration_seconds"] for row in was_open] == [None] * 3
        assert json.loads(store.row("call", "c3-3") or "")["ended_by"] == "server"
        from tracer.store import Filter

        assert len(store.page("call", where=Filter(status="unknown")).items) == 1
        assert not store.page("call", where=Filter(min_duration=1), now=RECENT + 10**12).items


def test_two_runs_may_use_the_same_id(path):
    with Store(path) as store:
        store.feed([relist("r1", RECENT, outcome="failed")])
        store.flush()
    with Store(path) as store:
        store.feed([relist("r1", RECENT + 1)])
        store.flush()
        outcomes = [json.loads(item)["outcome"] for item in store.page("relist").items]
        assert outcomes == ["ok", "failed"]
        assert json.loads(store.row("relist", "r1") or "")["outcome"] == "ok"
        assert store.status().rows == 2


def test_an_older_store_is_brought_up_to_date_with_its_rows(path, monkeypatch):
    with Store(path) as store:
        store.feed([call("c3-1", RECENT)])
        store.flush()
    monkeypatch.setattr(schema, "_MIGRATIONS", dict(schema._MIGRATIONS))

    @schema.migration
    def add_a_column(db):
        db.execute("ALTER TABLE pod ADD COLUMN node TEXT")

    with Store(path) as store:
        assert store.row("call", "c3-1")
    db = sqlite3.connect(path)
    assert db.execute("SELECT name FROM migration").fetchall() == [("rows_and_pods",), ("add_a_column",)]
    db.execute("SELECT node FROM pod")
    db.close()


def test_a_migration_that_fails_leaves_the_store_as_it_was(path, monkeypatch):
    Store(path).close()
    monkeypatch.setattr(schema, "_MIGRATIONS", dict(schema._MIGRATIONS))

    @schema.migration
    def half(db):
        db.execute("CREATE TABLE half (x)")
        db.execute("nonsense")

    refused(path, "syntax")
    monkeypatch.undo()
    Store(path).close()
    db = sqlite3.connect(path)
    assert not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchall()
    db.close()


def test_every_table_is_strict(path):
    Store(path).close()
    db = sqlite3.connect(path)
    tables = db.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite%'")
    assert {strict for _, strict in tables} == {1}
    db.close()
