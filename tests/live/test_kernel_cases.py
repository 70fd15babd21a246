"""Faults that tracers of sockets had at the border of the kernel, each as a test of its whole kind."""

import os
import socket
import threading
from pathlib import Path

import pytest

from tests.live.traffic import Server, data, opened
from tracer.kernel.source import KernelSource
from tracer.records import Record


def drained(source: KernelSource) -> list[Record]:
    records: list[Record] = []
    while more := source.drain():
        records += more
    return records


def asleep(tid: int) -> bool:
    return Path(f"/proc/self/task/{tid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


class Readers:
    """Threads that each wait in one receive, and are let go by what the server sends."""

    def __init__(self, clients: list[socket.socket]) -> None:
        self._clients = clients
        self.got: dict[int, bytes] = {}
        self._tids: list[int] = []
        self._threads = [threading.Thread(target=self._read, args=(place,)) for place in range(len(clients))]
        for thread in self._threads:
            thread.start()
        while len(self._tids) < len(clients) or not all(map(asleep, self._tids)):
            os.sched_yield()

    def _read(self, place: int) -> None:
        self._tids.append(threading.get_native_id())
        self.got[place] = self._clients[place].recv(100)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def test_what_is_received_by_a_call_that_waited_before_the_tracer_came_is_told(tmp_path):
    with Server(tmp_path / "s.sock") as server:
        client, served = server.connect()
        with client, served:
            readers = Readers([client])
            with KernelSource([str(tmp_path / "s.sock")], processes=False) as source:
                served.send(b"answer")
                readers.join()
                told = [(each.side, each.direction, each.data) for each in data(drained(source))]
    assert told == [("server", "send", b"answer"), ("client", "recv", b"answer")]


def test_as_many_threads_as_like_may_wait_at_once_and_each_is_told_once(tmp_path):
    """There is no beginning and end of a system call to be paired, so none can lose its other half."""
    with (
        Server(tmp_path / "s.sock") as server,
        KernelSource([str(tmp_path / "s.sock")], processes=False) as source,
    ):
        pairs = [server.connect() for _ in range(64)]
        readers = Readers([client for client, _ in pairs])
        for place, (_, served) in enumerate(pairs):
            served.send(b"%d" % place)
        readers.join()
        records = drained(source)
        for client, served in pairs:
            client.close()
            served.close()
    received = [each.data for each in data(records) if each.direction == "recv"]
    assert sorted(map(int, received)) == list(range(64))
    assert readers.got == {place: b"%d" % place for place in range(64)}


def test_connections_that_are_not_wanted_take_no_room_from_those_that_are(tmp_path):
    with (
        Server(tmp_path / "wanted.sock") as wanted,
        Server(tmp_path / "other.sock") as other,
        KernelSource([str(tmp_path / "wanted.sock")], processes=False) as source,
    ):
        before = source.counters()
        kept = []
        for number in range(10_000):
            client, served = other.connect()
            client.send(b"x")
            served.recv(1)
            if number % 100:
                client.close()
                served.close()
            else:
                kept += [client, served]
        assert drained(source) == []
        assert source.counters() == before
        client, served = wanted.connect()
        client.send(b"hello")
        assert served.recv(5) == b"hello"
        assert {each.data for each in data(drained(source))} == {b"hello"}
        for end in (*kept, client, served):
            end.close()


def test_a_descriptor_used_again_is_another_connection_with_nothing_of_the_former(tmp_path):
    """A client is killed in the middle of a call; the next one has its number, and often its memory."""
    with (
        Server(tmp_path / "s.sock") as server,
        KernelSource([str(tmp_path / "s.sock")], processes=False) as source,
    ):
        numbers = set()
        for number in range(100):
            client, served = server.connect()
            numbers.add(client.fileno())
            client.send(b"question %d" % number)
            served.recv(20)
            client.close()
            served.close()
        records = drained(source)
    assert len(numbers) == 1
    sent = [each for each in data(records) if each.direction == "send"]
    assert [each.data for each in sent] == [b"question %d" % number for number in range(100)]
    assert {each.offset for each in sent} == {0}
    assert len({each.connection for each in sent}) == 100
    assert len({each.connection for each in opened(records)}) == 100


@pytest.mark.parametrize("spelling", ["{}/s.sock", "{}//s.sock", "{}/./s.sock", "{}/../{name}/s.sock", "{}/s.sock/"])
def test_a_path_is_found_however_it_is_spelt(tmp_path, spelling):
    pattern = spelling.format(tmp_path, name=tmp_path.name)
    with Server(tmp_path / "s.sock") as server, KernelSource([pattern], processes=False) as source:
        client, served = server.connect()
        client.send(b"x")
        assert {each.path for each in data(drained(source))} == {str(tmp_path / "s.sock")}
        client.close()
        served.close()
