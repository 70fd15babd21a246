"""A BPF object: opened without any privilege, then loaded into the kernel, then its programs attached."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from platform import machine
from types import TracebackType
from typing import Self

from tracer.errors import KernelError, TracerError
from tracer.kernel.btf import Btf, parse_btf
from tracer.kernel.libbpf import MESSAGES, LinkHandle, MapHandle, ObjectHandle, OpenOptions, ProgramHandle, library

BPF_ANY = 0


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """One program of the kernel side: is it attached, and if not, why."""

    program: str
    attached: bool
    reason: str = ""


class Map:
    """A loaded map. Looking up and updating needs no privilege (Linux 5.19): holding the descriptor is enough."""

    def __init__(self, name: str, handle: MapHandle) -> None:
        self.name = name
        self.handle = handle
        self.fd: int = library().bpf_map__fd(handle)
        self._key_bytes: int = library().bpf_map__key_size(handle)
        self._value_bytes: int = library().bpf_map__value_size(handle)

    def update(self, key: bytes, value: bytes) -> None:
        """Raises KernelError, ENOSPC or E2BIG when the map is full."""
        assert (len(key), len(value)) == (self._key_bytes, self._value_bytes)
        _check(f"update map {self.name}", library().bpf_map_update_elem(self.fd, key, value, BPF_ANY))

    def delete(self, key: bytes) -> None:
        """Raises KernelError, ENOENT when it is not there."""
        assert len(key) == self._key_bytes
        _check(f"take out of map {self.name}", library().bpf_map_delete_elem(self.fd, key))

    def per_cpu(self, key: bytes) -> list[bytes]:
        """The value of each possible CPU."""
        assert len(key) == self._key_bytes
        # The kernel writes each CPU's value rounded up to 8 bytes; a smaller buffer would be overrun.
        each = -(-self._value_bytes // 8) * 8
        cpus = _check("count CPUs", library().libbpf_num_possible_cpus())
        buffer = ctypes.create_string_buffer(each * cpus)
        _check(f"look up in map {self.name}", library().bpf_map_lookup_elem(self.fd, key, buffer))
        return [buffer.raw[start : start + self._value_bytes] for start in range(0, each * cpus, each)]


class ProgramObject:
    """Programs and maps of one .bpf.o file. `close` detaches the programs and frees everything."""

    def __init__(self, name: str, image: bytes) -> None:
        """Parses; touches no kernel. Raises KernelError when libbpf refuses."""
        lib = library()
        options = OpenOptions(ctypes.sizeof(OpenOptions), name.encode())
        self.name = name
        self._links: dict[str, LinkHandle] = {}
        MESSAGES.take()
        self._handle: ObjectHandle = lib.bpf_object__open_mem(image, len(image), ctypes.byref(options))
        if not self._handle:
            raise KernelError(f"open BPF object {name}", ctypes.get_errno(), MESSAGES.take())
        self.btf = self._read_btf()

    @classmethod
    def shipped(cls, name: str, architecture: str | None = None) -> Self:
        """The package's own object for this machine. Raises TracerError when it was not built."""
        resource = files("tracer.kernel") / "objects" / f"{name}.{architecture or machine()}.bpf.o"
        try:
            image = resource.read_bytes()
        except OSError as err:
            raise TracerError(f"{resource} is missing: build it with make -C bpf (x86_64 and aarch64 only)") from err
        return cls(name, image)

    def _read_btf(self) -> Btf:
        lib = library()
        size = ctypes.c_uint32()
        raw = lib.btf__raw_data(lib.bpf_object__btf(self._handle), ctypes.byref(size))
        return parse_btf(ctypes.string_at(raw, size.value))

    def programs(self) -> Iterator[str]:
        lib = library()
        program = lib.bpf_object__next_program(self._handle, None)
        while program:
            yield lib.bpf_program__name(program).decode()
            program = lib.bpf_object__next_program(self._handle, program)

    def map(self, name: str) -> Map:
        handle = library().bpf_object__find_map_by_name(self._handle, name.encode())
        assert handle, f"no map {name} in {self.name}"
        return Map(name, handle)

    def _program(self, name: str) -> ProgramHandle:
        handle: ProgramHandle = library().bpf_object__find_program_by_name(self._handle, name.encode())
        assert handle, f"no program {name} in {self.name}"
        return handle

    def set_const(self, variable: str, value: int) -> None:
        """Sets a `const volatile` variable; only before `load`."""
        offset, size = self.btf.sections[".rodata"][variable]
        start = library().bpf_map__initial_value(self.map(".rodata").handle, ctypes.byref(ctypes.c_size_t()))
        ctypes.memmove(start + offset, value.to_bytes(size, "little"), size)

    def resize(self, map_name: str, max_entries: int) -> None:
        """Only before `load`."""
        handle = self.map(map_name).handle
        _check(f"resize map {map_name}", library().bpf_map__set_max_entries(handle, max_entries))

    def share(self, loaded: Map) -> None:
        """Use another object's map for the one of the same name; only before `load`."""
        _check(f"share map {loaded.name}", library().bpf_map__reuse_fd(self.map(loaded.name).handle, loaded.fd))

    def skip(self, program: str) -> None:
        """Do not load this program: one that is refused fails the whole object."""
        autoload = False
        _check(f"skip {program}", library().bpf_program__set_autoload(self._program(program), autoload))

    def load(self) -> None:
        """The verifier runs here. Raises KernelError with its log."""
        MESSAGES.take()
        _check(f"load BPF object {self.name}", library().bpf_object__load(self._handle))

    def attach(self, program: str) -> None:
        """Raises KernelError, also when it was not loaded."""
        MESSAGES.take()
        link = library().bpf_program__attach(self._program(program))
        if not link:
            raise KernelError(f"attach {program}", ctypes.get_errno(), MESSAGES.take())
        self._links[program] = link

    def iterate(self, program: str) -> int:
        """A descriptor whose text an attached iterator writes while it is read; needs no privilege (Linux 5.19)."""
        return _check(f"iterate {program}", library().bpf_iter_create(library().bpf_link__fd(self._links[program])))

    def missed_runs(self, program: str) -> int:
        """How often the kernel left a program out because it was running on that CPU already (preemptible kernels)."""
        fd = library().bpf_program__fd(self._program(program))
        for line in Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii").splitlines():
            if line.startswith("recursion_misses:"):
                return int(line.split()[1])
        return 0

    def close(self) -> None:
        lib = library()
        while self._links:
            lib.bpf_link__destroy(self._links.popitem()[1])
        if self._handle:
            lib.bpf_object__close(self._handle)
            self._handle = ObjectHandle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def refusal(log: str) -> str:
    """The line of libbpf's and the verifier's text that says why: the verifier's last words, else the first line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith(("verification time", "processed ")):
            return lines[number - 1]
    return lines[0].removeprefix("libbpf: ") if lines else ""


def _check(op: str, result: int) -> int:
    """A negative result is an errno, in all of libbpf."""
    if result < 0:
        raise KernelError(op, -result, MESSAGES.take())
    return result
