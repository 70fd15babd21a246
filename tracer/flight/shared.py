"""Finds in a record's bytes what the file holds already: the lists of a quiet node are the same each second."""

from tracer.heads import DATA, FRAME_HEADER, HEAD

LEAST_BYTES = 1024
"""A shorter payload is not looked for: its number, with quotes and commas, would gain little."""

MOST_BYTES = 2 * 1024 * 1024
"""Bytes of the pieces of one file, which its writer and its reader remember; what comes later is written as it is."""


class Shared:
    """The pieces of one file; `parts` cuts bytes into those and the rest."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._bytes = 0

    def parts(self, data: bytes) -> tuple[list[bytes | int], list[tuple[int, bytes]]]:
        """Bytes and numbers of pieces that together are `data`; and the pieces that are new, with their numbers.

        Cut at the heads of HTTP/2 frames, as these differ (they hold the stream) where payloads are the same.
        """
        parts: list[bytes | int] = []
        new: list[tuple[int, bytes]] = []
        plain = at = 0  # `data[plain:at]` is not in `parts` yet
        size = len(data)
        while size - at >= FRAME_HEADER:
            word, _, _ = HEAD(data, at)
            begin = at + FRAME_HEADER
            at = min(begin + (word >> 8), size)
            if word & 0xFF != DATA or at - begin < LEAST_BYTES:
                continue
            number = self._number(data[begin:at], new)
            if number is not None:
                parts += (data[plain:begin], number)
                plain = at
        if plain < size:
            parts.append(data[plain:])
        return parts, new

    def _number(self, payload: bytes, new: list[tuple[int, bytes]]) -> int | None:
        number = self._numbers.get(payload)
        if number is None and self._bytes + len(payload) <= MOST_BYTES:
            number = self._numbers[payload] = len(self._numbers)
            self._bytes += len(payload)
            new.append((number, payload))
        return number
