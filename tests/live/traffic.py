"""Real unix sockets for the kernel tests, and what records say was on them."""

import ctypes
import os
import socket
import struct
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tracer.records import Closed, Data, Opened, Record

SUN_PATH_BYTES = 108


def bind_without_nul(listener: socket.socket, path: bytes) -> None:
    """What Python refuses to do: a path that fills sun_path."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = struct.pack("=H", socket.AF_UNIX) + path
    if libc.bind(listener.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Server:
    """A listening stream socket; `connect` gives both ends of a new connection."""

    def __init__(self, address: str | bytes | Path) -> None:
        self.address = str(address) if isinstance(address, Path) else address
        self.listener = socket.socket(socket.AF_UNIX)
        if len(self.address) < SUN_PATH_BYTES or self.address[:1] == b"\0":
            self.listener.bind(self.address)
        else:
            bind_without_nul(self.listener, os.fsencode(self.address))
        self.listener.listen(64)

    def connect(self, address: str | bytes | None = None) -> tuple[socket.socket, socket.socket]:
        client = socket.socket(socket.AF_UNIX)
        address = address or self.address
        if len(address) == SUN_PATH_BYTES and address[:1] != b"\0":
            # Python wants room for a NUL; the kernel does not, and a link has a shorter name.
            with tempfile.TemporaryDirectory() as directory:
                link = Path(directory) / "link"
                link.symlink_to(os.fsdecode(address))
                client.connect(str(link))
        else:
            client.connect(address)
        return client, self.listener.accept()[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()


@dataclass
class Stream:
    """What one end moved in one direction: `data` has zeros where `holes` (start, end) say that nothing was told."""

    data: bytearray = field(default_factory=bytearray)
    holes: list[tuple[int, int]] = field(default_factory=list)  # no record covers these bytes
    untold: int = 0  # bytes that records cover without holding them


def streams(records: Iterable[Record]) -> dict[tuple[str, str, str], Stream]:
    """By connection, side and direction. Fails when a record overlaps an earlier one."""
    found: dict[tuple[str, str, str], Stream] = {}
    for each in records:
        if isinstance(each, Data):
            stream = found.setdefault((each.connection, each.side, each.direction), Stream())
            place = len(stream.data)
            assert each.offset >= place, f"{each} overlaps what ended at {place}"
            if each.offset > place:
                stream.holes.append((place, each.offset))
                stream.data += bytes(each.offset - place)
            assert len(each.data) <= each.length
            stream.untold += each.length - len(each.data)
            stream.data += each.data + bytes(each.length - len(each.data))
    return found


def opened(records: Iterable[Record]) -> list[Opened]:
    return [each for each in records if isinstance(each, Opened)]


def closed(records: Iterable[Record]) -> list[Closed]:
    return [each for each in records if isinstance(each, Closed)]


def data(records: Iterable[Record]) -> list[Data]:
    return [each for each in records if isinstance(each, Data)]


def receive(end: socket.socket, length: int, piece: int = 1 << 20) -> bytes:
    """Reads until `length` bytes are there."""
    got = bytearray()
    while len(got) < length:
        some = end.recv(min(piece, length - len(got)))
        assert some, f"ended after {len(got)} of {length} bytes"
        got += some
    return bytes(got)
