"""Ids met lately: a final row comes again when its pod or activity turned out later, and is counted once."""

REMEMBERED = 8192
"""Ids after which the older half is forgotten; 8192 calls are half a minute of a storm of 300 changing pods."""


class Recent:
    """The ids added last: between `REMEMBERED` and twice as many."""

    def __init__(self) -> None:
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._young or id_ in self._old

    def add(self, id_: str) -> bool:
        """True when it is new."""
        if id_ in self:
            return False
        self._young.add(id_)
        if len(self._young) >= REMEMBERED:
            self._old, self._young = self._young, set()
        return True
