"""The kubelet's calls to its plugins: whose volume it is, and no CRI name for what is none."""

import pytest
from cri_api.v1 import api_pb2 as v1

from tests.unit.conversation import Conversation
from tracer.paths import is_plugin
from tracer.pipeline import Pipeline
from tracer.plugins import kind_of

SOCKET = "/var/lib/kubelet/plugins/csi-hostpath/csi.sock"
UID = "0b2d4f7c-59d3-4b4e-9d37-1a2f4c0a7e11"
TARGET = f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount".encode()


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def rows(*conversations):
    pipeline = Pipeline(0)
    records = sorted((r for talk in conversations for r in talk.records), key=lambda record: record.time)
    found = {}
    for record in records:
        found.update({(row.kind, row.id): row for row in pipeline.feed(record)})
    return [row.fields for (kind, _), row in found.items() if kind == "call"]


def test_a_published_volume_is_its_pods_as_soon_as_anything_names_that_pod():
    csi = Conversation("csi", SOCKET).open()
    csi.call("/csi.v1.Node/NodePublishVolume", field(1, b"vol-1") + field(4, TARGET))
    cri = Conversation("cri", time=csi.time).open()
    request = v1.RunPodSandboxRequest()
    request.config.metadata.uid, request.config.metadata.name, request.config.metadata.namespace = UID, "web", "shop"
    cri.call(
        "/runtime.v1.RuntimeService/RunPodSandbox", request.SerializeToString(),
        v1.RunPodSandboxResponse(pod_sandbox_id="s1").SerializeToString(),
    )  # fmt: skip
    publish = next(row for row in rows(csi, cri) if row["method"] == "NodePublishVolume")
    assert publish["pod"] == {"namespace": "shop", "name": "web", "uid": UID}
    assert publish["activity"] == {"kind": "volume", "id": None}
    assert publish["api"] is None
    assert publish["service_seconds"] is not None


def test_a_call_on_an_old_connection_of_a_plugin_gets_no_name_of_the_cri():
    talk = Conversation("csi", SOCKET).open()
    talk.request("/v1beta1.DevicePlugin/ListAndWatch")
    talk.call("/v1beta1.DevicePlugin/Allocate", field(1, b"x"))
    begun = len(talk.records)
    for _ in range(5):
        talk.call("/v1beta1.DevicePlugin/Allocate", b"")  # as empty as a Version or a Status
    old = Conversation("csi", SOCKET, records=talk.records[begun:])
    assert {(row["method"], row["method_source"]) for row in rows(old)} == {(None, "unknown")}


@pytest.mark.parametrize(
    ("service", "kind"),
    [
        ("csi.v1.Node", "volume"),
        ("pluginregistration.Registration", "plugin_registration"),
        ("v1beta1.DevicePlugin", "device"),
        ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", "device"),
        ("v1alpha1.DRAResourceHealth", "device"),
        ("runtime.v1.RuntimeService", None),
        ("v1.PodResourcesLister", None),
        (None, None),
    ],
)
def test_each_service_of_the_kubelets_plugins_is_an_activity_of_its_own(service, kind):
    assert kind_of(service) == kind


@pytest.mark.parametrize(
    ("path", "plugin"),
    [
        (SOCKET, True),
        ("/var/lib/kubelet/device-plugins/kubelet.sock", True),
        ("/var/snap/microk8s/common/var/lib/kubelet/plugins_registry/x-reg.sock", True),
        ("/run/containerd/containerd.sock", False),
        ("/run/k3s/containerd/containerd.sock", False),
        ("/run/plugins/x.sock", False),
    ],
)
def test_plugins_sockets_lie_below_the_kubelets_root(path, plugin):
    assert is_plugin(path) is plugin
