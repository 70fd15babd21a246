"""A connection that is made anew after it was lost, as the kubelet's runtime client does."""

import threading
import time
from pathlib import Path

from tests.rig.channel import Exchange, GoChannel, unsent_call

BACKOFF_SECONDS = (0.1, 3.0)
"""Before the next attempt to connect, and at most; doubles (cri-client's `baseBackoffDelay` and `maxBackoffDelay`)."""


class LastingChannel:
    """A `GoChannel` and, once that has ended, the next; calls between two fail at once, as grpc-go's do by default."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._channel: GoChannel | None = None
        self._failure = ""
        self._backoff = BACKOFF_SECONDS[0]
        self._not_before = 0.0

    def exchange(self, path: str, message: bytes, deadline: float | None, cancel_after: float | None) -> Exchange:
        channel = self._connected()
        if channel is None:
            return unsent_call(self._failure)
        return channel.exchange(path, message, deadline, cancel_after)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _connected(self) -> GoChannel | None:
        with self._lock:
            if self._channel is not None and not self._channel.over:
                return self._channel
            if time.monotonic() < self._not_before:
                return None
            try:
                self._channel = GoChannel(self._path)
            except OSError as error:
                self._channel = None
                self._failure = f"connection error: {error}"
                self._not_before = time.monotonic() + self._backoff
                self._backoff = min(2 * self._backoff, BACKOFF_SECONDS[1])
            else:
                self._backoff = BACKOFF_SECONDS[0]
            return self._channel
