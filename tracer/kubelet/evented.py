"""Whether the runtime's event stream stands in for frequent relists (`evented.go:watchEventsChannel`).

While it does, relists come each five minutes. When the stream breaks the kubelet relists at once and opens it again,
without a pause; after five breaks in its life it falls back to a relist each second, for good.
"""

MAX_BREAKS = 5
"""`eventedPlegMaxStreamRetries`; never reset."""


class EventStream:
    """Feed what happens to `GetContainerEvents` calls, and each relist of all pods that begins.

    `in_use` is None until the kubelet opened a stream under our eyes. Breaks before that are not known, so two relists
    in a row without a stream say as well that it fell back.
    """

    def __init__(self) -> None:
        self.in_use = False
        self._open: set[str] = set()
        self._breaks = 0
        self._owed = 0  # relists that come at once, out of rhythm

    def opened(self, call_id: str) -> None:
        self._open.add(call_id)
        self.in_use = self._breaks < MAX_BREAKS

    def ended(self, call_id: str) -> None:
        """The stream ended, however it did: it is meant to last for ever."""
        if call_id not in self._open:
            return
        self._open.discard(call_id)
        self._breaks += 1
        self._owed += 1
        if self._breaks >= MAX_BREAKS:
            self.in_use = False
            self._owed += 1  # the PLEG is started anew, with a relist at once

    @property
    def relist_owed(self) -> bool:
        """Whether a relist follows now, however long ago the last one was."""
        return self._owed > 0

    def relisted(self) -> None:
        """A relist of all pods begins."""
        if self._owed:
            self._owed -= 1
        elif not self._open:
            self.in_use = False
