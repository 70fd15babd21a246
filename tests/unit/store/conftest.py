from collections.abc import Iterator
from pathlib import Path

import pytest

from tracer.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store() -> Iterator[Store]:
    """A private store: nothing in it is too old."""
    with Store(None) as store:
        yield store
