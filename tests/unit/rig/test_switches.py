"""The rig's switches act as they say, and always undo themselves."""

import contextlib
import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.rig import cni, footprint
from tests.rig.freeze import frozen

WANTED = {"CNI_COMMAND": "ADD", "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=late-1;K8S_POD_UID=u"}


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A directory of plugins whose bridge repeats its stdin."""
    machine = tmp_path / "machine"
    machine.mkdir()
    for name in ("bridge", "host-local", "loopback"):
        (machine / name).write_text("#!/bin/sh\nexec cat\n")
        (machine / name).chmod(0o755)
    monkeypatch.setattr(cni, "PLUGINS", machine)
    made = cni.Plugins(tmp_path / "cni-bin")
    made.install()
    return made


def run(plugins, env=WANTED):
    """(exit code, what it said, seconds) of the bridge."""
    begun = time.monotonic()
    command = [plugins.directory / "bridge"]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", **env}, input="config", capture_output=True, text=True, timeout=20
    )
    return done.returncode, done.stdout, time.monotonic() - begun


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def asleep(pid):
    """Whether the process waits for a `sleep` of its own."""
    return any(argv[0] == "sleep" for child, argv in footprint.processes() if footprint.parent(child) == pid)


def test_a_slow_plugin_does_its_work_later_for_the_pods_and_the_command_meant(plugins):
    with plugins.slow(0.4, pods="late-*"):
        code, said, took = run(plugins)
        assert (code, said) == (0, "config")
        assert took >= 0.4
        for other in ({"CNI_COMMAND": "DEL"}, {"CNI_ARGS": "K8S_POD_NAME=early;X=late-1"}):
            assert run(plugins, WANTED | other)[2] < 0.4
    assert run(plugins)[2] < 0.4


def test_who_sleeps_when_the_block_ends_is_woken_and_works(plugins):
    with contextlib.ExitStack() as slow:
        slow.enter_context(plugins.slow(60))
        with subprocess.Popen(
            [plugins.directory / "bridge"],
            env={"PATH": "/usr/bin:/bin", **WANTED},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            while not asleep(process.pid):
                assert process.poll() is None
                time.sleep(0.01)
            assert Path(f"/proc/{process.pid}/comm").read_text() == "bridge\n", "it is named as the plugin is"
            slow.close()
            assert process.communicate("config", timeout=10)[0] == "config"


def test_a_failing_plugin_says_why_as_cni_wants_it(plugins):
    with plugins.failing('it\'s "full"', code=101):
        code, said, _ = run(plugins)
    assert code == 1
    assert json.loads(said) == {"cniVersion": "0.4.0", "code": 101, "msg": 'it\'s "full"'}
    assert run(plugins)[:2] == (0, "config")


def test_a_plugin_is_restored_when_the_block_fails(plugins):
    with pytest.raises(ZeroDivisionError), plugins.failing():
        raise ZeroDivisionError
    assert run(plugins)[:2] == (0, "config")
    assert (plugins.directory / "bridge").is_symlink()


def test_a_process_stands_within_the_block_and_goes_on_after_it_even_when_the_block_fails():
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with contextlib.suppress(ZeroDivisionError), frozen(process.pid):
                assert state(process.pid) == "T"
                raise ZeroDivisionError
            while state(process.pid) == "T":  # SIGCONT was sent; it acts at once or nearly so
                time.sleep(0.001)
        finally:
            process.kill()


def test_a_process_that_is_killed_while_it_stands_is_no_mistake():
    with subprocess.Popen(["sleep", "60"]) as process, frozen(process.pid):
        process.kill()
        process.wait()
