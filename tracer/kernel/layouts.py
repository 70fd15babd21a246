"""The structures of bpf/records.h as `struct` formats; compared with the object's BTF whenever one is loaded."""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from tracer.errors import TracerError
from tracer.kernel.btf import StructLayout


class Layout(NamedTuple):
    """One C structure: its name, and its members in order, each with the format of its bytes."""

    name: str
    members: tuple[tuple[str, str], ...]

    @property
    def format(self) -> str:
        """All members' formats in one: what `struct` unpacks is every member but the padding."""
        return "".join(format_ for _, format_ in self.members)

    def expected(self) -> StructLayout:
        """Where C must have put the members."""
        members: dict[str, tuple[int, int]] = {}
        offset = 0
        for name, format_ in self.members:
            size = struct.calcsize("=" + format_)
            members[name] = (offset, size)
            offset += size
        return StructLayout(offset, members)

    def compiled(self) -> struct.Struct:
        return struct.Struct("=" + self.format)


COMM_BYTES = 16
PATH_BYTES = 112
PLACE_NAME_BYTES = 108

RECORD_OPENED, RECORD_DATA, RECORD_CLOSED, RECORD_EXEC, RECORD_EXIT, RECORD_OOM = 1, 2, 3, 4, 5, 6

HEAD = Layout(
    "record_head",
    (
        ("time", "Q"),
        ("pid", "I"),
        ("tid", "I"),
        ("comm", f"{COMM_BYTES}s"),
        ("kind", "B"),
        ("side", "B"),
        ("direction", "B"),
        ("padding", "5x"),
    ),
)
OPENED = Layout(
    "opened_record",
    (
        ("head", HEAD.format),
        ("connection", "Q"),
        ("directory", "Q"),
        ("device", "I"),
        ("place", "I"),
        ("names", "I"),
        ("path_length", "I"),
    ),
)
DATA = Layout(
    "data_record",
    (
        ("head", HEAD.format),
        ("connection", "Q"),
        ("offset", "Q"),
        ("length", "I"),
        ("captured", "I"),
        ("fd", "i"),
        ("syscall", "i"),
    ),
)
CLOSED = Layout("closed_record", (("head", HEAD.format), ("connection", "Q"), ("error", "i"), ("padding", "4x")))
EXEC = Layout(
    "exec_record",
    (
        ("head", HEAD.format),
        ("forked", "Q"),
        ("ppid", "I"),
        ("argv_bytes", "I"),
        ("env_bytes", "I"),
        ("padding", "4x"),
    ),
)
EXIT = Layout("exit_record", (("head", HEAD.format), ("ppid", "I"), ("status", "i")))
OOM = Layout(
    "oom_record",
    (
        ("head", HEAD.format),
        ("anonymous_pages", "q"),
        ("file_pages", "q"),
        ("shared_pages", "q"),
        ("uid", "I"),
        ("cgroup_bytes", "I"),
    ),
)

COUNTERS = Layout(
    "counters",
    (
        ("lost_records", "Q"),
        ("lost_bytes", "Q"),
        ("trimmed_bytes", "Q"),
        ("unreadable_bytes", "Q"),
        ("foreign_bytes", "Q"),
        ("refused", "Q"),
    ),
)
WANTED_KEY = Layout("wanted_key", (("bits", "I"), ("path", f"{PATH_BYTES}s")))
PLACE_KEY = Layout(
    "place_key",
    (("bits", "I"), ("device", "I"), ("directory", "Q"), ("above", "I"), ("name", f"{PLACE_NAME_BYTES}s")),
)
WANTED = Layout("wanted", (("runtime", "I"), ("place", "I")))
MEMBER = Layout("member", (("mount_namespace", "Q"), ("contained", "I"), ("padding", "4x")))

LAYOUTS = {
    "socket": (HEAD, OPENED, DATA, CLOSED, COUNTERS, WANTED_KEY, PLACE_KEY, WANTED, MEMBER),
    "process": (HEAD, EXEC, EXIT, OOM, COUNTERS, MEMBER),
}
"""By object: the structures it shares with this package."""


def check_layouts(name: str, structs: Mapping[str, StructLayout]) -> None:
    """Raises TracerError when object `name` was built from other structures than this package knows."""
    for layout in LAYOUTS[name]:
        if structs.get(layout.name) != layout.expected():
            raise TracerError(
                f"BPF object {name}: struct {layout.name} differs from this package's: build both from one version"
                f" (make -C bpf)"
            )
