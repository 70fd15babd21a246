"""A healthy node raises no alarm, however long it runs: the steady part of a real capture, again and again.

`python -m tests.unit.findings.test_healthy_hour CAPTURE SECONDS FROM` does the same for any capture and time.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.unit.replayed import DATA
from tracer.capture import CaptureFile
from tracer.pipeline import Pipeline
from tracer.records import Closed, Data, Exec, Exit, Lost, OomKill, Opened, Record
from tracer.replay import TICK_NS

NS = 1_000_000_000

CI_SECONDS = 600
"""A whole hour takes ninety times the replay of one round; ten minutes show what grows."""


def rounds(path: Path, seconds: int, begin: int) -> Iterator[Record]:
    """The capture's records from `begin` seconds on, over and over, each round right after the one before.

    Each round's connections are its own, and end with it: their bytes begin anew in the middle.
    """
    with contextlib.closing(CaptureFile(path)) as capture:
        records = [each for each in capture.records() if not isinstance(each, Lost)]
    first = records[0].time + begin * NS
    records = [each for each in records if each.time >= first]
    # From the start of one relist to the start of one, so that the PLEG's rhythm goes on over the seam.
    length = (records[-1].time - first) // NS * NS
    records = [each for each in records if each.time < first + length]
    for number in range(seconds * NS // length + 1):
        shift, ends = number * length, {}
        for each in records:
            if isinstance(each, (Exec, Exit, OomKill)):
                yield replace(each, time=each.time + shift)
                continue
            name = f"{each.connection}-{number}"
            if isinstance(each, (Data, Opened)) and each.side == "client":
                ends[name] = each.pid
            yield replace(each, time=each.time + shift, connection=name)
        for name, pid in ends.items():
            yield Closed(first + shift + length - 1, name, "server", pid, 0)


def alarms(path: Path, seconds: int, begin: int) -> tuple[list[dict], int]:
    """(findings at warning or above, seconds that passed)."""
    pipeline, found = Pipeline(0), {}
    tick = start = 0
    for record in rounds(path, seconds, begin):
        while tick and record.time - tick >= TICK_NS:
            tick += TICK_NS
            found |= {row.id: row.fields for row in pipeline.tick(tick) if row.kind == "finding"}
        tick = tick or record.time
        start = start or record.time
        pipeline.feed(record)
    return [each for each in found.values() if each["severity"] != "info"], (tick - start) // NS


def test_ten_healthy_minutes_raise_no_alarm():
    found, passed = alarms(DATA / "midstream.jsonl.gz", CI_SECONDS, 1)
    assert passed >= CI_SECONDS
    assert [(each["kind"], each["summary"]) for each in found] == []


if __name__ == "__main__":
    told, lasted = alarms(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    for each in told:
        print(each["severity"], each["kind"], each["summary"])
    print(f"{lasted} s, {len(told)} findings of warning or above")
