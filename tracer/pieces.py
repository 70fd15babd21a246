"""Pieces: bytes that a capture holds once and its records name by number (docs/capture-format.md)."""

import binascii
from typing import Any

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of the pieces remembered while a file is read; the flight recorder's files have at most 2 MiB of them."""

MAX_JOINED = 64 * 1024 * 1024
"""Bytes of one record's data in parts; no system call here moves as many."""


class Pieces:
    """What a reader remembers. Raises ValueError for what no capture of ours says."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytes] = {}
        self._bytes = 0

    def learn(self, number: int, data: bytes) -> None:
        """A number may be given anew."""
        self._bytes += len(data) - len(self._pieces.get(number, b""))
        if self._bytes > MAX_BYTES:
            raise ValueError("too many pieces")
        self._pieces[number] = data

    def joined(self, parts: list[Any]) -> bytes:
        """Data in parts, each base64 or the number of a piece."""
        found, size = [], 0
        for part in parts:
            if type(part) is int and part in self._pieces:
                data = self._pieces[part]
            elif type(part) is str:
                data = binascii.a2b_base64(part, strict_mode=True)
            else:
                raise ValueError("a piece that was not before")
            found.append(data)
            size += len(data)
            if size > MAX_JOINED:
                raise ValueError("too much data")
        return b"".join(found)
