"""The command on a real node, and where it cannot work: one clear line, exit code 2, nothing lost."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
import zipfile
from pathlib import Path

import grpc
from cri_api.v1 import api_pb2, api_pb2_grpc

from tests.live.tracer import COMMAND, traced
from tests.rig import driver
from tests.rig.driver import REPOSITORY


def failing(*arguments, **options):
    """Standard error of a command that must end with 2."""
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 2, (done.stdout, done.stderr)
    return done.stderr.strip()


class Runtime(api_pb2_grpc.RuntimeServiceServicer):
    """A runtime that answers what it is told to."""

    def __init__(self, path: Path) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.hold = threading.Event()
        self.server = grpc.server(ThreadPoolExecutor(4))
        api_pb2_grpc.add_RuntimeServiceServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{path}")
        self.server.start()

    def Version(self, request, context):
        return api_pb2.VersionResponse(version="0.1.0", runtime_name="scripted", runtime_api_version="v1")

    def Status(self, request, context):
        self.hold.wait(30)
        return api_pb2.StatusResponse()

    def ListPodSandbox(self, request, context):
        return api_pb2.ListPodSandboxResponse()

    def ListContainers(self, request, context):
        return api_pb2.ListContainersResponse()

    def stop(self) -> None:
        self.hold.set()
        self.server.stop(0).wait()


def test_doctor_finds_this_node_fit(node):
    done = subprocess.run(
        [COMMAND, "doctor", "--json", "--socket", node.socket], capture_output=True, text=True, check=True
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    for name in ("root", "BTF", "libbpf", "program socket_send", "program socket_receive", "runtime socket"):
        assert checks[name]["ok"], checks[name]


def test_it_starts_before_the_runtime_says_so_and_traces_it_then(tmp_path):
    path = tmp_path / "late.sock"
    with traced(path, tmp_path) as tracer:
        assert "no runtime socket exists yet" in tracer.log.read_text()
        assert str(path) in tracer.log.read_text()
        runtime = Runtime(path)
        try:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                api_pb2_grpc.RuntimeServiceStub(channel).Version(api_pb2.VersionRequest())
            tracer.settle()
            (call,) = tracer.everything("calls", "&method=Version")
            assert (call["status"], call["runtime"]) == ("OK", str(path))
        finally:
            runtime.stop()


def test_a_call_that_hangs_is_shown_while_it_hangs(tmp_path):
    path = tmp_path / "hung.sock"
    with traced(path, tmp_path, "--no-ask") as tracer:
        runtime = Runtime(path)
        try:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                stub = api_pb2_grpc.RuntimeServiceStub(channel)
                pending = stub.Status.future(api_pb2.StatusRequest(), timeout=60)
                time.sleep(2.5)
                (call,) = tracer.everything("calls", "&status=open&min_duration=1")
                assert (call["method"], call["duration_seconds"], call["ended_by"]) == ("Status", None, None)
                assert call["request_wait_seconds"] is not None
                assert call["stage"] == "service"
                assert call["service_seconds"] > 1, "as far as it got"
                assert 'criscope_cri_oldest_call_age_seconds{method="Status"}' in tracer.get("/metrics")
                runtime.hold.set()
                pending.result()
            tracer.settle()
            (call,) = tracer.everything("calls", "&method=Status")
            assert (call["status"], call["ended_by"]) == ("OK", "server")
            assert call["service_seconds"] > 2
        finally:
            runtime.stop()


def test_a_killed_tracer_keeps_what_it_wrote_and_says_what_it_does_not_know(tmp_path):
    path = tmp_path / "kill.sock"
    runtime = Runtime(path)
    try:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = api_pb2_grpc.RuntimeServiceStub(channel)
            with traced(path, tmp_path, "--no-ask") as tracer:
                stub.Version(api_pb2.VersionRequest())
                pending = stub.Status.future(api_pb2.StatusRequest(), timeout=60)
                tracer.settle()
                assert not pending.done()
                tracer.process.send_signal(signal.SIGKILL)
                tracer.process.wait()
            with traced(path, tmp_path, "--no-ask") as tracer:
                tracer.settle()
                calls = {call["method"]: call for call in tracer.everything("calls")}
                assert calls["Version"]["status"] == "OK"
                assert (calls["Status"]["status"], calls["Status"]["ended_by"]) == (None, "unknown")
    finally:
        runtime.stop()


def test_a_second_tracer_on_the_same_port_says_what_to_do(tmp_path):
    with traced(tmp_path / "none.sock", tmp_path) as tracer:
        address = tracer.url.removeprefix("http://")
        error = failing("run", "--listen", address, "--store", tmp_path / "other.sqlite")
        assert address in error
        assert "Choose another port" in error


def test_a_store_of_another_program_is_left_alone(tmp_path):
    store = tmp_path / "notes.txt"
    store.write_text("precious\n")
    error = failing("run", "--listen", "127.0.0.1:0", "--store", store)
    assert str(store) in error
    assert store.read_text() == "precious\n"


def test_a_socket_path_that_cannot_be_one_is_one_clear_line(tmp_path):
    error = failing("run", "--listen", "127.0.0.1:0", "--store", tmp_path / "s", "--socket", "relative.sock")
    assert "relative.sock" in error
    assert len(error.splitlines()) == 1


def test_a_kernel_without_btf_is_named_as_such(tmp_path):
    """In a mount namespace of its own, where the kernel shows no BTF."""
    hidden = tmp_path / "empty"
    hidden.mkdir()
    script = f'mount --bind {hidden} /sys/kernel/btf && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", COMMAND, "run", "--listen", "127.0.0.1:0"]
    done = subprocess.run([*command, "--store", tmp_path / "s"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "/sys/kernel/btf/vmlinux is missing" in done.stderr


def test_a_recording_does_not_overwrite_a_file_unless_told_to(tmp_path):
    taken = tmp_path / "capture.gz"
    taken.write_text("precious\n")
    assert str(taken) in failing("record", "--output", taken, "--seconds", "0.2")
    assert taken.read_text() == "precious\n"
    command = [COMMAND, "record", "--output", taken, "--seconds", "0.2", "--force", "--socket", tmp_path / "x.sock"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert taken.read_bytes().startswith(b"\x1f\x8b")


def test_another_client_is_told_from_the_kubelet(node, tmp_path):
    with traced(node.socket, tmp_path, "--no-ask") as tracer:
        driver.run(node.socket, tmp_path / "oracle.jsonl", "other", "--seconds", "2")
        tracer.settle()
        calls = tracer.everything("calls")
    assert len(calls) > 3
    assert {(call["client"]["role"], call["activity"]["kind"]) for call in calls} == {("other", "other_client")}


def test_the_wheel_brings_its_objects_and_runs_without_a_compiler(tmp_path):
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(REPOSITORY)]
    python = str(Path(COMMAND).with_name("python"))
    subprocess.run([python, *build], check=True, capture_output=True, timeout=110)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(unpacked)
    objects = {f"tracer/kernel/objects/{name}.{machine}.bpf.o"
               for name in ("socket", "process") for machine in ("x86_64", "aarch64")}  # fmt: skip
    assert objects <= set(names)
    environment = {**os.environ, "PYTHONPATH": str(unpacked), "PATH": "/nowhere"}
    done = subprocess.run(
        [python, "-c", "import tracer; print(tracer.__file__); from tracer.cli import main; main()", "doctor"],
        capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert str(unpacked) in done.stdout
    assert "program socket_send      attached" in done.stdout.replace("ok  ", "")


def test_no_capability_is_left_after_the_start(tmp_path):
    with traced(tmp_path / "none.sock", tmp_path) as tracer:
        status = Path(f"/proc/{tracer.process.pid}/status").read_text()
        held = dict(line.split(":\t") for line in status.splitlines() if line.startswith(("Cap", "NoNewPrivs")))
    assert {name: int(value, 16) for name, value in held.items()} == {
        "CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0, "NoNewPrivs": 1,
    }  # fmt: skip


def test_an_interrupted_run_ends_cleanly(tmp_path):
    with traced(tmp_path / "none.sock", tmp_path) as tracer:
        with socket.create_connection(tuple(tracer.url.removeprefix("http://").split(":"))):
            tracer.process.send_signal(signal.SIGINT)
            assert tracer.process.wait(20) == 0
    assert "Traceback" not in tracer.log.read_text()
