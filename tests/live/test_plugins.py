"""A CSI driver and a device plugin beside the runtime: the kubelet's calls to them, before the sandbox is made."""

import shutil
import subprocess
import sys
import textwrap
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from tests.live.tracer import traced

ROOT = Path("/var/lib/kubelet/plugins/criscope-test")
UID = "0b2d4f7c-59d3-4b4e-9d37-1a2f4c0a7e11"
TARGET = f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount"

KUBELET = textwrap.dedent(
    """
    import sys, grpc
    open("/proc/self/comm", "w").write("kubelet")
    socket, target = sys.argv[1:]
    def field(number, value):
        return bytes([number << 3 | 2, len(value)]) + value
    def ask(method, request):
        own = [("grpc.use_local_subchannel_pool", 1)]  # the kubelet dials anew for each call
        with grpc.insecure_channel(f"unix:{socket}", own) as channel:
            channel.unary_unary(method)(request, timeout=120)
    ask("/csi.v1.Node/NodeGetCapabilities", b"")
    ask("/csi.v1.Node/NodeStageVolume", field(1, b"vol-1"))
    ask("/csi.v1.Node/NodePublishVolume", field(1, b"vol-1") + field(4, target.encode()))
    ask("/v1beta1.DevicePlugin/Allocate", b"")
    """
)


class Plugin(grpc.GenericRpcHandler):
    """Answers every call with nothing."""

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")


@pytest.fixture
def plugin():
    ROOT.mkdir(parents=True, exist_ok=True)
    path = ROOT / "csi.sock"
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(Plugin(),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    yield path
    server.stop(None)
    shutil.rmtree(ROOT)


def test_volumes_and_devices_are_calls_of_the_kubelet_with_their_own_activity(plugin, tmp_path):
    with traced(tmp_path / "no-runtime.sock", tmp_path) as tracer:
        subprocess.run([sys.executable, "-c", KUBELET, str(plugin), TARGET], check=True, timeout=60)
        tracer.settle()
        calls = tracer.everything("calls")
    assert [(call["method"], call["activity"]["kind"], call["status"]) for call in calls] == [
        ("NodeGetCapabilities", "volume", "OK"),
        ("NodeStageVolume", "volume", "OK"),
        ("NodePublishVolume", "volume", "OK"),
        ("Allocate", "device", "OK"),
    ]
    assert {call["client"]["role"] for call in calls} == {"kubelet"}
    assert len({call["connection"] for call in calls}) == 4
    assert all(call["service_seconds"] is not None for call in calls)
    assert {call["runtime"] for call in calls} == {str(plugin)}
