"""Capture files: whatever a file holds, its records up to the damage are given, and the damage is said in one line."""

import gzip
import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.contract import text
from tests.fuzz.samples import CAPTURES
from tests.fuzz.taps import Taps
from tracer.capture import FORMAT, MAX_NUMBER, VERSION, CaptureFile, CaptureWriter
from tracer.errors import CaptureError
from tracer.records import Data, Exec, Exit, Lost, Opened, Record

HEADER = json.dumps({"format": FORMAT, "version": VERSION, "realtime_offset_ns": 42}).encode() + b"\n"
LINES, FILE, ZIPPED, CUT = range(4)


def run(data: bytes) -> None:
    taps = Taps(data)
    mode = taps.byte() & 3
    if mode == LINES:
        whole = HEADER + taps.rest()
    elif mode == FILE:
        whole = taps.rest()
    elif mode == ZIPPED:
        whole = gzip.compress(HEADER, 1, mtime=0)[: taps.byte() + 60] + taps.rest()
    else:
        keep = taps.number(2)
        whole = gzip.compress(HEADER + taps.rest(), 1, mtime=0)[:keep]
    found = _read(whole)
    if found:
        _again(found)


def _read(whole: bytes) -> list[Record]:
    file = os.memfd_create("capture")
    try:
        os.write(file, whole)
        path = f"/proc/self/fd/{file}"
        found: list[Record] = []
        try:
            with CaptureFile(path) as capture:
                assert -MAX_NUMBER <= capture.realtime_offset_ns < MAX_NUMBER
                for record in capture.records():
                    found.append(record)
                    assert 0 <= capture.progress <= 1
        except CaptureError as error:
            said = str(error)
            assert said.startswith(path)
            assert "\n" not in said
            text(said)
            assert len(said) < 400
    finally:
        os.close(file)
    for record in found:
        _check(record)
    return found


def _check(record: Record) -> None:
    assert -MAX_NUMBER <= record.time < MAX_NUMBER
    if isinstance(record, Data):
        assert len(record.data) <= record.length < MAX_NUMBER
        assert record.offset >= 0
        assert record.side in ("client", "server")
        assert record.direction in ("send", "recv")
    if isinstance(record, (Data, Opened)):
        text(record.path)
        text(record.connection)
    if isinstance(record, (Data, Opened, Exec, Exit)):
        text(record.comm)
    if isinstance(record, Exec):
        for word in [*record.argv, *record.env, *record.env.values()]:
            text(word)
    if isinstance(record, Lost):
        assert record.count >= 0


def _again(found: list[Record]) -> None:
    """What was read can be written and read again."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "c"
        with CaptureWriter(path, 42) as writer:
            for record in found:
                writer.write(record)
        with CaptureFile(path) as capture:
            for record, again in itertools.zip_longest(found, capture.records()):
                if isinstance(record, Data) and record.offset >= MAX_NUMBER:
                    return  # counted on from a length that no capture of ours has
                assert record == again


def seeds() -> Iterator[bytes]:
    source = Path(__file__).parents[2] / "data"
    for name in CAPTURES:
        with gzip.open(source / f"{name}.jsonl.gz") as file:
            lines = list(itertools.islice(file, 400))
        short = [line for line in lines[1:] if len(line) < 500]
        kinds = {json.loads(line)["ev"]: line for line in short}
        yield bytes([LINES]) + b"".join(kinds.values())
        yield bytes([LINES]) + b"".join(short[:5])
        yield bytes([FILE]) + lines[0] + short[0]
        yield bytes([ZIPPED, 200]) + gzip.compress(b"".join(short[:3]), mtime=0)
        yield bytes([CUT, 255, 255]) + b"".join(short[:3])
        yield bytes([CUT, 100, 0]) + b"".join(short[:3])
    yield bytes([LINES]) + b'{"t":5,"ev":"opened","side":"client","conn":"1","path":"/x","pid":1,"comm":"k"}\n'
    yield bytes([LINES]) + b'{"t":5,"ev":"closed","side":"client","conn":"1","pid":1,"error":104}\n'
    member = b'"side":"client","conn":"1","path":"/x","pid":1,"tid":1,"comm":"k","fd":3,"offset":0'
    yield (
        bytes([LINES])
        + b'{"ev":"piece","n":1,"data":"aGVsbG8="}\n'
        + b'{"t":5,"ev":"send",%b,"len":10,"data":["aGVs",1,"bG8="]}\n' % member
    )
    yield (
        bytes([LINES])
        + b'{"t":5,"ev":"oom","pid":1,"comm":"k","uid":0,"cgroup":"/x","anon":4096,"file":null,"shmem":0}\n'
    )
    yield bytes([LINES]) + b'{"t":5,"ev":"lost","program":"socket","count":3}\n{"t":6,"ev":"new"}\n'
