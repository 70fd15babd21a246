"""`make demo`, as a reader of its output sees it."""

import contextlib
import signal
import socket
import subprocess
import sys

import pytest

from tests.rig import driver


@pytest.fixture
def listen():
    """An address that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.fixture
def demo(listen):
    """Starts the demonstration with further options, and ends it if the block does not."""

    @contextlib.contextmanager
    def start(*options):
        command = [sys.executable, "-m", "tests.rig.demo", "--listen", listen, *options]
        with subprocess.Popen(
            command,
            cwd=driver.REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    return start


@pytest.mark.usefixtures("machine_as_before")
def test_it_shows_relists_and_pods_and_leaves_nothing(demo, listen):
    with demo("--seconds", "10") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "PLEG healthy: last relist began" in said
    assert f"curl 'http://{listen}/api/v1/relists?limit=5'" in said
    assert "shop/cart create" in said
    assert "events: ContainerDied shop/checkout" in said
    assert "shop/checkout restart" in said


@pytest.mark.usefixtures("machine_as_before")
def test_ctrl_c_ends_it_and_leaves_nothing(demo):
    with demo() as process:
        assert process.stdout is not None
        while "create" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert said.splitlines()[-1] == "Ended; everything is removed."


@pytest.mark.usefixtures("machine_as_before")
def test_a_taken_address_is_one_clear_line(demo, listen):
    address, port = listen.split(":")
    with socket.create_server((address, int(port))), demo() as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"something else serves at {listen} already" in said
    assert "make demo-replay" in said


def test_a_recorded_node_can_be_shown_instead(demo):
    with demo("--replay", "tests/data/truth.jsonl.gz", "--seconds", "2") as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "default/app1-node1 restart" in said
