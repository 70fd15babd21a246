"""What tracing costs those who are not traced and those who are: CPU time with and without, in one run.

    python -m tests.bench.bystander [--rounds N]

Rounds without a program, with programs that do nothing, and with criscope alternate, so that a machine that slows down
slows all three. The operations run in a small C program, since the interpreter would hide differences of some ns;
its compiler is the one that the kernel side needs anyway.
"""

import argparse
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracer.kernel.program_object import ProgramObject
from tracer.kernel.source import KernelSource

HERE = Path(__file__).parent
# Name in bystander.c: (what it is, socket operations in one, budget).
OPERATIONS = {
    "getppid": ("getppid", 0, "ratio <= 1.02"),
    "write_null": ("write to /dev/null", 0, "ratio <= 1.02"),
    "unix_pair": ("send + receive, unix socketpair", 2, "<= 60 ns each"),
    "unix_bound": ("send + receive, bound unix socket", 2, "<= 60 ns each"),
    "tcp": ("send + receive, TCP on loopback", 2, ""),
    "traced_call": ("traced call: 300 B there, 8 kB back", 4, ""),
}

Figures = dict[str, float]


class Bystander:
    """The C program: `measure` gives ns for each operation."""

    def __init__(self, directory: Path) -> None:
        binary = directory / "bystander"
        subprocess.run(["clang", "-O2", "-pthread", "-o", binary, HERE / "bystander.c"], check=True)
        self.traced_path = f"{directory}/traced.sock"
        arguments = [binary, self.traced_path, f"{directory}/other.sock"]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self) -> Figures:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return {name: float(ns) for name, ns in (each.split("=") for each in self._process.stdout.readline().split())}

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def empty_programs(directory: Path) -> Iterator[None]:
    image = directory / "empty.bpf.o"
    include = f"/usr/include/{os.uname().machine}-linux-gnu"
    command = ["clang", "-O2", "-g", "-target", "bpf", "-idirafter", include, "-c", HERE / "empty.bpf.c", "-o", image]
    subprocess.run(command, check=True)
    with ProgramObject("empty", image.read_bytes()) as programs:
        programs.load()
        for program in programs.programs():
            programs.attach(program)
        yield


@contextmanager
def criscope(path: str) -> Iterator[None]:
    with KernelSource([path]) as source:
        reader = threading.Thread(target=lambda: sum(1 for _ in source.records()))
        reader.start()
        try:
            yield
            counters = source.counters()
        finally:
            source.close()
            reader.join()
    assert counters["lost_records"] == 0 < counters["records"], counters


def run(rounds: int) -> dict[str, tuple[float, float, float]]:
    """Operation -> ns without, with empty programs, with criscope: the least of the rounds."""
    measured: list[tuple[Figures, Figures, Figures]] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        bystander = Bystander(directory)
        bystander.measure()
        for _ in range(rounds):
            without = bystander.measure()
            with empty_programs(directory):
                empty = bystander.measure()
            with criscope(bystander.traced_path):
                traced = bystander.measure()
            measured.append((without, empty, traced))
        bystander.close()
    best = [{name: min(each[name] for each in column) for name in OPERATIONS} for column in zip(*measured, strict=True)]
    return {name: (best[0][name], best[1][name], best[2][name]) for name in OPERATIONS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    results = run(parser.parse_args().rounds)
    print(f"kernel {os.uname().release}, {os.cpu_count()} CPUs; ns of CPU time an operation")
    print(f"{'operation':36} {'without':>8} {'empty':>8} {'criscope':>8} {'ratio':>6} {'more, each':>10}  budget")
    for name, (title, operations, budget) in OPERATIONS.items():
        without, empty, traced = results[name]
        each = f"{(traced - without) / operations:+.0f}" if operations else ""
        row = f"{title:36} {without:8.0f} {empty:8.0f} {traced:8.0f} {traced / without:6.3f} {each:>10}  {budget}"
        print(row.rstrip())


if __name__ == "__main__":
    main()
