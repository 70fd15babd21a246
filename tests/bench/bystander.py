"""What tracing costs those who are not traced, and those who are: ns an operation with and without, in one run.

    python -m tests.bench.bystander [--rounds N]

Rounds with and without alternate, so that a machine that slows down slows both. The operations run in a small C program
(the interpreter would hide differences of some ns), compiled with the compiler that the kernel side needs anyway.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import threading
from pathlib import Path

from tracer.kernel.source import KernelSource

# Operation: (what it is, socket operations in one, budget as a ratio or as ns a socket operation).
OPERATIONS = {
    "getppid": ("getppid", 0, "ratio <= 1.02"),
    "write_null": ("write to /dev/null", 0, "ratio <= 1.02"),
    "unix_pair": ("send + receive, unix socketpair", 2, "<= 60 ns each"),
    "unix_bound": ("send + receive, bound unix socket", 2, "<= 60 ns each"),
    "tcp": ("send + receive, TCP on loopback", 2, ""),
    "traced_call": ("traced call: 300 B there, 8 kB back", 4, "<= 1 % of a CRI call (> 200 us)"),
}


def measure(program: subprocess.Popen[str]) -> dict[str, float]:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    return {name: float(ns) for name, ns in (each.split("=") for each in program.stdout.readline().split())}


def run(rounds: int) -> dict[str, tuple[float, float]]:
    """Operation -> (ns without, ns with): medians over the rounds."""
    without: list[dict[str, float]] = []
    traced: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        binary = f"{directory}/bystander"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["clang", "-O2", "-pthread", "-o", binary, str(source)], check=True)
        program = subprocess.Popen(
            [binary, f"{directory}/traced.sock", f"{directory}/other.sock"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        measure(program)
        for _ in range(rounds):
            without.append(measure(program))
            with KernelSource([f"{directory}/traced.sock"]) as kernel:
                reader = threading.Thread(target=lambda: sum(1 for _ in kernel.records()))
                reader.start()
                traced.append(measure(program))
                counters = kernel.counters()
            reader.join()
            assert counters["lost_records"] == 0, counters
            assert counters["records"] > 0, counters
        program.communicate()
    return {
        name: (statistics.median(each[name] for each in without), statistics.median(each[name] for each in traced))
        for name in OPERATIONS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    results = run(parser.parse_args().rounds)
    print(f"kernel {os.uname().release}, {os.cpu_count()} CPUs")
    print(f"{'operation':38} {'without':>9} {'with':>9} {'ratio':>6} {'each':>8}  budget")
    for name, (title, operations, budget) in OPERATIONS.items():
        without, traced = results[name]
        each = f"{(traced - without) / operations:+6.0f} ns" if operations else ""
        print(f"{title:38} {without:6.0f} ns {traced:6.0f} ns {traced / without:6.3f} {each:>8}  {budget}")


if __name__ == "__main__":
    main()
