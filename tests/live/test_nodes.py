"""Several nodes on one kernel, as clusters in containers have them: the same paths in different mount namespaces."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.traffic import Server, data, opened
from tracer.kernel.source import KernelSource
from tracer.records import Data, Record

# A server and its client in one node; each line read makes a connection and sends that line over it.
NODE = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(os.getpid(), flush=True)
child = os.fork()
if not child:
    while True:
        end = listener.accept()[0]
        while text := end.recv(100):
            end.send(text.upper())
        end.close()
for line in sys.stdin:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sys.argv[1])
        client.send(line.strip().encode())
        print(client.recv(100).decode(), flush=True)
os.kill(child, 9)
"""


class Node:
    """Processes in a mount namespace with a file system of its own on `directory`."""

    def __init__(self, directory: Path) -> None:
        script = 'mount -t tmpfs node "$0" && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", script, str(directory)]
        self.path = f"{directory}/rt.sock"
        self._process = subprocess.Popen(
            [*command, sys.executable, "-c", NODE, self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = int(self._line())
        mounts = Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
        (self.device,) = (line.split()[2] for line in mounts if line.split()[4] == str(directory))
        self.directory = Path(f"/proc/{self.pid}/root/{directory}").stat().st_ino

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def call(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        assert self._line() == text.upper()

    @property
    def shown(self) -> str:
        return f"{self.device}:{self.directory}:{self.path}"

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def nodes(directory: Path) -> Iterator[tuple[Node, Node]]:
    both = Node(directory), Node(directory)
    yield both
    for node in both:
        node.close()


def settled(source: KernelSource, connections: int) -> list[Record]:
    """What was told until each connection's client had its answer."""
    records: list[Record] = []
    for _ in range(1000):
        records += source.drain()
        answered = {each.connection for each in data(records) if (each.side, each.direction) == ("client", "recv")}
        if len(answered) == connections:
            break
    return records


def content(records: list[Record]) -> dict[str, set[bytes]]:
    found: dict[str, set[bytes]] = {}
    for each in records:
        if isinstance(each, Data):
            found.setdefault(each.path, set()).add(each.data)
    return found


def test_servers_of_two_nodes_that_bound_the_same_path_are_apart(directory, nodes):
    one, two = nodes
    with KernelSource([f"{directory}/rt.sock"], processes=False) as source:
        for turn in range(3):
            one.call(f"one {turn}")
            two.call(f"two {turn}")
        records = settled(source, 6)
    assert one.shown != two.shown
    assert content(records) == {
        node.shown: {each for turn in range(3) for each in (b"%s %d" % (name, turn), b"%s %d" % (name.upper(), turn))}
        for node, name in ((one, b"one"), (two, b"two"))
    }
    by_connection: dict[str, set[str]] = {}
    for each in opened(records):
        by_connection.setdefault(each.connection, set()).add(each.path)
    assert sorted(map(sorted, by_connection.values())) == sorted([[one.shown]] * 3 + [[two.shown]] * 3)


def test_the_node_that_criscope_itself_runs_in_has_the_plain_path(directory, nodes):
    one, two = nodes
    with KernelSource([f"{directory}/rt.sock"], processes=False) as source, Server(directory / "rt.sock") as own:
        client, served = own.connect()
        with client, served:
            served.send(b"own")
            client.recv(3)
        one.call("one")
        two.call("two")
        records = settled(source, 3)
    assert content(records) == {
        own.address: {b"own"},
        one.shown: {b"one", b"ONE"},
        two.shown: {b"two", b"TWO"},
    }


def test_the_numbers_are_those_of_the_nodes_own_mounts_and_directories(nodes):
    for node in nodes:
        assert re.fullmatch(rf"0:\d+:\d+:{re.escape(node.path)}", node.shown)
    assert len({node.device for node in nodes}) == 2


def test_a_client_that_reaches_into_another_node_is_told_with_that_nodes_socket(directory, nodes):
    """The listening socket decides, wherever the client is."""
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b'x'); "
        "print(s.recv(1).decode())"
    )
    with KernelSource([f"{directory}/rt.sock"], processes=False) as source:
        for node in nodes:
            through = f"/proc/{node.pid}/root/{node.path}"
            done = subprocess.run([sys.executable, "-c", program, through], capture_output=True, text=True, check=True)
            assert done.stdout == "X\n"
        records = settled(source, 2)
    assert list(dict.fromkeys(each.path for each in opened(records))) == [node.shown for node in nodes]
