"""What the runtime's descendants execute and how they end, and nothing of anybody else; who is killed for memory."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from platform import machine

import pytest

from tests.live.cgroup import Cgroup, cgroup
from tracer.kernel.program_object import ProgramObject
from tracer.kernel.source import KernelSource
from tracer.records import Data, Exec, Exit, OomKill, Record

# A runtime: serves the socket given, and runs each command it is sent, from a thread as Go programs do.
RUNTIME = """
import json, os, socket, subprocess, sys, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
end = listener.accept()[0]
while request := end.recv(65536):
    command, env = json.loads(request)
    worker = threading.Thread(target=subprocess.run, args=(command,), kwargs={"env": {**os.environ, **env}})
    worker.start()
    worker.join()
    end.send(b"done")
"""


class Runtime:
    """A process whose children are a runtime's, because it serves a wanted socket."""

    def __init__(self, path: Path, source: KernelSource) -> None:
        self._source = source
        self._process = subprocess.Popen([sys.executable, "-c", RUNTIME, str(path)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._client = socket.socket(socket.AF_UNIX)
        self._client.connect(str(path))
        self._family = {self.pid}

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, *command: str, env: dict[str, str] | None = None) -> list[Record]:
        """Has a command run to its end; everything told until then.

        A record that another process is just writing holds up those behind it, so this waits for the last of its own.
        """
        self._client.send(json.dumps([command, env or {}]).encode())
        assert self._client.recv(10) == b"done"
        records: list[Record] = []
        while not any(isinstance(each, Data) and each.data == b"done" and each.side == "client" for each in records):
            records += self._source.drain()
        return records

    def run(self, *command: str, env: dict[str, str] | None = None) -> list[Exec | Exit]:
        """What was told of a command and its descendants; other tests' containers may run on the machine meanwhile."""
        found = []
        for each in self.request(*command, env=env):
            if isinstance(each, Exec | Exit) and {each.pid, each.ppid} & self._family:
                self._family.add(each.pid)
                found.append(each)
        return found

    def close(self) -> None:
        self._client.close()
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[KernelSource]:
    with KernelSource([f"{tmp_path}/s.sock"]) as tracing:
        assert all(probe.attached for probe in tracing.probes), tracing.probes
        yield tracing


@pytest.fixture
def runtime(tmp_path: Path, source: KernelSource) -> Iterator[Runtime]:
    running = Runtime(tmp_path / "s.sock", source)
    yield running
    running.close()


def within(seconds: float, what: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_a_command_is_told_with_its_arguments_parent_and_exit_status(runtime):
    executed, ended = runtime.run("/bin/sh", "-c", "exit 7", "", "last one")
    assert isinstance(executed, Exec)
    assert executed.argv == ["/bin/sh", "-c", "exit 7", "", "last one"]
    assert (executed.ppid, executed.comm, executed.env) == (runtime.pid, "sh", {})
    assert isinstance(ended, Exit)
    assert (ended.pid, ended.ppid, ended.comm, ended.code) == (executed.pid, runtime.pid, "sh", 7 << 8)
    assert executed.time < ended.time < time.monotonic_ns()


def test_a_command_tells_when_its_process_was_forked(runtime):
    before = time.monotonic_ns()
    first, second, *_ = runtime.run("/bin/sh", "-c", "sleep 0.05; exec true")
    assert isinstance(first, Exec)
    assert isinstance(second, Exec)
    assert first.forked is not None
    assert before < first.forked < first.time
    assert second.forked is not None
    assert second.forked > first.time, "sleep is a process of its own"


def test_only_the_five_cni_variables_of_an_environment_are_told(runtime):
    cni = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c" * 64,
        "CNI_NETNS": "/var/run/netns/cni-1",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + "p" * 253,
    }
    others = {f"VARIABLE_{n}": "planted-secret" * 10 for n in range(300)}
    executed = runtime.run(
        "/bin/true", env={**others, **cni, "CNI_PATH": "/opt/cni/bin", "CNI_TOKEN": "planted-secret"}
    )[0]
    assert isinstance(executed, Exec)
    assert executed.env == cni


def test_arguments_are_cut_at_four_kib(runtime):
    executed = runtime.run("/bin/true", "a" * 3000, "b" * 3000)[0]
    assert isinstance(executed, Exec)
    assert executed.argv == ["/bin/true", "a" * 3000, "b" * (4096 - 3000 - len("/bin/true") - 2)]


def test_death_by_signal_is_a_wait_status(runtime):
    assert runtime.run("/bin/sh", "-c", "kill -9 $$")[-1].code == signal.SIGKILL


def test_a_process_of_several_threads_ends_once_with_the_status_given(runtime):
    program = "import threading, os, time; threading.Thread(target=lambda: os._exit(3)).start(); time.sleep(60)"
    executed, ended = runtime.run(sys.executable, "-c", program)
    assert (ended.pid, ended.code) == (executed.pid, 3 << 8)


def test_a_process_given_to_init_at_once_is_still_the_runtimes(runtime, source):
    argv = ["/bin/true", f"orphan of {runtime.pid}"]
    runtime.run("/bin/sh", "-c", f"(sleep 0.2; exec {argv[0]} '{argv[1]}') & exit 0")
    told = []

    def orphan_executed() -> bool:
        told.extend(each for each in source.drain() if isinstance(each, Exec) and each.argv == argv)
        return bool(told)

    assert within(5, orphan_executed)
    assert told[0].ppid != runtime.pid


def test_what_others_execute_is_not_told(runtime):
    other = subprocess.Popen(["/bin/true", "not the runtime's"])
    other.wait()
    records = runtime.request("/bin/true")
    assert other.pid not in {each.pid for each in records if isinstance(each, Exec | Exit)}


def test_a_containers_own_program_is_told_but_not_what_it_starts(runtime):
    """Entering another mount namespace is what runc does last before it executes the container's program."""
    records = runtime.run("unshare", "-m", "/bin/sh", "-c", "/bin/true inside; exit 5")
    assert [each.argv[0] for each in records if isinstance(each, Exec)] == ["unshare", "/bin/sh"]
    assert [(each.comm, each.code) for each in records if isinstance(each, Exit)] == [("sh", 5 << 8)]


def test_shims_that_run_already_are_followed(tmp_path):
    shim = tmp_path / "containerd-shim-runc-v2"
    shutil.copy("/bin/dash", shim)
    script = "sleep 600 & echo $!; read go; kill $!; wait; /bin/true later; read end"
    process = subprocess.Popen([shim, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    container = int(process.stdout.readline())
    assert within(5, lambda: Path(f"/proc/{container}/comm").read_text() == "sleep\n")
    with KernelSource([f"{tmp_path}/s.sock"]) as source:
        process.stdin.write("go\n")
        process.stdin.flush()
        told = []

        def later_ended() -> bool:
            told.extend(each for each in source.drain() if process.pid in (each.pid, each.ppid))
            return len(told) >= 3

        assert within(5, later_ended)
        process.communicate("end\n")
    first, second, third = told
    assert (first.pid, first.code) == (container, signal.SIGTERM)
    assert second.argv == ["/bin/true", "later"]
    assert (third.pid, third.code) == (second.pid, 0)
    assert os.WIFEXITED(third.code)


# for want of memory

LIMIT = 32 << 20
HOG = """
import os, sys
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
os.setuid(4321)
kept = []
while True:
    kept.append(os.urandom(1 << 20))
"""
SLICE = f"criscope-test-{os.getpid()}.slice"
SCOPE = f"cri-containerd-{'0123456789abcdef' * 4}.scope"


@pytest.fixture
def limited() -> Iterator[Cgroup]:
    """A cgroup named as containerd names a container's, in which no more than `LIMIT` bytes can be had."""
    with cgroup("memory", SLICE, SCOPE) as made:
        made.set("memory.max", str(LIMIT))
        yield made


def exhaust(limited: Cgroup) -> int:
    """The number of a process, nobody's descendant, that wants more memory than it may and was killed."""
    hog = subprocess.Popen([sys.executable, "-c", HOG, limited.procs])
    assert hog.wait() == -signal.SIGKILL
    return hog.pid


def test_a_process_killed_for_want_of_memory_is_told_with_its_cgroup_whoever_it_is(source, limited):
    before = time.monotonic_ns()
    pid = exhaust(limited)
    (killed,) = [each for each in source.drain() if isinstance(each, OomKill) and each.pid == pid]
    assert before < killed.time < time.monotonic_ns()
    assert (killed.comm, killed.uid) == (Path(sys.executable).name, 4321)
    assert killed.cgroup == f"/{SLICE}/{SCOPE}" == limited.path
    assert killed.anon_bytes is not None
    assert LIMIT / 2 < killed.anon_bytes < 2 * LIMIT, "some was had before the limit"
    assert killed.file_bytes is not None
    assert killed.file_bytes > 0, "the interpreter's own program"
    assert killed.shmem_bytes == 0


def test_on_a_kernel_that_tells_no_more_than_a_number_the_rest_is_unknown(tmp_path, monkeypatch, limited):
    """The real program, but for the member by which it knows such a kernel; its number is no number here."""
    shutil.copytree(Path(__file__).parents[2] / "bpf", tmp_path / "bpf")
    headers, program = tmp_path / "bpf" / "kernel_types.h", tmp_path / "bpf" / "process.bpf.c"
    headers.write_text(headers.read_text().replace("unsigned int uid;", "unsigned int no_such_member;"))
    program.write_text(program.read_text().replace("mark_victim, uid)", "mark_victim, no_such_member)"))
    subprocess.run(["make", "-s", "-C", tmp_path / "bpf", f"OBJECTS={tmp_path}", "PROGRAMS=process"], check=True)
    shipped = ProgramObject.shipped

    def altered(name: str) -> ProgramObject:
        if name == "process":
            return ProgramObject(name, (tmp_path / f"process.{machine()}.bpf.o").read_bytes())
        return shipped(name)

    monkeypatch.setattr(ProgramObject, "shipped", altered)
    with KernelSource([f"{tmp_path}/s.sock"]) as tracing:
        assert all(probe.attached for probe in tracing.probes), tracing.probes
        exhaust(limited)
        (killed,) = [each for each in tracing.drain() if isinstance(each, OomKill)]
    assert killed == OomKill(killed.time, killed.pid, "", None, None, None, None, None)
