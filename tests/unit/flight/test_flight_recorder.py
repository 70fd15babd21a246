"""The recorder's thread: never in the way of who feeds it, nothing secret on the disk, nothing lost silently."""

import contextlib
import dataclasses
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from tests.unit.flight.flown import records, saved, shown
from tests.unit.redact.canary import SECRETS, conversation, leaks
from tests.unit.replayed import replayed
from tracer.capture import CaptureFile
from tracer.errors import FlightError
from tracer.flight import FlightRecorder
from tracer.flight.ring import LEFT
from tracer.records import Data, Lost

ROOT = Path(__file__).parents[3]


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.flight.ring.AFTER_NS", 1_000_000_000)
    with contextlib.closing(FlightRecorder(tmp_path / "flight", lambda: 7)) as running:
        yield running


def live(found):
    """Records whose times are now's, a capture's last being the present."""
    shift = time.monotonic_ns() - max(record.time for record in found)
    return [dataclasses.replace(record, time=record.time + shift) for record in found]


def test_what_is_fed_is_in_the_recording(recorder, tmp_path):
    found = live(records("k120"))
    for at in range(0, len(found), 100):
        recorder.feed(found[at : at + 100])
    frozen = recorder.freeze("relist hangs")
    until(lambda: any(each.end for each in recorder.recordings()))
    (kept,) = recorder.recordings()
    assert (kept.id, kept.reasons, kept.begin) == (frozen.id, ("relist hangs",), found[0].time + 7)
    again = shown(saved(recorder, kept.id, tmp_path))
    assert len(again["relists"]) == len(replayed("k120")["relists"])
    status = recorder.status()
    assert status["recording"]
    assert (status["written"], status["unwritten"], status["dropped"]) == (len(found), 0, 0)
    assert status["errors"] == 0


def test_freezes_at_the_same_time_are_one_recording(recorder):
    first, second = recorder.freeze("one"), recorder.freeze("two")
    recorder.feed(live(records("k120"))[:50])
    assert first.id == second.id
    until(lambda: any(each.end for each in recorder.recordings()))
    assert [each.reasons for each in recorder.recordings()] == [("one", "two")]
    until(lambda: recorder.freeze("three").id != first.id)


def test_records_that_come_too_fast_are_dropped_whole_and_the_recording_says_so(recorder, tmp_path, monkeypatch):
    found = live(records("k120"))
    monkeypatch.setattr("tracer.flight.recorder.QUEUE_BYTES", 100_000)
    begun = time.monotonic()
    for _ in range(50):
        recorder.feed(found[:100])
    assert time.monotonic() - begun < 0.5, "who feeds never waits"
    dropped = recorder.status()["dropped"]
    assert dropped > 0
    until(lambda: recorder.status()["waiting_bytes"] == 0)
    recorder.feed(found[100:200])
    frozen = recorder.freeze("why")
    until(lambda: any(each.end for each in recorder.recordings()))
    with CaptureFile(saved(recorder, frozen.id, tmp_path)) as source:
        lost = [each.count for each in source.records() if isinstance(each, Lost)]
    assert sum(lost) == recorder.status()["dropped"] >= dropped


def test_no_secret_is_on_the_disk(recorder, tmp_path):
    recorder.feed(live(conversation().records))
    frozen = recorder.freeze("why")
    until(lambda: any(each.end for each in recorder.recordings()))
    path = saved(recorder, frozen.id, tmp_path)
    with CaptureFile(path) as source:
        found = list(source.records())
    assert any(isinstance(each, Data) and each.data for each in found)
    assert leaks(found) == set()
    raw = [zlib.decompressobj(31).decompress(each.read_bytes()) for each in (tmp_path / "flight").glob("*.gz")]
    assert raw
    assert not [secret for secret in SECRETS.values() for text in raw if secret.encode() in text]


def test_a_mistake_about_one_record_costs_that_record(recorder, monkeypatch, caplog):
    found = live(records("k120"))
    feed = recorder._redactor.feed
    monkeypatch.setattr(recorder._redactor, "feed", lambda record: 1 // 0 if record is found[10] else feed(record))
    recorder.feed(found[:20])
    recorder.freeze("why")
    until(lambda: recorder.status()["written"] == 19)
    assert recorder.status()["errors"] == 1
    assert "please report this" in caplog.text


def test_closed_it_takes_nothing_and_leaves_its_ring_for_the_next(tmp_path):
    recorder = FlightRecorder(tmp_path / "flight", lambda: 0)
    recorder.feed(live(records("k120")))
    recorder.close()
    recorder.feed(records("k120"))
    with contextlib.closing(FlightRecorder(tmp_path / "flight", lambda: 0)) as again:
        (left,) = again.recordings()
        assert left.reasons == (LEFT,)
        with CaptureFile(saved(again, left.id, tmp_path)) as source:
            assert len(list(source.records())) == len(records("k120"))


def test_a_second_recorder_is_refused_in_one_line(recorder, tmp_path):
    with pytest.raises(FlightError, match="another criscope records there; stop it or name another directory"):
        FlightRecorder(tmp_path / "flight", lambda: 0)


KILLED = """
import itertools, sys, time
from pathlib import Path
from tests.unit.flight.test_flight_recorder import live, records
from tracer.flight import FlightRecorder
recorder = FlightRecorder(Path(sys.argv[1]), lambda: 0)
found = live(records("k120"))
recorder.feed(found[:500])
time.sleep(2)
recorder.freeze("just before")
recorder.feed(found[500:])
while not any(each.reasons == ("just before",) for each in recorder.recordings()):
    time.sleep(0.01)
print("frozen", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("after", [0.0, 1.5])
def test_killed_in_the_middle_of_a_recording_it_is_there_at_the_next_start(tmp_path, after):
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path / "flight"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "frozen\n"
        time.sleep(after)
        process.kill()
    with contextlib.closing(FlightRecorder(tmp_path / "flight", lambda: 0)) as again:
        (frozen,) = [each for each in again.recordings() if each.reasons == ("just before",)]
        assert frozen.end is None
        with CaptureFile(saved(again, frozen.id, tmp_path)) as source:
            found = list(source.records())
        assert len(found) >= (500 if after == 0 else len(records("k120")))


def test_while_the_tracer_is_behind_nothing_is_written_and_afterwards_everything(recorder):
    recorder.give_way(needed=True)
    recorder.feed(live(records("k120"))[:200])
    time.sleep(2)
    assert recorder.status()["written"] == 0
    recorder.give_way(needed=False)
    until(lambda: recorder.status()["written"])
    assert recorder.status()["dropped"] == 0
