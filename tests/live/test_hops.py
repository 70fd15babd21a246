"""More than one hop and more than one runtime: a proxy before the kubelet's runtime, another runtime beside it."""

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.test_run import Runtime
from tests.live.tracer import Tracer, traced
from tests.rig import driver, oracle
from tests.rig.node import Node
from tracer import inventory

# Copies bytes between two sockets, as a proxy that does not look into them.
PROXY = """
import pathlib, socket, sys, threading

def copy(source, target):
    while piece := source.recv(1 << 16):
        target.sendall(piece)
    target.shutdown(socket.SHUT_WR)

pathlib.Path("/proc/self/comm").write_text("proxy")
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
while True:
    near = listener.accept()[0]
    far = socket.socket(socket.AF_UNIX)
    far.connect(sys.argv[2])
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


@pytest.fixture(scope="module")
def short() -> Iterator[Path]:
    """A directory whose name leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="hops-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def proxy(node: Node, short: Path) -> Iterator[tuple[Path, int]]:
    """Socket and process id of a proxy before the node's runtime."""
    path = short / "proxy.sock"
    with subprocess.Popen([sys.executable, "-c", PROXY, path, node.socket], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield path, process.pid
        process.kill()


@pytest.fixture(scope="module")
def hops(node: Node, proxy: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tracer, Any]:
    """What the kubelet behind the proxy did, and the rows of both hops."""
    directory = tmp_path_factory.mktemp("hops")
    truth = directory / "oracle.jsonl"
    with traced(proxy[0], directory, "--socket", str(node.socket), "--no-ask") as tracer:
        driver.run(proxy[0], truth, "pod")
        tracer.settle()
        rows = {kind: tracer.everything(kind) for kind in ("calls", "relists", "sync-passes", "pleg-events")}
        pleg = tracer.get("/api/v1/pleg")
    return truth, pleg, rows


def methods(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["method"] for row in rows)


def test_each_hop_has_each_call_once(node, proxy, hops):
    truth, _, rows = hops
    made = methods(oracle.read(truth, "call"))
    assert sum(made.values()) > 20
    near = [row for row in rows["calls"] if row["runtime"] == str(proxy[0])]
    far = [row for row in rows["calls"] if row["runtime"] == str(node.socket) and row["client"]["comm"] == "proxy"]
    assert methods(near) == made
    assert methods(far) == made
    assert {row["connection"] for row in near} & {row["connection"] for row in far} == set()


def test_each_hop_has_its_own_client(proxy, hops):
    _, _, rows = hops
    clients: dict[tuple[str, str], set[int]] = {}
    for row in rows["calls"]:
        if row["client"]["comm"] in ("kubelet", "proxy"):
            clients.setdefault((row["client"]["comm"], row["client"]["role"]), set()).add(row["client"]["pid"])
    assert clients.keys() == {("kubelet", "kubelet"), ("proxy", "other")}
    assert clients["proxy", "other"] == {proxy[1]}
    assert len(clients["kubelet", "kubelet"]) == 1


def test_the_kubelets_work_is_counted_on_its_own_hop_only(proxy, hops):
    truth, pleg, rows = hops
    relists = [each for each in oracle.read(truth, "relist") if each["scope"] == "generic"]
    assert abs(len(rows["relists"]) - len(relists)) <= 1, "the last may be open"
    passes = {(row["pod"]["name"], row["kind"]) for row in rows["sync-passes"]}
    assert len(passes) == len(rows["sync-passes"]), "each pass once"
    events = Counter((row["type"], row["container_id"]) for row in rows["pleg-events"])
    assert set(events.values()) == {1}
    assert [each["runtime"] for each in pleg["kubelets"]] == [str(proxy[0])]
    assert {row["activity"]["kind"] for row in rows["calls"] if row["client"]["comm"] == "proxy"} == {"other_client"}


def test_a_hop_is_within_the_one_before_it(proxy, hops):
    """What the proxy's client waits for contains what the proxy waits for."""
    _, _, rows = hops
    near = [row for row in rows["calls"] if row["runtime"] == str(proxy[0]) and row["method"] == "RunPodSandbox"]
    far = [row for row in rows["calls"] if row["runtime"] != str(proxy[0]) and row["method"] == "RunPodSandbox"]
    for outer, inner in zip(near, far, strict=True):
        assert outer["sandbox_id"] == inner["sandbox_id"]
        assert outer["start"] < inner["start"]
        assert outer["duration_seconds"] > inner["duration_seconds"]


def test_runtimes_beside_each_other_are_told_apart(node, short, tmp_path):
    other = Runtime(short / "other.sock")
    paths = [str(node.socket), f"{short}/other.sock"]
    try:
        with traced(paths[0], tmp_path, "--socket", paths[1], "--no-ask") as tracer:
            for path, times in zip(paths, (1, 3), strict=True):
                for _ in range(times):
                    assert isinstance(inventory.ask(path), inventory.Inventory)
            tracer.settle()
            rows = tracer.everything("calls")
    finally:
        other.stop()
    asked = Counter((row["runtime"], row["method"]) for row in rows)
    for method in ("Version", "ListPodSandbox", "ListContainers"):
        assert asked[paths[0], method] == 1
        assert asked[paths[1], method] == 3
    assert {row["runtime"] for row in rows} == set(paths)
