"""Every byte that goes through a wanted socket is told as it was, whichever system call moved it."""

import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from platform import machine

import pytest

from tests.live.traffic import Server, closed, data, opened, receive, streams
from tracer.kernel.source import WHOLE, KernelSource

# name -> (x86-64, arm64)
NUMBERS = {
    "write": (None, None),
    "writev": (20, 66),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "read": (None, None),
    "readv": (19, 65),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
}


def number(call: str) -> int | None:
    return NUMBERS[call][machine() == "aarch64"]


SENDS: dict[str, Callable[[socket.socket, bytes], int]] = {
    "write": lambda end, payload: os.write(end.fileno(), payload),
    "writev": lambda end, payload: os.writev(end.fileno(), [payload[:1], b"", payload[1:]]),
    "sendto": lambda end, payload: end.send(payload),
    "sendmsg": lambda end, payload: end.sendmsg([payload[:3], payload[3:]]),
}


def received_by_readv(end: socket.socket, size: int) -> bytes:
    parts = [bytearray(2), bytearray(0), bytearray(size)]
    length = os.readv(end.fileno(), parts)
    return b"".join(parts)[:length]


def received_by_recvmsg(end: socket.socket, size: int) -> bytes:
    parts = [bytearray(5), bytearray(size)]
    length = end.recvmsg_into(parts)[0]
    return b"".join(parts)[:length]


RECEIVES: dict[str, Callable[[socket.socket, int], bytes]] = {
    "read": lambda end, size: os.read(end.fileno(), size),
    "readv": received_by_readv,
    "recvfrom": lambda end, size: end.recv(size),
    "recvmsg": received_by_recvmsg,
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "s.sock") as listening:
        yield listening


@pytest.fixture
def source(server: Server) -> Iterator[KernelSource]:
    with KernelSource([server.address], receive_bytes=WHOLE, ring_bytes=32 << 20, processes=False) as tracing:
        yield tracing


def drained(source: KernelSource) -> list:
    records = []
    while more := source.drain():
        records += more
    return records


@pytest.mark.parametrize("receiving", RECEIVES)
@pytest.mark.parametrize("sending", SENDS)
def test_each_system_call_is_told_with_its_bytes_at_both_ends(source, server, sending, receiving):
    client, served = server.connect()
    with client, served:
        request, answer = random.randbytes(1000), random.randbytes(70_000)
        assert SENDS[sending](client, request) == len(request)
        assert RECEIVES[receiving](served, 2000) == request
        assert SENDS[sending](served, answer) == len(answer)
        assert RECEIVES[receiving](client, 100_000) == answer
        records = drained(source)
        descriptors = {"client": client.fileno(), "server": served.fileno()}
    (connection,) = {each.connection for each in records}
    told = streams(records)
    assert told.keys() == {(connection, side, way) for side in ("client", "server") for way in ("send", "recv")}
    assert told[connection, "client", "send"].data == told[connection, "server", "recv"].data == request
    assert told[connection, "server", "send"].data == told[connection, "client", "recv"].data == answer
    for each in data(records):
        assert each.syscall == number(sending if each.direction == "send" else receiving)
        assert each.fd == descriptors[each.side]
        assert each.path == server.address
        assert (each.pid, each.tid) == (os.getpid(), threading.get_native_id())
        assert each.comm == Path("/proc/self/comm").read_text().strip()
    assert [(each.side, each.path, each.pid) for each in opened(records)] == [
        ("client", server.address, os.getpid()),
        ("server", server.address, os.getpid()),
    ]
    times = [each.time for each in records]
    assert times == sorted(times)


@pytest.mark.parametrize("segments", [1, 2, 3, 17, 255, 1024])
def test_segments_of_any_number_and_size_are_joined_in_order(source, server, segments):
    chosen = random.Random(segments)
    sizes = [chosen.choice([0, 1, 7, 100, 4096, 20_000]) for _ in range(segments - 1)] + [11]
    parts = [chosen.randbytes(size) for size in sizes]
    payload = b"".join(parts)
    client, served = server.connect()
    with client, served:
        sender = threading.Thread(target=lambda: client.sendmsg(parts))
        sender.start()
        into = [bytearray(max(1, size // 2)) for size in sizes]
        got = b""
        while len(got) < len(payload):
            length = served.recvmsg_into(into)[0]
            got += b"".join(into)[:length]
        sender.join()
    assert got == payload
    told = streams(drained(source))
    assert [bytes(stream.data) for stream in told.values()] == [payload, payload]
    assert not any(stream.holes or stream.untold for stream in told.values())


@pytest.mark.parametrize("pieces", [1, 700])
def test_a_message_of_16_mib_arrives_whole(source, server, pieces):
    payload = random.randbytes(16 << 20)
    size = -(-len(payload) // pieces)
    parts = [payload[start : start + size] for start in range(0, len(payload), size)]
    client, served = server.connect()
    with client, served:
        sender = threading.Thread(target=lambda: served.sendmsg(parts))
        sender.start()
        records = []
        got = bytearray()
        while len(got) < len(payload):
            got += client.recv(1 << 20)
            records += drained(source)
        sender.join()
        records += drained(source)
    told = streams(records)
    (sent,) = [stream for (_, side, _), stream in told.items() if side == "server"]
    (received,) = [stream for (_, side, _), stream in told.items() if side == "client"]
    assert sent.data == received.data == payload == got
    assert not sent.holes + received.holes
    assert sent.untold == received.untold == 0
    assert len({each.time for each in data(records) if each.side == "server"}) == 1, "one operation has one time"


def test_only_the_wanted_part_of_what_is_received_is_kept(server):
    with KernelSource([server.address], receive_bytes=16, processes=False) as source:
        client, served = server.connect()
        with client, served:
            client.send(b"x" * 5000)
            assert len(served.recv(3000)) == 3000
            assert len(served.recv(3000)) == 2000
        told = [(each.offset, each.length, len(each.data)) for each in data(drained(source))]
        assert told == [(0, 5000, 5000), (0, 3000, 16), (3000, 2000, 16)]
        assert source.counters()["trimmed_bytes"] == 0, "what nobody wants is not missing"


def test_partial_reads_peeks_and_empty_reads_keep_the_offsets_exact(source, server):
    client, served = server.connect()
    with client, served:
        client.send(b"0123456789")
        assert served.recv(4, socket.MSG_PEEK) == b"0123"
        assert served.recv(4) == b"0123"
        assert served.recv(0) == b""
        assert served.recv(100, socket.MSG_PEEK) == b"456789"
        assert served.recv(100) == b"456789"
        with pytest.raises(BlockingIOError):
            served.recv(1, socket.MSG_DONTWAIT)
        records = drained(source)
    received = [(each.offset, each.data) for each in data(records) if each.direction == "recv"]
    assert received == [(0, b"0123"), (4, b"456789")]
    assert not closed(records)


def test_a_connection_older_than_the_tracer_is_told_from_now_on(server):
    client, served = server.connect()
    with client, served:
        client.send(b"before")
        served.recv(6)
        with KernelSource([server.address], processes=False) as source:
            served.send(b"after")
            client.recv(5)
            records = drained(source)
    assert [(each.side, each.direction, each.offset, each.data) for each in data(records)] == [
        ("server", "send", 0, b"after"),
        ("client", "recv", 0, b"after"),
    ]
    assert {each.side for each in opened(records)} == {"client", "server"}


def test_threads_and_connections_at_once_are_kept_apart(source, server):
    payloads = {name: random.randbytes(300_000) for name in range(8)}
    threads = {}

    def talk(name: int) -> None:
        client, served = pairs[name]
        threads[threading.get_native_id()] = name
        for start in range(0, len(payloads[name]), 10_000):
            client.sendall(payloads[name][start : start + 10_000])
            receive(served, 10_000)

    pairs = [server.connect() for _ in payloads]
    workers = [threading.Thread(target=talk, args=(name,), name="worker") for name in payloads]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    records = drained(source)
    for client, served in pairs:
        client.close()
        served.close()
    by_connection = {}
    for each in data(records):
        by_connection.setdefault(each.connection, set()).add(threads[each.tid])
        assert each.comm == Path("/proc/self/comm").read_text().strip(), "the process's name, not the thread's"
    assert sorted(map(sorted, by_connection.values())) == sorted([name] for name in payloads)
    told = streams(records)
    for connection, (name,) in by_connection.items():
        assert told[connection, "client", "send"].data == payloads[name]
        assert told[connection, "server", "recv"].data == payloads[name]


def test_bytes_moved_by_other_system_calls_are_counted_but_not_guessed(source, server, tmp_path):
    (tmp_path / "file").write_bytes(b"f" * 5000)
    client, served = server.connect()
    with client, served, (tmp_path / "file").open("rb") as file:
        client.send(b"before")
        os.sendfile(client.fileno(), file.fileno(), 0, 5000)
        client.send(b"after")
        receive(served, 5011)
        records = drained(source)
    told = streams(records)
    (sent,) = [stream for (_, side, _), stream in told.items() if side == "client"]
    assert sent.data == b"before" + bytes(5000) + b"after"
    assert (sent.untold, sent.holes) == (5000, [])
    assert {each.fd for each in data(records) if not each.data} == {-1}
    assert source.counters()["foreign_bytes"] == 5000


@pytest.mark.skipif(machine() != "x86_64", reason="int 0x80 is x86's")
def test_a_32_bit_call_is_not_mistaken_for_the_64_bit_one_of_its_number(source, server, tmp_path):
    """Number 19 is readv(2) for 64 bits and lseek(2) for 32; 4 is write(2) for 32 bits."""
    program = tmp_path / "compat.c"
    program.write_text("""
        static char text[] = "thirty-two";
        int main(void)
        {
            int result;
            __asm__ volatile("int $0x80" : "=a"(result) : "a"(4), "b"(0), "c"(text), "d"(10) : "memory");
            return result == 10 ? 0 : 1;
        }""")
    subprocess.run(["clang", "-static", "-no-pie", "-fno-pie", "-o", tmp_path / "compat", program], check=True)
    client, served = server.connect()
    with client, served:
        done = subprocess.run([tmp_path / "compat"], stdin=client, check=False)
        assert done.returncode == 0, "this kernel runs no 32-bit system calls"
        assert served.recv(100) == b"thirty-two"
        records = drained(source)
    (sent,) = [each for each in data(records) if each.direction == "send"]
    assert (sent.length, sent.data, sent.syscall, sent.fd) == (10, b"", -1, -1)
