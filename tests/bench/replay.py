"""How fast captures are decoded: calls a second through the wire stages and the whole pipeline, and times real time.

usage: replay.py [CAPTURE ...]    default: the shipped ones
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tracer.capture import CaptureFile
from tracer.paths import is_ttrpc
from tracer.pipeline import Pipeline
from tracer.records import Data
from tracer.rpc import Finished, Rpc
from tracer.streams import Streams

RUNS = 5
DATA = Path(__file__).resolve().parents[1] / "data"


def wire(records):
    streams, rpc, calls = Streams(), Rpc(), 0
    for record in records:
        for item in streams.feed(record):
            calls += sum(type(event) is Finished for event in rpc.feed(item, streams.known(item.connection)))
    return calls


def whole(path):
    source = CaptureFile(path)
    pipeline, rows = Pipeline(source.realtime_offset_ns), 0
    for record in source.records():
        rows += len(pipeline.feed(record))
    source.close()
    return pipeline, rows


def median(action):
    """(result, median CPU seconds) of `RUNS` runs after a warm-up."""
    result = action()
    took = []
    for _ in range(RUNS):
        begun = time.process_time()
        action()
        took.append(time.process_time() - begun)
    return result, statistics.median(took)


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(DATA.glob("*.jsonl.gz"))
    print(
        f"{'capture':12}{'calls':>7}{'wire calls/s':>14}{'pipeline calls/s':>18}{'file and all':>14}{'x real time':>13}"
    )
    for path in paths:
        source = CaptureFile(path)
        records = list(source.records())
        source.close()
        grpc = [record for record in records if isinstance(record, Data) and not is_ttrpc(record.path)]
        seconds = (max(record.time for record in records) - records[0].time) / 1e9
        calls, decode = median(lambda grpc=grpc: wire(grpc))

        def pipeline(records=records):
            stages = Pipeline(0)
            for record in records:
                stages.feed(record)

        _, stages = median(pipeline)
        _, all_ = median(lambda path=path: whole(path))
        name = path.name.partition(".")[0]
        print(f"{name:12}{calls:7}{calls / decode:14,.0f}{calls / stages:18,.0f}{all_:12.2f} s{seconds / all_:13.0f}")


main()
