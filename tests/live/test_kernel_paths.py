"""A wanted socket is found by where its file lies, however the server spelled the path it bound."""

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.test_kernel_processes import Runtime
from tests.live.traffic import Server, data, opened
from tracer.kernel import source as kernel_source
from tracer.kernel.source import KernelSource
from tracer.records import Exec

REPOSITORY = Path(__file__).parents[2]


def traced(*patterns: str | Path) -> KernelSource:
    return KernelSource([str(each) for each in patterns], processes=False)


def exchange(server: Server, address: str | Path) -> None:
    client, served = server.connect(str(address))
    with client, served:
        client.send(b"hello")
        served.recv(5)


def told(source: KernelSource) -> list[tuple[str, str, bytes]]:
    return [(each.side, each.path, each.data) for each in data(source.drain())]


def both_ends(path: str | Path) -> list[tuple[str, str, bytes]]:
    return [("client", str(path), b"hello"), ("server", str(path), b"hello")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory `run/rt` that is the working directory, with a link to it."""
    place = tmp_path / "run" / "rt"
    place.mkdir(parents=True)
    (tmp_path / "other").symlink_to(place)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drain looks where wanted sockets lie, instead of one every two seconds."""
    monkeypatch.setattr(kernel_source, "LOOK_NS", 0)


SPELLINGS: dict[str, Callable[[Path], str]] = {
    "relative": lambda _: "rt.sock",
    "relative with ./": lambda _: "./rt.sock",
    "relative with ..": lambda _: "../rt/rt.sock",
    "doubled slash at the start": lambda place: f"/{place}/rt.sock",
    "doubled slash within": lambda place: f"{place.parent}//rt/rt.sock",
    "a dot within": lambda place: f"{place.parent}/./rt/rt.sock",
    "another link": lambda place: f"{place.parents[1]}/other/rt.sock",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_server_is_found_however_it_spelled_its_path_and_shown_as_wanted(place, spelling):
    with traced(place / "rt.sock") as source, Server(SPELLINGS[spelling](place)) as server:
        exchange(server, place / "rt.sock")
        records = source.drain()
    assert [(each.side, each.path, each.data) for each in data(records)] == both_ends(place / "rt.sock")
    assert {each.path for each in opened(records)} == {str(place / "rt.sock")}


def test_a_path_that_is_wanted_as_it_was_bound_is_shown_so(place):
    link = place.parents[1] / "other" / "rt.sock"
    with traced(link) as source, Server(place / "rt.sock") as server:
        exchange(server, link)
        assert told(source) == both_ends(place / "rt.sock")


def test_the_wanted_path_may_be_a_link_to_the_socket_itself(place):
    (place / "wanted.sock").symlink_to("real.sock")
    with traced(place / "wanted.sock") as source, Server("real.sock") as server:
        exchange(server, place / "wanted.sock")
        assert told(source) == both_ends(place / "wanted.sock")


def test_the_same_name_in_another_directory_is_not_wanted(place, monkeypatch):
    (place / "deeper").mkdir()
    with traced(place / "rt.sock") as source:
        for directory in (place.parent, place / "deeper"):
            monkeypatch.chdir(directory)
            with Server("rt.sock") as server:
                exchange(server, directory / "rt.sock")
        assert source.drain() == []


def test_a_whole_name_does_not_want_its_continuation_nor_what_lies_below_it(place):
    (place / "rt").mkdir()
    with traced(place / "rt") as source:
        for name in ("rt1", "rt/a.sock"):
            with Server(name) as server:
                exchange(server, place / name)
        assert source.drain() == []


def test_a_beginning_finds_sockets_of_the_directory_and_of_two_below_but_not_deeper(place):
    """Deeper in the kubelet's directory lie the volumes of pods, and what pods tell each other is theirs."""
    (place / "plugins" / "driver" / "deep").mkdir(parents=True)
    names = ("a.sock", "plugins/b.sock", "plugins/driver/csi.sock", "plugins/driver/deep/d.sock")
    with traced(place / "*") as source:
        for name in names:
            with Server(name) as server:
                exchange(server, place / name)
        assert told(source) == [each for name in names[:3] for each in both_ends(place / name)]


def test_a_beginning_within_a_name_finds_sockets_and_directories_of_such_names(place):
    (place / "plug-ins").mkdir()
    (place / "play").mkdir()
    with traced(place / "plu*") as source:
        for name in ("plug.sock", "plug-ins/a.sock", "play/a.sock"):
            with Server(name) as server:
                exchange(server, place / name)
        assert told(source) == [*both_ends(place / "plug.sock"), *both_ends(place / "plug-ins" / "a.sock")]


def test_a_socket_made_anew_is_found_at_once(place):
    with traced(place / "rt.sock") as source:
        for _ in range(3):
            with Server("rt.sock") as server:
                exchange(server, place / "rt.sock")
            (place / "rt.sock").unlink()
        assert told(source) == 3 * both_ends(place / "rt.sock")


def test_a_socket_renamed_into_place_is_found(place):
    with traced(place / "rt.sock") as source, Server("rt.sock.new") as server:
        (place / "rt.sock.new").rename(place / "rt.sock")
        exchange(server, place / "rt.sock")
        assert told(source) == both_ends(place / "rt.sock")


def test_the_file_may_be_gone_while_its_connections_go_on(place):
    with traced(place / "rt.sock") as source, Server("rt.sock") as server:
        client, served = server.connect()
        (place / "rt.sock").unlink()
        with client, served:
            client.send(b"hello")
            served.recv(5)
        assert told(source) == both_ends(place / "rt.sock")


def test_a_connection_turned_away_is_looked_at_again_when_its_directory_becomes_known(place, monkeypatch):
    later = place / "later"
    with traced(later / "rt.sock") as source:
        later.mkdir()
        monkeypatch.chdir(later)
        with Server("rt.sock") as server:
            client, served = server.connect()
            with client, served:
                client.send(b"before")
                served.recv(6)
                assert source.drain() == []
                monkeypatch.setattr(kernel_source, "LOOK_NS", 0)
                source._next_look = 0  # as if the two seconds were over
                assert source.drain() == []
                client.send(b"hello")
                served.recv(5)
                assert told(source) == both_ends(later / "rt.sock")


@pytest.mark.usefixtures("looking")
def test_a_directory_made_anew_is_found_and_the_former_one_forgotten(place, monkeypatch):
    directory, former = place / "d", place / "former"
    directory.mkdir()
    with traced(directory / "rt.sock") as source:
        directory.rename(former)
        directory.mkdir()
        source.drain()
        for each in (former, directory):
            monkeypatch.chdir(each)
            with Server("rt.sock") as server:
                exchange(server, each / "rt.sock")
        assert told(source) == both_ends(directory / "rt.sock")


@pytest.mark.usefixtures("looking")
def test_a_wanted_connection_goes_on_when_its_directory_is_no_longer_known(place, monkeypatch):
    directory = place / "d"
    directory.mkdir()
    monkeypatch.chdir(directory)
    with traced(directory / "rt.sock") as source, Server("rt.sock") as server:
        client, served = server.connect()
        with client, served:
            client.send(b"hello")
            served.recv(5)
            assert told(source) == both_ends(directory / "rt.sock")
            directory.rename(place / "gone")
            assert source.drain() == []
            client.send(b"hello")
            served.recv(5)
            assert told(source) == both_ends(directory / "rt.sock")


def test_a_plugin_that_bound_its_path_inside_a_container_is_shown_as_the_kubelet_knows_it(place):
    """CSI drivers bind /csi/csi.sock, each in its own mount namespace, with the plugin's directory mounted there."""
    program = """
        import socket, sys
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen()
        print("ready", flush=True)
        served = listener.accept()[0]
        served.recv(5)
        print("received", flush=True)
        sys.stdin.read()
    """
    paths = [place / "plugins" / driver / "csi.sock" for driver in ("one", "two")]
    inside = place.parents[1] / "csi"
    inside.mkdir()
    with traced(place / "*") as source:
        for path in paths:
            path.parent.mkdir(parents=True)
            script = f'mount --bind {path.parent} {inside} && exec "$@"'
            python = [sys.executable, "-c", textwrap.dedent(program), f"{inside}/csi.sock"]
            command = ["unshare", "-m", "sh", "-c", script, "-", *python]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as plugin:
                assert plugin.stdout is not None
                assert plugin.stdout.readline() == "ready\n"
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(path))
                    client.send(b"hello")
                    assert plugin.stdout.readline() == "received\n"
                    plugin.communicate()
        assert told(source) == [*both_ends(paths[0]), *both_ends(paths[1])]


def test_a_runtime_found_by_its_place_is_followed_as_one(place):
    with KernelSource([f"{place}/rt.sock"]) as source:
        runtime = Runtime(Path("rt.sock"), source)
        executed = runtime.run("/bin/true", "of the runtime")[0]
        runtime.close()
    assert isinstance(executed, Exec)
    assert (executed.ppid, executed.argv) == (runtime.pid, ["/bin/true", "of the runtime"])


def test_without_any_capability_new_directories_are_still_told_to_the_kernel(tmp_path):
    """A directory that others may not enter is named, once, and what lies there is found by the text of its path."""
    closed, directory = tmp_path / "closed" / "in", tmp_path / "later"
    closed.mkdir(parents=True)
    shutil.chown(closed.parent, 65534)
    closed.parent.chmod(0o700)
    program = """
        import json, logging, os, socket, sys
        from pathlib import Path
        from tests.live.traffic import Server, data
        from tracer.kernel import source as kernel_source
        from tracer.kernel.privileges import drop_privileges
        closed, directory = map(Path, sys.argv[1:])
        kernel_source.LOOK_NS = 0
        logging.basicConfig(format="%(message)s")
        listener = Server(closed / "rt.sock")
        client = socket.socket(socket.AF_UNIX)
        client.connect(listener.address)
        source = kernel_source.KernelSource([f"{directory}/rt.sock", f"{closed}/rt.sock"], processes=False)
        first = dict(source.hidden)
        drop_privileges()
        directory.mkdir()
        source.drain()
        source.drain()
        os.chdir(directory)
        server = Server("rt.sock")
        one, other = server.connect(f"{directory}/rt.sock")
        one.send(b"hello")
        client.send(b"hello")
        print(json.dumps([first, source.hidden, [each.path for each in data(source.drain())]]))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(closed), str(directory)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, hidden, paths = json.loads(done.stdout)
    assert first == {}
    assert hidden == {str(closed): "Permission denied"}
    assert paths == [f"{directory}/rt.sock", f"{closed}/rt.sock"]
    assert done.stderr == (f"{closed}: Permission denied: a server there that bound another spelling is not traced\n")


@pytest.mark.skipif("overlay" not in Path("/proc/filesystems").read_text(), reason="this kernel has no overlayfs")
def test_directories_of_an_overlay_are_known_by_their_numbers_too(tmp_path):
    """A container's root directory is an overlay, whose stat may show other numbers than the kernel holds."""
    program = """
        import os, sys
        from tests.live.traffic import Server, data
        from tests.live.test_kernel_paths import exchange, traced
        os.makedirs("merged/a/b")
        here = os.path.realpath("merged/a/b")
        os.chdir(here)
        with traced(f"{here}/s.sock") as source, Server("s.sock") as server:
            exchange(server, f"{here}/s.sock")
            print({each.path for each in data(source.drain())} == {f"{here}/s.sock"})
    """
    (tmp_path / "space").mkdir()
    script = """
        mount -t tmpfs space "$1" && cd "$1" && mkdir lower upper work merged &&
        mount -t overlay over -o lowerdir=lower,upperdir=upper,workdir=work merged && exec "$2" -c "$3"
    """
    arguments = [str(tmp_path / "space"), sys.executable, textwrap.dedent(program)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "-", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
