"""The programs of one object in the kernel: which the kernel took, which it refused and why, and what they count."""

import struct
from collections.abc import Callable, Sequence

from tracer.errors import KernelError
from tracer.kernel import layouts
from tracer.kernel.program_object import ProbeReport, ProgramObject, refusal

PROGRAMS = {
    "socket": ("socket_send", "socket_receive"),
    "process": ("process_fork", "process_exec", "process_exit", "process_oom"),
}
"""By object, in the order of `enum program` in bpf/*.bpf.c, which is that of their lines in the map of counters."""

_COUNTERS = layouts.COUNTERS.compiled()
COUNTER_NAMES = tuple(name for name, _ in layouts.COUNTERS.members)


class Probes:
    """Loads on construction; nothing runs before `attach`. `prepare` sets up each object before it is loaded."""

    def __init__(self, name: str, prepare: Callable[[ProgramObject], None]) -> None:
        """Raises KernelError when the kernel takes none of the programs, TracerError when the object does not fit."""
        self._name = name
        self._prepare = prepare
        self._refused: dict[str, KernelError] = {}
        try:
            self.object = self._load(PROGRAMS[name])
        except KernelError:
            # One refused program fails its whole object: find out which, and load the rest.
            self._refused = self._try_each()
            taken = [program for program in PROGRAMS[name] if program not in self._refused]
            if not taken:
                raise
            self.object = self._load(taken)
        self._counters = self.object.map("counters")

    def _load(self, programs: Sequence[str]) -> ProgramObject:
        loaded = ProgramObject.shipped(self._name)
        try:
            layouts.check_layouts(self._name, loaded.btf.structs)
            self._prepare(loaded)
            for program in PROGRAMS[self._name]:
                if program not in programs:
                    loaded.skip(program)
            loaded.load()
        except BaseException:
            loaded.close()
            raise
        return loaded

    def _try_each(self) -> dict[str, KernelError]:
        refused = {}
        for program in PROGRAMS[self._name]:
            try:
                self._load([program]).close()
            except KernelError as err:
                refused[program] = err
        return refused

    def attach(self) -> list[ProbeReport]:
        """Attaches what was loaded; never raises: the reports, one for each program, say what works."""
        reports = []
        for program in PROGRAMS[self._name]:
            try:
                if program in self._refused:
                    raise self._refused[program]
                self.object.attach(program)
            except KernelError as err:
                reports.append(ProbeReport(program, attached=False, reason=refusal(err.log) or str(err)))
            else:
                reports.append(ProbeReport(program, attached=True))
        return reports

    def counters(self) -> dict[str, dict[str, int]]:
        """By program: the members of `struct counters`, and how often the kernel left the program out."""
        counted = {}
        for line, program in enumerate(PROGRAMS[self._name]):
            each_cpu = [_COUNTERS.unpack(value) for value in self._counters.per_cpu(struct.pack("=I", line))]
            counted[program] = dict(zip(COUNTER_NAMES, map(sum, zip(*each_cpu, strict=True)), strict=True))
            missed = 0 if program in self._refused else self.object.missed_runs(program)
            counted[program]["missed_runs"] = missed
        return counted

    def close(self) -> None:
        self.object.close()
