"""The container of the DaemonSet under a real containerd, exactly as the manifest has it, watching that containerd."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.live import daemonset, image
from tests.live.cgroup import UNIFIED
from tests.rig import linux, orders
from tests.rig.node import ENVIRONMENT, Node

# The first run on a machine fetches the image's Python packages; that may take longer than a test usually may.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

START_SECONDS = 60.0
SOME_SECONDS = 5.0
AWAITED_SECONDS = 20.0
CAP_PERFMON, CAP_BPF = 38, 39
VOLUME = "/var/lib/criscope"
_GET = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1], timeout=10).read())"


class Agent:
    """The pod, asked from its own network namespace as `kubectl port-forward` does."""

    def __init__(self, pod: daemonset.Pod, node: Node, directory: Path) -> None:
        self.pod = pod
        self.node = node
        self.directory = directory
        self.pid = pod.pid

    def get(self, path: str):
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", sys.executable, "-c", _GET]
        done = subprocess.run([*command, f"http://127.0.0.1:9559{path}"], capture_output=True, timeout=20)
        assert done.returncode == 0, (done.stderr[-500:], self.pod.log.read_text()[-2000:])
        return json.loads(done.stdout) if path.startswith(("/api", "/healthz", "/readyz")) else done.stdout.decode()

    def calls(self, query: str = ""):
        return self.get(f"/api/v1/calls?limit=1000{query}")["items"]

    def awaited(self, found, query: str = ""):
        """The calls of which `found` tells something; waits for it."""
        due = time.monotonic() + AWAITED_SECONDS
        while not (calls := [call for call in self.calls(query) if found(call)]):
            assert time.monotonic() < due, self.pod.log.read_text()[-2000:]
            time.sleep(0.5)
        return calls

    def status(self) -> dict[str, str]:
        text = Path(f"/proc/{self.pid}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def python(self, program: str):
        return self.pod.execute(["/usr/bin/python3", "-c", program])


@contextlib.contextmanager
def _shared(*directories: Path):
    """Mounts of their own that share what is mounted below, as a node's root does and a build machine's may not."""
    with contextlib.ExitStack() as stack:
        for directory in directories:
            subprocess.run(["mount", "--rbind", "--make-rshared", directory, directory], check=True)
            stack.callback(linux.unmount, str(directory))
        yield


def _spec(node: Node, directory: Path):
    """The manifest's, with this machine's places for the node's directories."""
    spec = daemonset.pod_spec()
    daemonset.move_volume(spec, "store", directory / "store")
    daemonset.move_volume(spec, "kubelet", directory / "kubelet")
    daemonset.move_volume(spec, "runtime", node.footprint.runtime, inside=True)
    (container,) = spec["containers"]
    container["env"].append({"name": "CRISCOPE_SOCKETS", "value": str(node.socket)})
    return spec


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    directory = tmp_path_factory.mktemp("container")
    (directory / "kubelet").mkdir()
    archive = directory / "image.tar"
    with ThreadPoolExecutor(1) as pool, Node() as node:
        pool.submit(image.write_archive, archive, directory).result()
        load = ["ctr", "--address", str(node.socket), "--namespace", "k8s.io", "images", "import", str(archive)]
        subprocess.run(load, check=True, capture_output=True, env=ENVIRONMENT)
        archive.unlink()
        (directory / "layer.tar").unlink()
        spec = _spec(node, directory)
        with (
            _shared(directory / "kubelet", node.footprint.runtime),
            orders.steady(node.socket, directory / "oracle.jsonl"),
            daemonset.running(node, spec, {"criscope": image.NAME}, directory) as pod,
        ):
            found = Agent(pod, node, directory)
            (container,) = spec["containers"]
            probe = container["startupProbe"]["exec"]["command"]
            due = time.monotonic() + START_SECONDS
            while pod.execute(probe).exit_code:
                assert time.monotonic() < due, pod.log.read_text()
                assert pod.state() == "CONTAINER_RUNNING", pod.log.read_text()
                time.sleep(0.2)
            time.sleep(SOME_SECONDS)
            yield found


def test_it_attaches_everything_and_finds_every_directory(agent):
    health = agent.get("/healthz")
    assert [probe for probe in health["probes"] if not probe["attached"]] == []
    assert len(health["probes"]) >= 6
    assert health["hidden"] == {}
    assert (health["status"], health["lost_records"]) == ("ok", 0)
    assert health["flight"]["recording"]


def test_it_names_the_kubelets_calls_on_connections_older_than_itself(agent):
    calls = [call for call in agent.calls() if call["client"]["role"] == "kubelet"]
    named = [call for call in calls if call["method"] is not None]
    assert {call["runtime"] for call in calls} == {str(agent.node.socket)}, "its path, not its directory's numbers"
    assert {"ListPodSandbox", "ListContainers", "ExecSync"} <= {call["method"] for call in named}
    assert len(named) >= len(calls) * 0.9


def test_it_sees_into_the_runtime_as_on_the_machine_itself(agent):
    steps = agent.get("/api/v1/steps?limit=1000")["items"]
    assert {"shim", "runc"} <= {step["kind"] for step in steps}
    assert any(step["call"] for step in steps)


def test_after_the_start_it_is_nobody_with_no_capability(agent):
    status = agent.status()
    bounding = (
        1 << CAP_PERFMON | 1 << CAP_BPF
    )  # bounds nothing any more: no_new_privs, and no set but this is not empty
    sets = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
    assert sets == dict.fromkeys(sets, 0)
    assert int(status["CapBnd"], 16) == bounding
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2", "RuntimeDefault lets the programs be loaded, and is in force"
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"59559"}
    for thread in Path(f"/proc/{agent.pid}/task").iterdir():
        assert "CapEff:\t0000000000000000" in (thread / "status").read_text()


def test_the_image_has_what_it_runs_with_and_says_so(agent):
    compiled = "from google.protobuf.internal import api_implementation as found; print(found.Type())"
    assert agent.python(compiled).stdout == b"upb\n", "not the slow one that takes its place unsaid"
    bill = json.loads(agent.pod.execute(["cat", "/usr/share/criscope/sbom.cdx.json"]).stdout)
    assert {"libbpf1", "python3", "grpcio", "hpack"} <= {each["name"] for each in bill["components"]}


CAPABLE = """
import os
for top, _, names in os.walk("/usr"):
    for path in (os.path.join(top, name) for name in names):
        if not os.path.islink(path) and ("security.capability" in os.listxattr(path) or os.stat(path).st_mode & 0o6000):
            print(path)
"""


def test_one_file_of_the_image_gives_anything_to_who_starts_it(agent):
    assert agent.python(CAPABLE).stdout == b"/usr/local/libexec/criscope-python\n"
    holds = "print(open('/proc/self/status').read().split('CapEff:')[1].split()[0])"
    assert int(agent.python(holds).stdout, 16) == 0
    capable = agent.pod.execute(["/usr/local/libexec/criscope-python", "-c", holds])
    assert int(capable.stdout, 16) == 1 << CAP_PERFMON | 1 << CAP_BPF


def test_it_can_neither_speak_to_the_runtime_nor_read_the_kubelets_files(agent):
    socket = agent.node.socket
    secret = agent.directory / "kubelet" / "secret"
    secret.write_text("x")
    (agent.directory / "kubelet").chmod(0o750)  # as the kubelet makes it (setupDataDirs)
    done = agent.python(f"import socket; socket.socket(socket.AF_UNIX).connect({str(socket)!r})")
    assert done.exit_code == 1
    assert b"PermissionError" in done.stderr
    done = agent.python("open('/var/lib/kubelet/secret')")
    assert b"PermissionError" in done.stderr
    done = agent.pod.execute(["ls", str(agent.node.footprint.runtime)])
    assert done.exit_code != 0


WRITABLE = """
import os
for top, directories, names in os.walk("/"):
    if top == "/":
        directories.remove("proc")
    for path in (top, *(os.path.join(top, name) for name in names)):
        if not os.path.islink(path) and os.access(path, os.W_OK):
            print(path)
"""


def test_only_its_volume_can_be_written_and_only_there_it_writes(agent):
    writable = agent.python(WRITABLE).stdout.decode().splitlines()
    outside = [path for path in writable if not path.startswith(VOLUME)]
    assert VOLUME in writable
    # Devices without a store behind them, and memory that the runtime gives each pod.
    assert {path for path in outside if not path.startswith("/dev/")} == set()
    assert {path for path in outside if Path(f"/proc/{agent.pid}/root{path}").is_dir()} <= {"/dev/shm", "/dev/mqueue"}
    opened = set()
    for number in Path(f"/proc/{agent.pid}/fd").iterdir():
        flags = re.search(r"flags:\s+(\d+)", Path(f"/proc/{agent.pid}/fdinfo/{number.name}").read_text())
        target = str(number.readlink())
        if int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY and target.startswith("/") and target != "/dev/null":
            opened.add(target)
    assert opened
    assert {path for path in opened if not path.startswith(f"{VOLUME}/")} == set()
    assert list(Path(f"/proc/{agent.pid}/root/dev/shm").iterdir()) == []


def test_it_keeps_no_mount_that_the_node_gave_up(agent):
    """Else a pod's volumes and root file system would stay in use after the pod."""

    def below(pid: int | str) -> set[str]:
        points = {line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()}
        # Its own root file system was mounted in its own namespace.
        found = {point for point in points if Path(point).is_relative_to(agent.node.footprint.runtime)}
        return {point for point in found if agent.pod.container not in point}

    volume = agent.directory / "kubelet" / "volume"
    volume.mkdir()
    linux.mount_tmpfs(str(volume), 1 << 20)
    held = Path(f"/proc/{agent.pid}/mountinfo")
    assert "/var/lib/kubelet/volume" in held.read_text()
    linux.unmount(str(volume))
    assert "/var/lib/kubelet/volume" not in held.read_text()
    assert below(agent.pid) <= below("self")


def test_it_listens_on_its_pods_loopback_alone(agent):
    listening = {}
    for name in ("tcp", "tcp6", "udp", "udp6"):
        lines = Path(f"/proc/{agent.pid}/net/{name}").read_text().splitlines()[1:]
        listening[name] = [line.split()[1] for line in lines if line.split()[3] in ("0A", "07")]
    assert listening == {"tcp": ["0100007F:2557"], "tcp6": [], "udp": [], "udp6": []}
    assert Path(f"/proc/{agent.pid}/ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino


def test_a_plugin_that_bound_its_socket_in_another_mount_namespace_is_known_by_its_place(agent):
    """As a CSI driver does, whose pod has the kubelet's directory under another name."""
    plugins = agent.directory / "kubelet" / "plugins"
    plugins.mkdir()
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{plugins}/csi.sock")
    server.start()
    try:
        time.sleep(3)  # a look at the places is due each two seconds
        with grpc.insecure_channel(f"unix:{plugins}/csi.sock") as channel:
            with pytest.raises(grpc.RpcError):
                channel.unary_unary("/csi.v1.Identity/Probe")(b"", timeout=5)
        (call,) = agent.awaited(lambda call: call["service"] == "csi.v1.Identity")
        assert call["runtime"] == "/var/lib/kubelet/plugins/csi.sock"
    finally:
        server.stop(0)


def test_the_probes_tell_health_from_its_lack(agent):
    assert agent.pod.execute(["criscope-probe", "/healthz"]).exit_code == 0
    assert agent.pod.execute(["criscope-probe", "/nowhere"]).exit_code == 1
    assert agent.pod.execute(["/bin/bash", "-c", "CRISCOPE_PROBE_PORT=1 exec criscope-probe /readyz"]).exit_code == 1


def test_the_command_beside_it_asks_it_without_any_capability(agent):
    done = agent.pod.execute(["criscope", "why"], timeout=30)
    assert done.exit_code in (0, 1), done.stderr
    assert done.stdout


def test_it_outlives_its_runtime_and_traces_the_next(agent):
    agent.node.restart()
    back = time.time()
    assert agent.pod.pid == agent.pid
    for method in ("ListPodSandbox", "ListContainers"):
        since = f"&method={method}&since={back:.3f}"
        calls = agent.awaited(lambda call: call["client"]["role"] == "kubelet" and call["status"] == "OK", since)
        assert {call["runtime"] for call in calls} == {str(agent.node.socket)}
    assert agent.get("/healthz")["lost_records"] == 0


def test_it_keeps_within_its_memory_limit(agent):
    limit = daemonset.quantity(daemonset.pod_spec()["containers"][0]["resources"]["limits"]["memory"])
    group = _memory_cgroup(agent.pid)
    names = ("memory.max", "memory.peak") if UNIFIED else ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
    held, most = (int((group / name).read_text()) for name in names)
    assert held == limit
    assert most < limit * 0.9, f"{most >> 20} MiB"
    events = (group / ("memory.events" if UNIFIED else "memory.oom_control")).read_text()
    assert re.search(r"^oom_kill 0$", events, re.MULTILINE), events


def _memory_cgroup(pid: int) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if UNIFIED and not controllers:
            return Path("/sys/fs/cgroup" + path)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory" + path)
    raise AssertionError("no memory cgroup")


def test_it_ends_cleanly_within_its_grace(agent):
    grace = daemonset.pod_spec()["terminationGracePeriodSeconds"]
    began = time.monotonic()
    assert agent.pod.stop(grace) == 0
    assert time.monotonic() - began < grace
    assert "Traceback" not in agent.pod.log.read_text()
