"""What cannot be told is counted to the byte, and what is told is right all the same."""

import ctypes
import mmap
import random
import socket
import threading
import time

import pytest

from tests.live.traffic import Server, data, receive, streams
from tracer.kernel.source import LOSS_CHECK_NS, WHOLE, KernelSource
from tracer.records import Lost


def drained(source: KernelSource) -> list:
    records = []
    while more := source.drain():
        records += more
    return records


def told_of_losses(source: KernelSource) -> list:
    time.sleep(LOSS_CHECK_NS / 1e9)
    return drained(source)


def push(sender: socket.socket, receiver: socket.socket, payload: bytes) -> None:
    """Sends in one operation while another thread receives."""
    reading = threading.Thread(target=receive, args=(receiver, len(payload)))
    reading.start()
    sender.sendall(payload)
    reading.join()


@pytest.mark.parametrize("reading", [False, True], ids=["no reader", "a reader"])
def test_a_tiny_ring_loses_exactly_the_holes(tmp_path, reading):
    payload = random.randbytes(16 << 20)
    with (
        KernelSource([f"{tmp_path}/s.sock"], ring_bytes=64 << 10, receive_bytes=WHOLE, processes=False) as source,
        Server(tmp_path / "s.sock") as server,
    ):
        client, served = server.connect()
        records = []
        for start in range(0, len(payload), 1 << 18):
            push(served, client, payload[start : start + (1 << 18)])
            if reading:
                records += source.drain()
        records += told_of_losses(source)
        served.send(b"end")
        receive(client, 3)
        records += drained(source)
        counters = source.counters()
        client.close()
        served.close()
    whole = payload + b"end"
    told = streams(records)
    assert counters["lost_records"] > 0 or reading
    assert sum(end - start for each in told.values() for start, end in each.holes) == counters["lost_bytes"]
    assert sum(each.untold for each in told.values()) == counters["trimmed_bytes"] > 0
    for each in told.values():
        assert len(each.data) == len(whole), "the last record says where all before it lie"
    for each in data(records):
        assert each.data == whole[each.offset : each.offset + len(each.data)]
    lost = [each for each in records if isinstance(each, Lost)]
    assert sum(each.count for each in lost) == counters["lost_records"]
    assert {each.program for each in lost} <= {"socket_send", "socket_receive"}


def test_under_pressure_what_was_received_goes_first_and_then_the_tails_of_long_sends(tmp_path):
    ring = 1 << 20
    with (
        KernelSource([f"{tmp_path}/s.sock"], ring_bytes=ring, receive_bytes=WHOLE, processes=False) as source,
        Server(tmp_path / "s.sock") as server,
    ):
        client, served = server.connect()
        for _ in range(50):
            client.send(bytes(50_000))
            receive(served, 50_000, 50_000)
        records = drained(source)
        assert source.counters()["lost_records"] == 0
        assert source.counters()["trimmed_bytes"] == sum(each.length - len(each.data) for each in data(records))
        client.close()
        served.close()
    kept = {"send": [], "recv": []}
    operations = {}
    for each in data(records):
        operations.setdefault((each.direction, each.time), []).append(each)
    for (direction, _), parts in operations.items():
        kept[direction].append(sum(len(each.data) for each in parts))
    assert kept["recv"][0] == kept["send"][0] == 50_000
    assert kept["recv"][-1] == 0
    assert kept["send"][-1] == 4096, "the beginning of a message is kept to the last"
    first_dropped = kept["recv"].index(0)
    assert kept["send"][first_dropped] == 50_000
    assert set(kept["send"][kept["send"].index(4096) :]) == {4096}


def test_under_pressure_lists_are_cut_while_headers_and_small_messages_stay_whole(tmp_path):
    """A call's header block, its short answer and the beginning of a long one are what names it and times it."""
    headers, small, long = b"h" * 300, b"s" * 2000, b"l" * 200_000
    # The last quarter takes what is never cut, with room: 40 x (300 + 2000 + 4096 bytes + ten records' heads).
    with (
        KernelSource([f"{tmp_path}/s.sock"], ring_bytes=2 << 20, processes=False) as source,
        Server(tmp_path / "s.sock") as server,
    ):
        client, served = server.connect()
        calls = 40
        for _ in range(calls):
            client.send(headers)
            receive(served, len(headers))
            served.send(small)
            receive(client, len(small))
            push(served, client, long)
        records = drained(source)
        counters = source.counters()
        client.close()
        served.close()
    assert counters["lost_records"] == 0
    kept: dict[int, list[int]] = {}
    sends: dict[tuple[str, int], tuple[int, int]] = {}
    for each in data(records):
        if each.direction == "send":
            length, told = sends.get((each.side, each.time), (0, 0))
            sends[each.side, each.time] = length + each.length, told + len(each.data)
    for length, told in sends.values():
        kept.setdefault(length, []).append(told)
    assert kept[len(headers)] == [len(headers)] * calls
    assert kept[len(small)] == [len(small)] * calls
    assert len(kept[len(long)]) == calls
    assert kept[len(long)][0] == len(long)
    assert set(kept[len(long)][10:]) == {4096}, "lists go, but for their beginning"


def test_a_connection_that_could_not_be_announced_is_announced_later(tmp_path):
    with (
        KernelSource([f"{tmp_path}/s.sock"], ring_bytes=4096, processes=False) as source,
        Server(tmp_path / "s.sock") as server,
    ):
        first, served_first = server.connect()
        while source.counters()["lost_records"] == 0:
            first.send(b"x" * 100)
            receive(served_first, 100)
        second, served_second = server.connect()
        second.send(b"unheard")
        receive(served_second, 7)
        drained(source)
        second.send(b"heard")
        receive(served_second, 5)
        told = [each for each in drained(source) if not isinstance(each, Lost)]
        for each in (first, served_first, second, served_second):
            each.close()
    assert [type(each).__name__ for each in told] == ["Opened", "Data", "Opened", "Data"]
    assert {each.path for each in data(told)} == {f"{tmp_path}/s.sock"}
    assert [(each.offset, each.data) for each in data(told)] == [(7, b"heard"), (7, b"heard")]


def test_memory_that_cannot_be_read_any_more_is_a_counted_hole(tmp_path):
    """Another thread takes the buffer's pages away while the call waits for room in the socket."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = 2 << 20
    buffer = mmap.mmap(-1, size)
    content = random.randbytes(size)
    buffer[:] = content
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    with (
        KernelSource([f"{tmp_path}/s.sock"], receive_bytes=0, processes=False) as source,
        Server(tmp_path / "s.sock") as server,
    ):
        client, served = server.connect()
        sending = threading.Thread(target=libc.send, args=(client.fileno(), ctypes.c_void_p(address), size, 0))
        sending.start()
        got = receive(served, 1 << 20, 1 << 16)
        assert libc.mprotect(ctypes.c_void_p(address), 1 << 16, 0) == 0
        got += receive(served, 1 << 20, 1 << 16)
        sending.join()
        libc.mprotect(ctypes.c_void_p(address), 1 << 16, mmap.PROT_READ | mmap.PROT_WRITE)
        records = drained(source)
        counters = source.counters()
        client.close()
        served.close()
    assert got == content
    sent = [each for each in data(records) if each.direction == "send"]
    (stream,) = streams(sent).values()
    assert not stream.holes
    assert stream.untold == counters["unreadable_bytes"] == 1 << 16
    assert stream.data == bytes(1 << 16) + content[1 << 16 :]
