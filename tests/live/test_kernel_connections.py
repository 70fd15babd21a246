"""Which sockets are wanted, how connections are told apart, and how they end."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.traffic import Server, closed, data, opened
from tracer.kernel.source import KernelSource
from tracer.records import Closed, Data


def traced(patterns: list[str]) -> KernelSource:
    return KernelSource(patterns, processes=False)  # other tests' containers may run meanwhile


def paths(source: KernelSource) -> set[str]:
    return {each.path for each in data(source.drain())}


def exchange(server: Server, address: str | bytes | None = None) -> None:
    client, served = server.connect(address)
    with client, served:
        client.send(b"hello")
        served.recv(5)


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short name: pytest's own leave no room for exact lengths."""
    directory = Path(tempfile.mkdtemp(prefix="k"))
    yield directory
    shutil.rmtree(directory)


def test_a_path_not_wanted_yields_nothing_even_with_the_same_last_name(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    wanted, other = tmp_path / "a" / "containerd.sock", tmp_path / "b" / "containerd.sock"
    with traced([str(wanted)]) as source, Server(wanted) as one, Server(other) as two:
        exchange(two)
        assert source.drain() == []
        exchange(one)
        assert paths(source) == {str(wanted)}


def test_pairs_without_a_path_datagrams_and_tcp_yield_nothing(short):
    with traced([f"{short}/*"]) as source:
        for one, other in (socket.socketpair(), socket.socketpair(type=socket.SOCK_SEQPACKET)):
            with one, other:
                one.send(b"x")
                other.recv(1)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            bound.bind(f"{short}/dgram")
            sender.sendto(b"x", f"{short}/dgram")
            bound.recv(1)
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as client,
            listener.accept()[0] as served,
        ):
            client.send(b"x")
            served.recv(1)
        assert source.drain() == []


def test_a_whole_path_does_not_want_its_continuation_and_a_beginning_does(tmp_path):
    names = ("s", "s1", "s.ttrpc", "t")
    servers = [Server(tmp_path / name) for name in names]
    with traced([f"{tmp_path}/s"]) as whole, traced([f"{tmp_path}/s*"]) as beginning:
        for server in servers:
            exchange(server)
        assert paths(whole) == {f"{tmp_path}/s"}
        assert paths(beginning) == {f"{tmp_path}/{name}" for name in names[:3]}
    for server in servers:
        server.listener.close()


@pytest.mark.parametrize("length", [106, 107, 108])
def test_long_paths_are_told_whole(short, length):
    """108 bytes fill sun_path, so that no NUL follows."""
    path = f"{short}/" + "n" * (length - len(str(short)) - 1)
    with traced([path]) as source, Server(path) as server:
        exchange(server)
        assert paths(source) == {path}


@pytest.mark.parametrize(
    ("address", "pattern", "shown"),
    [
        (b"\0criscope-test", "@criscope-test", "@criscope-test"),
        (b"\0criscope-test/1", "@criscope-test/*", "@criscope-test/1"),
        (b"\0criscope\0test", "@criscope*", "@criscope\\0test"),
        (b"\0" + b"c" * 107, "@" + "c" * 107, "@" + "c" * 107),
    ],
)
def test_abstract_names_are_wanted_and_told_with_their_bytes(address, pattern, shown):
    with traced([pattern]) as source, Server(address) as server:
        exchange(server)
        assert paths(source) == {shown}


def test_an_abstract_name_is_not_the_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with traced(["@name"]) as source, Server("@name") as server:
        exchange(server)
        assert source.drain() == []


def test_the_path_the_server_bound_counts_however_the_client_came(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Server(tmp_path / "real" / "s.sock") as server:
        for pattern in ("link", "real"):
            with traced([f"{tmp_path}/{pattern}/s.sock"]) as source:
                exchange(server, f"{tmp_path}/link/s.sock")
                assert paths(source) == {f"{tmp_path}/real/s.sock"}


def test_a_client_with_an_address_of_its_own_is_still_the_client(tmp_path):
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        with socket.socket(socket.AF_UNIX) as client:
            client.bind(f"{tmp_path}/client.sock")
            client.connect(server.address)
            client.send(b"hello")
            with server.listener.accept()[0] as served:
                served.recv(5)
        assert {(each.side, each.direction, each.path) for each in data(source.drain())} == {
            ("client", "send", f"{tmp_path}/s.sock"),
            ("server", "recv", f"{tmp_path}/s.sock"),
        }


def test_each_end_tells_its_own_process(tmp_path):
    program = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b'hi'); s.recv(1)"
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        client = subprocess.Popen([sys.executable, "-c", program, server.address])
        with server.listener.accept()[0] as served:
            served.recv(2)
            served.send(b"x")
            client.wait()
            assert served.recv(1) == b""
        records = source.drain()
    (connection,) = {each.connection for each in opened(records)}
    assert {(each.side, each.pid) for each in opened(records)} == {("client", client.pid), ("server", os.getpid())}
    assert {(each.side, each.pid, each.connection) for each in data(records)} == {
        ("client", client.pid, connection),
        ("server", os.getpid(), connection),
    }


def test_ten_thousand_short_connections_are_ten_thousand(tmp_path):
    """The kernel gives their memory to the next ones at once; ids and offsets must not show that."""
    records = []
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        for number in range(10_000):
            client, served = server.connect()
            text = b"%d" % number
            client.send(text)
            served.recv(8)
            (client, served)[number % 2].close()
            (served, client)[number % 2].recv(1)
            (served, client)[number % 2].close()
            if number % 100 == 99:
                records += source.drain()
        records += source.drain()
        counters = source.counters()
    assert len(records) == 10_000 * 5, "opened, opened, sent, received, closed"
    assert counters["lost_records"] == counters["refused"] == 0
    seen = {}
    for each in data(records):
        assert each.offset == 0
        assert seen.setdefault(each.connection, each.data) == each.data
    assert sorted(map(int, seen.values())) == list(range(10_000))
    assert len({(each.connection, each.side) for each in opened(records)}) == 20_000
    assert {each.connection for each in closed(records)} == set(seen)


def test_the_end_of_a_connection_is_told_once_to_each_who_sees_it(tmp_path):
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        client, served = server.connect()
        client.send(b"x")
        served.recv(1)
        source.drain()
        client.shutdown(socket.SHUT_WR)
        assert served.recv(1) == served.recv(1) == b""
        served.send(b"still")
        client.recv(5)
        half, sent, received = source.drain()
        assert isinstance(half, Closed)
        assert (half.side, half.error, half.pid) == ("server", 0, os.getpid())
        assert isinstance(sent, Data)
        assert isinstance(received, Data), "the other direction goes on"
        served.close()
        assert client.recv(1) == b""
        client.close()
        assert [(each.side, each.error) for each in source.drain()] == [("client", 0)]


def test_a_reset_and_a_broken_pipe_are_told_with_their_errno(tmp_path):
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        client, served = server.connect()
        client.send(b"unread")
        served.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        other, served = server.connect()
        served.close()
        with pytest.raises(BrokenPipeError):
            other.send(b"x")
        client.close()
        other.close()
        assert [(each.side, each.error) for each in closed(source.drain())] == [
            ("client", errno.ECONNRESET),
            ("client", errno.EPIPE),
        ]


def test_two_sources_at_once_do_not_disturb_each_other(tmp_path):
    pattern = [f"{tmp_path}/s.sock"]
    with traced(pattern) as one, Server(tmp_path / "s.sock") as server:
        exchange(server)
        with traced(pattern) as two:
            exchange(server)
            told = data(one.drain()), data(two.drain())
    assert [len({each.connection for each in records}) for records in told] == [2, 1]
    assert not {each.connection for each in told[0]} & {each.connection for each in told[1]}, "ids differ between runs"


def test_both_ends_that_begin_at_the_same_moment_are_admitted(tmp_path):
    """Each makes what is kept of the server's end; the kernel refuses the one that comes second."""
    connections = 500
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        for _ in range(connections):
            client, served = server.connect()
            with client, served:
                begin = threading.Barrier(2)
                answering = threading.Thread(target=lambda end=served, at=begin: (at.wait(), end.send(b"a")))
                answering.start()
                begin.wait()
                client.send(b"q")
                answering.join()
                client.recv(1)
                served.recv(1)
        records = source.drain()
        counters = source.counters()
    assert counters["refused"] == counters["lost_records"] == 0
    assert Counter((each.side, each.direction) for each in data(records)) == {
        (side, direction): connections for side in ("client", "server") for direction in ("send", "recv")
    }


def test_a_descriptor_used_again_is_another_connection(tmp_path):
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        for text in (b"one", b"another"):
            client, served = server.connect()
            with client, served:
                client.send(text)
                served.recv(10)
        told = [each for each in data(source.drain()) if each.direction == "send"]
    first, second = told
    assert first.fd == second.fd
    assert first.connection != second.connection
    assert [(each.offset, each.data) for each in told] == [(0, b"one"), (0, b"another")]


def test_a_connection_goes_with_its_descriptor_when_that_is_duplicated_or_inherited(tmp_path):
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:
        client, served = server.connect()
        with client, served, client.dup() as other:
            client.send(b"a")
            other.send(b"b")
            child = subprocess.Popen(
                [sys.executable, "-c", f"import os; os.write({client.fileno()}, b'c')"], pass_fds=[client.fileno()]
            )
            child.wait()
            assert served.recv(3) == b"abc"
            sent = [each for each in data(source.drain()) if each.direction == "send"]
            numbers = [client.fileno(), other.fileno(), client.fileno()]
    assert len({each.connection for each in sent}) == 1
    assert [(each.offset, each.fd, each.pid) for each in sent] == [
        (offset, number, pid)
        for offset, (number, pid) in enumerate(zip(numbers, [os.getpid(), os.getpid(), child.pid], strict=True))
    ]


LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def started_as(pid: int, command: list[str]) -> subprocess.Popen[bytes] | None:
    """The command under a process id that is free; None when another process was faster."""
    LAST_PID.write_text(str(pid - 1))
    process = subprocess.Popen(command)
    if process.pid == pid:
        return process
    process.kill()
    process.wait()
    return None


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="process ids cannot be chosen (CONFIG_CHECKPOINT_RESTORE)")
def test_a_process_id_used_again_has_the_name_of_its_new_program_and_new_connections(tmp_path):
    program = (
        "import socket, sys; open('/proc/self/comm', 'w').write(sys.argv[2]); s = socket.socket(socket.AF_UNIX); "
        "s.connect(sys.argv[1]); s.send(sys.argv[2].encode()); s.recv(1)"
    )
    records = []
    with traced([f"{tmp_path}/s.sock"]) as source, Server(tmp_path / "s.sock") as server:

        def served(client: subprocess.Popen[bytes]) -> None:
            with server.listener.accept()[0] as end:
                end.recv(100)
                end.send(b"x")
                client.wait()
            records.extend(source.drain())

        command = [sys.executable, "-c", program, server.address]
        first = subprocess.Popen([*command, "first"])
        served(first)
        second = next(filter(None, (started_as(first.pid, [*command, "second"]) for _ in range(50))))
        served(second)
    clients = [each for each in opened(records) if each.side == "client"]
    assert [(each.pid, each.comm) for each in clients] == [(first.pid, "first"), (first.pid, "second")]
    assert len({each.connection for each in clients}) == 2
    assert [(each.comm, each.data) for each in data(records) if (each.side, each.direction) == ("client", "send")] == [
        ("first", b"first"),
        ("second", b"second"),
    ]


def test_var_run_and_run_are_one(tmp_path):
    """Runtimes bind the one, kubelets are told the other; what is shown is what was bound."""
    directory = Path(tempfile.mkdtemp(prefix="criscope-", dir="/run"))
    try:
        for wanted, bound in (("", "/var"), ("/var", "")):
            path = f"{bound}{directory}/s.sock"
            with traced([f"{wanted}{directory}/s.sock"]) as source, Server(path) as server:
                exchange(server, f"{wanted}{directory}/s.sock")
                assert paths(source) == {path}
            Path(path).unlink()
    finally:
        shutil.rmtree(directory)
