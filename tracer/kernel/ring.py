"""The ring buffer that the programs write and this process empties."""

import ctypes

from tracer.errors import KernelError
from tracer.kernel.libbpf import MESSAGES, RingHandle, SampleFunction, library
from tracer.kernel.program_object import Map

DRAIN_BYTES = 8 << 20  # taken out at once at most: bounds memory when the programs write as fast as this reads


class Ring:
    """Its descriptor becomes readable when a program asks for attention; what is written quietly needs a timer."""

    def __init__(self, ring: Map) -> None:
        self._records: list[bytes] = []
        self._records_left = 0
        self._bytes_left = 0
        self._function = SampleFunction(self._keep)  # libbpf keeps the pointer only, so this must live as long
        self._handle: RingHandle = library().ring_buffer__new(ring.fd, self._function, None, None)
        if not self._handle:
            raise KernelError("map the ring buffer", ctypes.get_errno(), MESSAGES.take())

    def _keep(self, _context: int | None, start: int, size: int) -> int:
        self._records.append(ctypes.string_at(start, size))
        self._records_left -= 1
        self._bytes_left -= size
        # A negative value ends the round; libbpf counts this record as consumed all the same.
        return 0 if self._records_left > 0 < self._bytes_left else -1

    def fileno(self) -> int:
        return int(library().ring_buffer__epoll_fd(self._handle))

    def drain(self, limit: int) -> list[bytes]:
        """At most `limit` records, oldest first; does not wait."""
        self._records_left = limit
        self._bytes_left = DRAIN_BYTES
        self._records = []
        library().ring_buffer__consume(self._handle)
        return self._records

    def close(self) -> None:
        library().ring_buffer__free(self._handle)
