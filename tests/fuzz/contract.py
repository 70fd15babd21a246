"""What must hold of every stage."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from types import ModuleType
from typing import Any


class Growing:
    """Counters only grow, and none is ever negative."""

    def __init__(self, stats: Any) -> None:
        self._stats = stats
        self._before = _numbers(asdict(stats))

    def check(self) -> None:
        now = _numbers(asdict(self._stats))
        assert now.keys() == self._before.keys()
        for name, value in now.items():
            assert value >= self._before[name] >= 0, name
        self._before = now


def _numbers(tree: dict[str, Any], prefix: str = "") -> dict[str, int]:
    flat: dict[str, int] = {}
    for name, value in tree.items():
        flat.update(_numbers(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


@contextlib.contextmanager
def limits(module: ModuleType, **values: int) -> Iterator[None]:
    """Named limits of a module so small that short inputs reach them."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def text(value: object) -> None:
    """Texts go to SQLite and JSON: no half of a surrogate pair."""
    assert isinstance(value, str)
    value.encode()
