"""A real lock of containerd's: an update that hangs in a stopped shim holds up every list of all containers."""

import threading
import time

import grpc
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from tests.live.tracer import traced
from tests.rig import orders, shims
from tests.rig.freeze import frozen
from tests.rig.node import Node

HELD_SECONDS = 12


@pytest.fixture
def beside(tmp_path):
    """(node, tracer, stub of another client) beside a kubelet."""
    with (
        Node() as node,
        traced(node.socket, tmp_path) as tracer,
        orders.steady(node.socket, tmp_path / "oracle.jsonl"),
        grpc.insecure_channel(f"unix://{node.socket}") as channel,
    ):
        yield node, tracer, api_pb2_grpc.RuntimeServiceStub(channel)


def running(stub, pod):
    """Id of the pod's running container."""
    listed = stub.ListContainers(api_pb2.ListContainersRequest(), timeout=10).containers
    return next(
        item.id
        for item in listed
        if item.labels["io.kubernetes.pod.name"] == pod and item.state == api_pb2.CONTAINER_RUNNING
    )


def blocked(tracer):
    return [each for each in tracer.everything("findings") if each["kind"] == "relist_blocked"]


def test_a_list_that_waits_for_the_lock_of_an_update_names_its_container_and_ends_with_it(beside):
    node, tracer, stub = beside
    request = api_pb2.UpdateContainerResourcesRequest(container_id=running(stub, "cart"))
    request.linux.cpu_shares = 512
    update = threading.Thread(target=stub.UpdateContainerResources, args=(request,), kwargs={"timeout": 60})
    with frozen(shims.pid(node, "cart")):
        update.start()
        time.sleep(HELD_SECONDS)
        (finding,) = blocked(tracer)
        assert (finding["state"], finding["confidence"]) == ("active", "medium")
        follows = "(see shim_hung)" in finding["summary"]  # the update's own wait in the shim may have been told of
        assert finding["severity"] == ("info" if follows else "warning")
        assert "ListContainers does not answer" in finding["summary"]
        assert "likely it holds the runtime's lock" in finding["summary"]
        assert [pod["name"] for pod in finding["pods"]] == ["cart"]
        culprit = tracer.get(f"/api/v1/calls/{finding['calls'][0]}")
        assert culprit["method"] == "UpdateContainerResources"
        assert culprit["container"]["id"] == request.container_id
        assert tracer.get("/api/v1/pleg")["waiting_for"]["id"] in finding["calls"]
    update.join()
    due = time.monotonic() + 10
    while blocked(tracer)[0]["state"] == "active":
        assert time.monotonic() < due, "it has not ended"
        time.sleep(0.3)
    (finding,) = blocked(tracer)
    assert finding["duration_seconds"] == pytest.approx(HELD_SECONDS, abs=3)
