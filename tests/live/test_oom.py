"""A container that the kernel kills for want of memory is known by its cgroup: its id, and its pod's uid."""

import time

import grpc
from cri_api.v1 import api_pb2, api_pb2_grpc

from tests.rig.node import Node
from tests.rig.pods import Container, Pod
from tracer.cgroups import container_ids, pod_uid
from tracer.kernel.source import KernelSource
from tracer.records import OomKill

LIMIT = 16 << 20
HOG = Container("hog", ["/bin/sh", "-c", "tail /dev/zero"])  # looks for a last line of endless zeroes, in memory


def start(node: Node, pod: Pod) -> str:
    """The id of the pod's only container, which may have no more memory than `LIMIT`."""
    sandbox_config = pod.sandbox_config(0, node.root)
    config = pod.container_config(HOG, 0)
    config.linux.resources.memory_limit_in_bytes = LIMIT
    (pod.log_directory(node.root) / HOG.name).mkdir(parents=True)
    with grpc.insecure_channel(f"unix://{node.socket}") as channel:
        runtime = api_pb2_grpc.RuntimeServiceStub(channel)
        sandbox = runtime.RunPodSandbox(api_pb2.RunPodSandboxRequest(config=sandbox_config)).pod_sandbox_id
        create = api_pb2.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config)
        container: str = runtime.CreateContainer(create).container_id
        runtime.StartContainer(api_pb2.StartContainerRequest(container_id=container))
    return container


def test_a_container_killed_for_want_of_memory_is_known_by_its_cgroup(node):
    pod = Pod("default", "hungry", [HOG])
    killed: list[OomKill] = []
    with KernelSource([str(node.socket)]) as source:
        container = start(node, pod)
        end = time.monotonic() + 20
        while not killed and time.monotonic() < end:
            killed += [each for each in source.drain() if isinstance(each, OomKill)]
            time.sleep(0.05)
    assert [each.comm for each in killed] == ["tail"]
    assert killed[0].cgroup is not None
    assert container_ids(killed[0].cgroup) == (container,)
    assert pod_uid(killed[0].cgroup) == pod.uid
