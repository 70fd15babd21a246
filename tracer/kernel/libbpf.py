"""The system's libbpf: every function that is called, with its signature, in one table.

All calls go through `PyDLL`, which keeps the interpreter lock: a callback that must win the lock back for each record
starves as soon as another thread is busy. Nothing called here blocks.
"""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

from tracer.errors import TracerError

LIBRARY = "libbpf.so.1"  # the soname since 1.0, which removed the interfaces older versions had
MESSAGE_BYTES = 256 << 10  # one message can hold a whole verifier log; what matters in that is its end, see Messages
LEVEL_INFO = 1  # enum libbpf_print_level: 0 warning, 1 information, 2 debugging


# A class of its own for each kind of handle, so that ctypes refuses a map where a program is due. A function whose
# `restype` is missing would cut pointers to 32 bits.
class ObjectHandle(c_void_p):
    """`struct bpf_object *`."""


class ProgramHandle(c_void_p):
    """`struct bpf_program *`."""


class MapHandle(c_void_p):
    """`struct bpf_map *`."""


class LinkHandle(c_void_p):
    """`struct bpf_link *`."""


class BtfHandle(c_void_p):
    """`struct btf *`."""


class RingHandle(c_void_p):
    """`struct ring_buffer *`."""


class OpenOptions(ctypes.Structure):
    """The first members of `struct bpf_object_open_opts`; `size` tells libbpf that there are no more."""

    _fields_ = (("size", c_size_t), ("object_name", c_char_p))


PrintFunction = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
SampleFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "libbpf_set_print": (c_void_p, (PrintFunction,)),
    "libbpf_version_string": (c_char_p, ()),
    "libbpf_num_possible_cpus": (c_int, ()),
    "bpf_object__open_mem": (ObjectHandle, (c_char_p, c_size_t, POINTER(OpenOptions))),
    "bpf_object__load": (c_int, (ObjectHandle,)),
    "bpf_object__close": (None, (ObjectHandle,)),
    "bpf_object__btf": (BtfHandle, (ObjectHandle,)),
    "bpf_object__next_program": (ProgramHandle, (ObjectHandle, ProgramHandle)),
    "bpf_object__find_program_by_name": (ProgramHandle, (ObjectHandle, c_char_p)),
    "bpf_object__find_map_by_name": (MapHandle, (ObjectHandle, c_char_p)),
    "btf__raw_data": (c_void_p, (BtfHandle, POINTER(c_uint32))),
    "bpf_program__name": (c_char_p, (ProgramHandle,)),
    "bpf_program__fd": (c_int, (ProgramHandle,)),
    "bpf_program__set_autoload": (c_int, (ProgramHandle, ctypes.c_bool)),
    "bpf_program__attach": (LinkHandle, (ProgramHandle,)),
    "bpf_link__destroy": (c_int, (LinkHandle,)),
    "bpf_link__fd": (c_int, (LinkHandle,)),
    "bpf_iter_create": (c_int, (c_int,)),
    "bpf_map__fd": (c_int, (MapHandle,)),
    "bpf_map__key_size": (c_uint32, (MapHandle,)),
    "bpf_map__value_size": (c_uint32, (MapHandle,)),
    "bpf_map__set_max_entries": (c_int, (MapHandle, c_uint32)),
    "bpf_map__reuse_fd": (c_int, (MapHandle, c_int)),
    "bpf_map__initial_value": (c_void_p, (MapHandle, POINTER(c_size_t))),
    "bpf_map_update_elem": (c_int, (c_int, c_char_p, c_char_p, c_uint64)),
    "bpf_map_lookup_elem": (c_int, (c_int, c_char_p, c_char_p)),
    "bpf_map_delete_elem": (c_int, (c_int, c_char_p)),
    "ring_buffer__new": (RingHandle, (c_int, SampleFunction, c_void_p, c_void_p)),
    "ring_buffer__consume": (c_int, (RingHandle,)),
    "ring_buffer__epoll_fd": (c_int, (RingHandle,)),
    "ring_buffer__free": (None, (RingHandle,)),
}


class Messages:
    """What libbpf says, kept until it is taken: the verifier's log of a refused program among it."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._format = ctypes.CDLL(None).vsnprintf
        # The last argument is a va_list: by the x86-64 and the arm64 calling convention it arrives as a pointer, which
        # is handed on as it came.
        self._format.argtypes = (c_char_p, c_size_t, c_char_p, c_void_p)
        self.function = PrintFunction(self._keep)

    def _keep(self, level: int, template: bytes, arguments: int) -> int:
        if level <= LEVEL_INFO:
            buffer = ctypes.create_string_buffer(MESSAGE_BYTES)
            self._format(buffer, MESSAGE_BYTES, template, arguments)
            self._texts.append(buffer.value.decode(errors="replace"))
        return 0

    def take(self) -> str:
        """All text since the last call."""
        text = "".join(self._texts)
        self._texts.clear()
        return text


MESSAGES = Messages()


@cache
def library() -> ctypes.PyDLL:
    """libbpf, loaded when it is first needed: replaying a capture does without. Raises TracerError when absent."""
    try:
        lib = ctypes.PyDLL(LIBRARY, use_errno=True)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(lib, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as err:
        raise TracerError(f"{LIBRARY} (1.0 or newer) is needed: install libbpf1 (Debian) or libbpf: {err}") from err
    lib.libbpf_set_print(MESSAGES.function)
    return lib


def version() -> str:
    """The library's own words, e.g. `v1.1`."""
    return str(library().libbpf_version_string().decode())
