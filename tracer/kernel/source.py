"""The kernel as a source of records: what the wanted sockets carry, and what the runtime's processes do."""

import errno
import logging
import select
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from tracer.errors import KernelError, TracerError
from tracer.kernel import layouts, lineage
from tracer.kernel.decoder import Decoder
from tracer.kernel.places import Places
from tracer.kernel.probes import PROGRAMS, Probes
from tracer.kernel.program_object import ProbeReport, ProgramObject, refusal
from tracer.kernel.ring import Ring
from tracer.kernel.sockets import wanted_entries
from tracer.records import Lost, Record

log = logging.getLogger(__name__)

RING_BYTES = 16 << 20  # the largest answer the kubelet accepts
PAGE_BYTES = 4096
RECEIVE_BYTES = 512  # enough to find a receiver's place in the sender's bytes when both are older than the tracer
WHOLE = 0xFFFFFFFF  # as `receive_bytes`: keep all
DRAIN_SECONDS = 0.1  # how long a record can lie unnoticed: the programs wake nobody for a few bytes
DRAIN_RECORDS = 4096
LOSS_CHECK_NS = 1_000_000_000  # how late a loss is told at most; its place is known at once from the offsets
LOOK_NS = 2_000_000_000  # how long the directory of a wanted socket can be new to us; half a millisecond's work
KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")

_GENERATION = struct.Struct("=I")
_MEMBER = layouts.MEMBER.compiled()
_ADVICE = {
    errno.EPERM: "run as root, or with CAP_BPF and CAP_PERFMON",
    errno.ESRCH: "this kernel has not got the tracepoints (Linux 6.3 or newer has)",
}


class KernelSource:
    """Traces from construction to `close`; satisfies `tracer.records.Source`.

    `sockets`: bound paths, see `tracer.kernel.sockets`. `ring_bytes`: a power of two, at least a page.
    `receive_bytes`: payload kept of each receive. `processes`: also follow the runtime's descendants.
    `probes` tells which programs are attached. Raises KernelError when no socket can be traced, TracerError when
    something needed is missing; processes that cannot be followed are only reported.

    Records are taken out by one thread, by `records` or by `drain`; everything else may be called by any.
    """

    def __init__(
        self,
        sockets: Sequence[str],
        *,
        ring_bytes: int = RING_BYTES,
        receive_bytes: int = RECEIVE_BYTES,
        processes: bool = True,
    ) -> None:
        if ring_bytes < PAGE_BYTES or ring_bytes & (ring_bytes - 1):
            raise TracerError(f"ring buffer of {ring_bytes} bytes: give a power of two, at least {PAGE_BYTES}")
        if not KERNEL_BTF.exists():
            raise TracerError(f"{KERNEL_BTF} is missing: a kernel with BTF is needed (CONFIG_DEBUG_INFO_BTF)")
        wanted = wanted_entries(sockets, follow=processes)
        self._places = Places(sockets, follow=processes)
        self._placed: dict[bytes, bytes] = {}
        self._generation = 0
        self._next_look = 0.0
        self.hidden: dict[str, str] = {}
        """Directories of wanted sockets that cannot be looked at, and why: there the text of a path alone decides."""
        self.probes: list[ProbeReport] = []
        self.realtime_offset_ns = 0
        self.refresh_realtime_offset()
        self._decoder = Decoder(f"{uuid4().hex[:6]}-", self._places)
        self._records = 0
        self._told: dict[str, int] = {}
        self._next_loss_check = 0
        self._closed = False
        self._lock = threading.Lock()

        def prepare(loading: ProgramObject) -> None:
            loading.resize("ring", ring_bytes)
            loading.set_const("ring_bytes", ring_bytes)
            loading.set_const("receive_payload", receive_bytes)

        with ExitStack() as opened:
            try:
                self._sockets = Probes("socket", prepare)
            except KernelError as err:
                raise _explained(err) from err
            opened.callback(self._sockets.close)
            self._loaded = [self._sockets]
            self._ring = Ring(self._sockets.object.map("ring"))
            opened.callback(self._ring.close)
            if processes:
                self._follow_processes(opened, ring_bytes)
            paths = self._sockets.object.map("wanted_paths")
            for key, value in wanted.items():
                paths.update(key, value)
            self._look()
            reports = self._sockets.attach()
            self.probes = reports + self.probes
            if not any(each.attached for each in reports):
                raise TracerError(f"no socket can be traced: {reports[0].reason}")
            self._opened = opened.pop_all()

    def _follow_processes(self, opened: ExitStack, ring_bytes: int) -> None:
        """Attaches before it looks for processes that run already, so that none is forked in between unseen."""

        def prepare(loading: ProgramObject) -> None:
            loading.share(self._sockets.object.map("ring"))
            loading.share(self._sockets.object.map("members"))
            loading.set_const("ring_bytes", ring_bytes)

        try:
            loaded = Probes("process", prepare)
        except KernelError as err:
            self.probes = [ProbeReport(each, attached=False, reason=refusal(err.log)) for each in PROGRAMS["process"]]
            return
        opened.callback(loaded.close)
        self._loaded.append(loaded)
        self.probes = loaded.attach()
        members = self._sockets.object.map("members")
        for member in lineage.members(lineage.processes()):
            members.update(struct.pack("=I", member.pid), _MEMBER.pack(0, member.contained))

    def _look(self) -> None:
        """Tells the kernel where wanted sockets lie now; it looks again at those it turned away if that is news."""
        self._next_look = time.monotonic_ns() + LOOK_NS
        entries = self._places.entries()
        for directory, reason in self._places.hidden.items():
            if directory not in self.hidden:
                log.warning("%s: %s: a server there that bound another spelling is not traced", directory, reason)
        self.hidden = self._places.hidden
        if entries == self._placed:
            return
        table = self._sockets.object.map("wanted_places")
        self._generation += 1
        try:
            for key in self._placed.keys() - entries.keys():
                table.delete(key)
            for key, value in entries.items():
                table.update(key, value)
            self._sockets.object.map(".data.places").update(_GENERATION.pack(0), _GENERATION.pack(self._generation))
        except KernelError as err:
            log.warning("the kernel does not take where wanted sockets lie: %s", err)
            self._next_look = inf
            return
        self._placed = entries

    def refresh_realtime_offset(self) -> None:
        """Measures the clocks anew; the wall clock may have been set since."""
        before = time.monotonic_ns()
        wall = time.time_ns()
        self.realtime_offset_ns = wall - (before + time.monotonic_ns()) // 2

    def fileno(self) -> int:
        """For poll and epoll; becomes readable for much data only, so drain each `DRAIN_SECONDS` as well."""
        return self._ring.fileno()

    def drain(self, limit: int = DRAIN_RECORDS) -> list[Record]:
        """What is there, at most `limit` records or 8 MiB, and what was lost; does not wait. Nothing after `close`."""
        with self._lock:
            if self._closed:
                return []
            raw = self._ring.drain(limit)
            self._records += len(raw)
            records = [self._decoder.decode(each) for each in raw]
            now = time.monotonic_ns()
            if now >= self._next_look:
                self._look()
            if now >= self._next_loss_check:
                records += self._losses()
            return records

    def _losses(self) -> list[Record]:
        now = time.monotonic_ns()
        self._next_loss_check = now + LOSS_CHECK_NS
        found: list[Record] = []
        for loaded in self._loaded:
            for program, counted in loaded.counters().items():
                lost = counted["lost_records"] + counted["missed_runs"]
                if lost > self._told.get(program, 0):
                    found.append(Lost(now, program, lost - self._told.get(program, 0)))
                    self._told[program] = lost
        return found

    def records(self) -> Iterator[Record]:
        """Every record as it comes, until `close` (by any thread). Waits in epoll and by a timer."""
        with select.epoll() as waiting:
            with self._lock:
                if self._closed:
                    return
                waiting.register(self.fileno(), select.EPOLLIN)
            while not self._closed:
                waiting.poll(DRAIN_SECONDS)
                yield from self.drain()

    def counters(self) -> dict[str, int]:
        """Since construction: `records` taken out, the members of `struct counters`, and what each program lost."""
        with self._lock:
            total = {"records": self._records}
            if not self._closed:
                for loaded in self._loaded:
                    for program, counted in loaded.counters().items():
                        total[f"lost_records.{program}"] = counted["lost_records"] + counted["missed_runs"]
                        for name, value in counted.items():
                            total[name] = total.get(name, 0) + value
            return total

    def close(self) -> None:
        """Detaches the programs; what is still in the ring is discarded. May be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _explained(err: KernelError) -> KernelError:
    """The last line of the log is what the error's text shows."""
    return KernelError("trace sockets", err.errno, f"{err.log}\n{_ADVICE.get(err.errno, refusal(err.log))}")
