"""`kill -9` at any moment: the store opens, no row is half written, and what was flushed is there."""

import json
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.store.sample import call
from tracer.store import Store
from tracer.store.packing import unpack

ROOT = Path(__file__).parents[3]

# Feeds calls, each open first, and prints how many are surely written; deletes a lot, too, by its size limit.
WRITER = """
import itertools, sys, time
from pathlib import Path
from tests.unit.store.sample import call, noise, pod
from tracer.store import Store
from tracer.store.retention import STORE_BYTES_LEAST
store = Store(Path(sys.argv[1]), max_bytes=STORE_BYTES_LEAST)
start = time.time_ns()
run = sys.argv[2]
for n in itertools.count(0, 100):
    rows = [(f"{run}-{i}", start + i) for i in range(n, n + 100)]
    store.feed(call(id_, at, None, pod=pod(f"web-{n % 700}"), error=noise(2000)) for id_, at in rows)
    store.flush()
    store.feed(call(id_, at, 0.5, pod=pod(f"web-{n % 700}"), error=noise(2000)) for id_, at in rows)
    store.flush()
    print(n + 99, flush=True)
"""


def test_a_killed_store_opens_with_every_row_whole(path):
    chance = random.Random(7)
    for run in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(run)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        written = int(writer.stdout.readline())
        time.sleep(chance.uniform(0, 0.5))
        writer.kill()
        written = max([written, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
        writer.wait()
        writer.stdout.close()

        with Store(path) as store:
            store.feed([call(f"mark-{run}", time.time_ns())])
            assert store.flush()
            assert store.status().state == "ok"
            last = json.loads(store.row("call", f"{run}-{written}") or "null")
            assert last["ended_by"] == "server", "what was flushed is there"

        db = sqlite3.connect(path)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute('SELECT count(*) FROM row WHERE "end" IS NULL').fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM row WHERE pod NOT IN (SELECT key FROM pod)").fetchone() == (0,)
        for id_, packed in db.execute("SELECT id, packed FROM row"):
            row = json.loads(unpack(packed))
            assert row["id"] == id_
            assert row["ended_by"] in {"server", "unknown"}
        db.close()
