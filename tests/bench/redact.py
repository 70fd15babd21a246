"""What the flight recorder costs: redaction and writing, a record and a second, over captures fed at their own pace.

usage: redact.py [CAPTURE[+SECONDS] ...]    +SECONDS: only what comes so long after the capture's start
"""

import dataclasses
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tracer.capture import CaptureFile
from tracer.flight.directory import Directory
from tracer.flight.ring import Ring
from tracer.kernel.source import RECEIVE_BYTES
from tracer.pipeline import Pipeline
from tracer.records import Data
from tracer.redact import Redactor

RUNS = 5
TICK_NS = 500_000_000
DATA = Path(__file__).resolve().parents[1] / "data"


def records(path):
    """As `run` gets them from the kernel: of what is received only the first bytes."""
    source = CaptureFile(path)
    for record in source.records():
        if isinstance(record, Data) and record.direction == "recv":
            yield dataclasses.replace(record, data=record.data[:RECEIVE_BYTES])
        else:
            yield record
    source.close()


def redacted(before, found):
    """(safe records, seconds)."""
    redactor = Redactor(orderly=True)
    for record in before:
        redactor.feed(record)
    begun = time.process_time()
    safe = [each for record in found for each in redactor.feed(record)]
    return safe, time.process_time() - begun


def written(safe):
    """(bytes written, seconds)."""
    with tempfile.TemporaryDirectory() as directory:
        ring = Ring(Directory(Path(directory)), lambda: 0)
        size, begun, tick = 0, time.process_time(), 0
        for record in safe:
            ring.write(record)
            if record.time >= tick:
                tick = record.time + TICK_NS
                ring.tick(record.time, record.time)
        ring.close(safe[-1].time)
        took = time.process_time() - begun
        size = sum(file.stat().st_size for file in Path(directory).iterdir())
    return size, took


def decoded(before, found):
    """Seconds that the pipeline itself takes."""
    pipeline = Pipeline(0)
    for record in before:
        pipeline.feed(record)
    begun = time.process_time()
    for record in found:
        pipeline.feed(record)
    return time.process_time() - begun


def main() -> None:
    print(f"{'capture':12}{'records/s':>10}{'kB/s':>7}{'redact':>9}{'write':>8}{'both':>8}{'pipeline':>10}{'disk':>11}")
    for name in sys.argv[1:] or [str(path) for path in sorted(DATA.glob("*.jsonl.gz"))]:
        path, _, after = name.partition("+")
        every = list(records(path))
        start = every[0].time + int(float(after or 0) * 1e9)
        before, found = [r for r in every if r.time < start], [r for r in every if r.time >= start]
        seconds = (max(r.time for r in found) - found[0].time) / 1e9
        size = sum(len(r.data) for r in found if isinstance(r, Data))
        runs = [redacted(before, found) for _ in range(RUNS)]
        redact = min(took for _, took in runs)
        outs = [written(runs[0][0]) for _ in range(RUNS)]
        write = min(took for _, took in outs)
        pipeline = min(decoded(before, found) for _ in range(RUNS))
        share = [100 * each / seconds for each in (redact, write, redact + write, pipeline)]
        print(
            f"{Path(path).name.partition('.')[0]:12}{len(found) / seconds:10.0f}{size / seconds / 1e3:7.0f}"
            f"{share[0]:7.2f} %{share[1]:6.2f} %{share[2]:6.2f} %{share[3]:8.2f} %"
            f"{outs[0][0] / seconds / 1e3:6.1f} kB/s"
            f"   {1e6 * redact / len(found):.0f} + {1e6 * write / len(found):.0f} us a record"
        )


main()
