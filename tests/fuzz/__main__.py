"""Runs harnesses one after the other, each for some time: `python -m tests.fuzz [--seconds 600] [NAME ...]`.

Starts from the seeds and the kept corpus. What it finds lies in .output/fuzz/NAME/found, and the exit code is 1.
`--keep` writes what together reaches everything back to tests/data/fuzz, within a budget of bytes a harness, and
whatever was found.
"""

import argparse
import importlib
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz import NAMES, corpus

WORK = Path(".output") / "fuzz"
LONGEST = {"streams": 8000, "rpc": 8000, "redactor": 8000, "pipeline": 16_000, "honesty": 241}
"""Bytes of an input; longer ones only cost time."""
USUAL_LONGEST = 4000
MOST_MEMORY = 2048  # MiB
SLOWEST = 20  # seconds an input may take

KEPT_BYTES = 30_000
"""Of one archive."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all when none is given")
    parser.add_argument("--seconds", type=int, default=600, help="of each harness (600)")
    parser.add_argument("--keep", action="store_true", help="write the smallest corpus that reaches everything back")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no harness {', '.join(sorted(unknown))}")
    print("| harness | seconds | executions | edges | features | findings |\n|---|---|---|---|---|---|", flush=True)
    failed = False
    for name in options.names or NAMES:
        failed |= not run(name, options.seconds)
        if options.keep:
            keep(name)
    return int(failed)


def run(name: str, seconds: int) -> bool:
    """Prints a line of the table; True when nothing was found."""
    folder = WORK / name
    inputs, found = folder / "corpus", folder / "found"
    for each in (inputs, found):
        each.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    for data in [*importlib.import_module(f"tests.fuzz.harness.{name}").seeds(), *corpus.load(name)]:
        (inputs / corpus.digest(data)).write_bytes(data)
    begun = time.monotonic()
    with (folder / "log").open("w+") as log:
        options = [
            f"-max_total_time={seconds}", f"-max_len={longest(name)}", f"-rss_limit_mb={MOST_MEMORY}",
            f"-timeout={SLOWEST}", f"-artifact_prefix={found}/", "-print_final_stats=1",
        ]  # fmt: skip
        ended = _target(name, *options, str(inputs), log=log)
        log.seek(0)
        said = log.read()
    spent = round(time.monotonic() - begun)
    executions = re.findall(r"number_of_executed_units: (\d+)", said)
    coverage = re.findall(r"cov: (\d+) ft: (\d+)", said) or [("?", "?")]
    new = len(set(found.iterdir()) - before)
    count = f"{int(executions[-1]):,}" if executions else "?"
    edges, features = coverage[-1]
    print(f"| {name} | {spent} | {count} | {edges} | {features} | {new or (ended and 'failed') or 0} |", flush=True)
    return not ended and not new


def keep(name: str) -> None:
    """Minimises the corpus, and keeps of it what fits, the shortest first; and all that was found."""
    folder = WORK / name
    small = folder / "small"
    small.mkdir(exist_ok=True)
    for each in small.iterdir():
        each.unlink()
    with (folder / "merge.log").open("w+") as log:
        _target(name, "-merge=1", f"-max_len={longest(name)}", str(small), str(folder / "corpus"), log=log)
    found = [*corpus.load(name, corpus.FOUND), *(each.read_bytes() for each in (folder / "found").iterdir())]
    kept: list[bytes] = []
    for data in sorted((each.read_bytes() for each in small.iterdir()), key=len):
        if corpus.save(name, [*kept, data], found) > KEPT_BYTES:
            corpus.save(name, kept, found)
            break
        kept.append(data)


def longest(name: str) -> int:
    return LONGEST.get(name, USUAL_LONGEST)


def _target(name: str, *options: str, log: object) -> int:
    command = [sys.executable, "-m", "tests.fuzz.target", name, *options]
    return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
