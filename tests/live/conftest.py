"""Live tests run real eBPF and real pods. Elsewhere they skip with one reason; CRISCOPE_LIVE=1 makes that a failure."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import machine
from tests.rig.node import Node, why_not

REASON = "needs root, BTF and containerd"
HERE = Path(__file__).parent


def _missing() -> str | None:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "this kernel shows no BTF (/sys/kernel/btf/vmlinux)"
    return why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.live)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if missing := _missing():
        if os.environ.get("CRISCOPE_LIVE") == "1":
            pytest.fail(f"{REASON}: {missing}", pytrace=False)
        pytest.skip(REASON)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A private containerd for the tests of one module."""
    with Node() as running:
        yield running


@pytest.fixture
def machine_as_before() -> Iterator[None]:
    """The machine is the same after the test as before it."""
    before, processes = machine.shared_state(), machine.rig_processes()
    yield
    assert machine.shared_state() == before
    assert [process for process in machine.rig_processes() if process not in processes] == []
