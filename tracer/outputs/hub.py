"""The hub: rows as they come, to whoever listens. A listener that does not keep up loses rows and is told so."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable

from pydantic_core import to_json

from tracer.rows import Kind, Row

MAX_LISTENERS = 16
"""Pages open at once."""

MAX_WAITING = 4096
"""Rows that wait for one listener: ten seconds of a storm."""

BEAT_SECONDS = 15.0
"""A line is sent at least this often, so that proxies and listeners see that the connection lives."""


class Busy(Exception):  # noqa: N818
    """As many listen as may."""


class _Listener:
    def __init__(self, loop: asyncio.AbstractEventLoop, kinds: frozenset[Kind]) -> None:
        self.loop = loop
        self.kinds = kinds
        self.waiting: deque[bytes] = deque()
        self.lost = 0
        self.ready = asyncio.Event()


class Hub:
    """`feed` is for the tracer's thread and never waits; `listen` for an event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[_Listener] = []

    def feed(self, rows: Iterable[Row]) -> None:
        """Hand rows to every listener; costs nothing while nobody listens."""
        if not self._listeners:
            return
        with self._lock:
            listeners = list(self._listeners)
        texts: dict[int, bytes] = {}
        for row in rows:
            for listener in listeners:
                if row.kind not in listener.kinds:
                    continue
                if len(listener.waiting) >= MAX_WAITING:
                    listener.lost += 1
                    continue
                text = texts.get(id(row))
                if text is None:
                    text = texts[id(row)] = b"event: %b\ndata: %b\n\n" % (
                        row.kind.encode(),
                        to_json(row.fields, inf_nan_mode="null"),
                    )
                listener.waiting.append(text)
        for listener in listeners:
            if listener.waiting or listener.lost:
                listener.loop.call_soon_threadsafe(listener.ready.set)

    async def listen(self, kinds: frozenset[Kind]) -> AsyncIterator[bytes]:
        """Server-sent events (HTML standard, 9.2): one for each row; `lost` with a count; comments as heart beats.

        Raises Busy when too many listen already.
        """
        listener = _Listener(asyncio.get_running_loop(), kinds)
        with self._lock:
            if len(self._listeners) >= MAX_LISTENERS:
                raise Busy
            self._listeners.append(listener)
        try:
            yield b"retry: 2000\n\n"
            while True:
                try:
                    await asyncio.wait_for(listener.ready.wait(), BEAT_SECONDS)
                except TimeoutError:
                    yield b": beat\n\n"
                    continue
                listener.ready.clear()
                if listener.lost:
                    lost, listener.lost = listener.lost, 0
                    yield b"event: lost\ndata: %d\n\n" % lost
                while listener.waiting:
                    batch = [listener.waiting.popleft() for _ in range(min(len(listener.waiting), 256))]
                    yield b"".join(batch)
        finally:
            with self._lock:
                self._listeners.remove(listener)
