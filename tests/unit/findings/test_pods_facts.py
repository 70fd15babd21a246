"""Facts that findings about pods rest on."""

from tracer.calls import Call
from tracer.facts import CriCall
from tracer.protocol import api_pb2
from tracer.schema import read_request, read_response
from tracer.streams import Peer

PEER = Peer("c1", "/run/containerd/containerd.sock", 100, "kubelet", 200, "containerd")


def cri(method):
    return CriCall(Call(PEER, 1, 0), "runtime.v1.RuntimeService", method, "v1", "header")


def test_the_volumes_of_a_container_are_told_by_kind_without_those_the_kubelet_fills_itself():
    request = api_pb2.CreateContainerRequest()
    base = "/var/lib/kubelet/pods/0f/volumes/kubernetes.io~"
    for path in (f"{base}csi/pvc-1/mount", f"{base}csi/pvc-2/mount", f"{base}nfs/share", f"{base}projected/token",
                 f"{base}secret/key", f"{base}empty-dir/tmp", "/etc/hosts"):  # fmt: skip
        request.config.mounts.add(host_path=path)
    call = cri("CreateContainer")
    read_request(call, request.SerializeToString())
    assert call.volumes == ("csi", "nfs")


def test_an_image_status_tells_whether_the_image_is_there():
    there, absent = api_pb2.ImageStatusResponse(), api_pb2.ImageStatusResponse()
    there.image.id = "sha256:1"
    for response, present in ((there, True), (absent, False)):
        call = cri("ImageStatus")
        assert call.present is None
        read_response(call, response.SerializeToString())
        assert call.present is present
