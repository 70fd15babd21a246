"""Records through the recorder's parts, on the records' own clock, and what comes out of the recording."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from tests.unit.replayed import DATA
from tracer.capture import CaptureFile
from tracer.flight.directory import Directory
from tracer.flight.recordings import Recordings, identity
from tracer.flight.ring import Ring
from tracer.kernel.source import RECEIVE_BYTES
from tracer.records import Data, Record
from tracer.redact import Redactor
from tracer.replay import Result, replay

ID = identity(1_772_366_462_345_000_000)
TICK_NS = 500_000_000


def records(name: str) -> list[Record]:
    """A shipped capture as `run` gets it from the kernel: of what is received only the first bytes."""
    with contextlib.closing(CaptureFile(DATA / f"{name}.jsonl.gz")) as source:
        return [
            dataclasses.replace(record, data=record.data[:RECEIVE_BYTES])
            if isinstance(record, Data) and record.direction == "recv"
            else record
            for record in source.records()
        ]


def flown(found: list[Record], directory: Path, offset: int, *, freeze_at: float = 1.0) -> Path:
    """The recording, frozen after a share of the records, as a file."""
    claimed = Directory(directory / "flight")
    with contextlib.closing(claimed):
        ring, redactor, tick = Ring(claimed, lambda: offset), Redactor(orderly=True), 0
        for number, record in enumerate(found):
            if number == int(freeze_at * (len(found) - 1)):
                ring.freeze(ID, "test", record.time)
            for safe in redactor.feed(record):
                ring.write(safe)
            if record.time >= tick:
                tick = record.time + TICK_NS
                waiting = redactor.waiting_since
                ring.tick(record.time, record.time if waiting is None else waiting)
        for safe in redactor.flush():
            ring.write(safe)
        ring.close(found[-1].time)
        assert ring.trouble is None
        return saved(Recordings(claimed), ID, directory)


def saved(recordings: Recordings, id_: str, directory: Path) -> Path:
    download = recordings.open(id_)
    path = directory / download.filename
    path.write_bytes(b"".join(download.chunks()))
    assert path.stat().st_size == download.size
    return path


def shown(path: Path) -> dict[str, Any]:
    """The object `criscope replay --json` prints, of an undamaged file."""
    result = Result()
    pipeline, damage = replay(CaptureFile(path), result.feed, lambda _: None)
    assert damage is None
    return result.object("it", pipeline)
