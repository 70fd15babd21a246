"""The flight recorder beside a real runtime: its recording survives a restart and shows the calls that were seen."""

import json
import threading
import time

import pytest

from tests.rig import driver
from tests.unit.flight.flown import saved, shown
from tracer.flight import FlightRecorder
from tracer.kernel.source import DRAIN_SECONDS, KernelSource
from tracer.pipeline import Pipeline
from tracer.replay import Result

SECONDS = 12.0


class Tracing:
    """A source drained by a thread as the agent does it, into the pipeline and the recorder."""

    def __init__(self, socket, recorder_path):
        self.source = KernelSource([str(socket)], processes=False)
        self.recorder = FlightRecorder(recorder_path, lambda: self.source.realtime_offset_ns)
        self.result = Result()
        self.pipeline = Pipeline(self.source.realtime_offset_ns)
        self.slowest = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        tick = 0
        while not self._stopped.is_set():
            found = self.source.drain()
            begun = time.monotonic()
            self.recorder.feed(found)
            self.slowest = max(self.slowest, time.monotonic() - begun)
            for record in found:
                self.result.feed(self.pipeline.feed(record))
            now = time.monotonic_ns()
            if now >= tick:
                tick = now + 250_000_000
                self.result.feed(self.pipeline.tick(now))
            if not found:
                self._stopped.wait(DRAIN_SECONDS)
        self.result.feed(self.pipeline.finish())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()
        self.recorder.close()
        self.source.close()


@pytest.fixture(scope="module")
def flight(node, tmp_path_factory):
    """(what the pipeline showed, what the recording shows, the recorder's last status, longest `feed` in seconds)."""
    directory = tmp_path_factory.mktemp("flight")
    with Tracing(node.socket, directory / "ring") as tracing:
        with driver.running(node.socket, directory / "oracle.jsonl", "demo"):
            time.sleep(SECONDS)
        frozen = tracing.recorder.freeze("a test")
        time.sleep(1)
        node.restart()
        end = time.monotonic() + 30
        while not any(each.end for each in tracing.recorder.recordings()):
            assert time.monotonic() < end, "the recording was never complete"
            time.sleep(0.2)
        (kept,) = tracing.recorder.recordings()
        assert kept.id == frozen.id
        path = saved(tracing.recorder, kept.id, directory)
        status = tracing.recorder.status()
    return tracing.result.object("live", tracing.pipeline), shown(path), status, tracing.slowest


def calls(found):
    """What was asked of whom, when and how it ended; of an exec probe's id only the container."""
    found = json.loads(json.dumps(found["calls"]))
    for call in found:
        if call["activity"]["kind"] == "probe" and call["activity"]["id"]:
            call["activity"]["id"] = call["activity"]["id"].partition("-")[0]
    return {call["id"]: call for call in found}


def test_the_recording_shows_every_call_that_was_seen_live(flight):
    live, recorded, _, _ = flight
    seen, again = calls(live), calls(recorded)
    assert len(seen) > 50
    assert set(again) == {id_ for id_, call in seen.items() if call["start"] <= max(c["start"] for c in again.values())}
    assert [id_ for id_, call in again.items() if call["ended_by"] and call != seen[id_]] == []


def test_the_recording_shows_every_relist_that_was_seen_live(flight):
    live, recorded, _, _ = flight
    last = max(relist["start"] for relist in recorded["relists"])
    whole = [
        {name: value for name, value in relist.items() if name != "events"}
        for relist in live["relists"]
        if relist["start"] < last
    ]
    assert len(whole) > 5
    assert [
        {name: value for name, value in relist.items() if name != "events"}
        for relist in recorded["relists"]
        if relist["start"] < last
    ] == whole


def test_nothing_was_lost_and_who_feeds_did_not_wait(flight):
    _, _, status, slowest = flight
    assert (status["dropped"], status["unwritten"], status["errors"]) == (0, 0, 0)
    assert status["trouble"] is None
    assert slowest < 0.05


def test_it_costs_little(flight):
    live, _, status, _ = flight
    assert status["cpu_seconds"] / len(live["calls"]) < 0.003, "a call takes a fraction of a millisecond"
