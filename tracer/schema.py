"""The CRI's messages: which facts of each method's request and answer are taken. Knows protobuf.

v1alpha2 messages are read as v1: v1 kept every field's number and type (a test compares the descriptors). The six
`Stream*` lists (KEP-5825) carry the same items in the same field as their `List*` answers.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from tracer.facts import (
    NAME_LABEL,
    NAMESPACE_LABEL,
    RUNNING,
    SEEN_ANNOTATION,
    SOURCE_ANNOTATION,
    STREAMED,
    UID_LABEL,
    Container,
    ContainerEvent,
    CriCall,
    ListedContainer,
    ListedSandbox,
    Pod,
    Scope,
)
from tracer.protocol import api_pb2


def _methods() -> dict[str, str]:
    services = api_pb2.DESCRIPTOR.services_by_name.values()
    known = {method.name: service.name for service in services for method in service.methods}
    for streamed, listed in STREAMED.items():
        known[streamed] = known[listed]
    return known


NOTHING: Mapping[str, Any] = {}

METHODS = _methods()
"""CRI method name -> service name (RuntimeService or ImageService)."""


def _pod_of(labels: Any) -> Pod | None:
    uid = labels.get(UID_LABEL)
    return Pod(labels.get(NAMESPACE_LABEL, ""), labels.get(NAME_LABEL, ""), uid) if uid else None


def _pod(metadata: Any) -> Pod:
    return Pod(metadata.namespace, metadata.name, metadata.uid)


def read_sandboxes(data: bytes, known: Mapping[str, ListedSandbox] = NOTHING) -> tuple[ListedSandbox, ...]:
    """The items of a serialised ListPodSandboxResponse; raises `DecodeError` when it is none.

    `known`: items of an earlier list by id. All of a sandbox but its state stays as it was made.
    """
    found = []
    for item in api_pb2.ListPodSandboxResponse.FromString(data).items:
        ready = item.state == 0
        before = known.get(item.id)
        if before is None:
            pod, seen = _pod(item.metadata), item.annotations.get(SEEN_ANNOTATION, "")
            before = ListedSandbox(item.id, pod, item.metadata.attempt, ready, item.created_at, seen)
        found.append(before if before.ready is ready else before._replace(ready=ready))
    return tuple(found)


def read_containers(data: bytes, known: Mapping[str, ListedContainer] = NOTHING) -> tuple[ListedContainer, ...]:
    """The items of a serialised ListContainersResponse; as `read_sandboxes`."""
    found = []
    for item in api_pb2.ListContainersResponse.FromString(data).containers:
        state = item.state
        before = known.get(item.id)
        if before is None:
            container = Container(item.id, item.metadata.name, item.metadata.attempt)
            pod = _pod_of(item.labels)
            before = ListedContainer(item.id, item.pod_sandbox_id, container, pod, state, item.created_at)
        found.append(before if before.state == state else before._replace(state=state))
    return tuple(found)


def _filter(call: CriCall, wanted: Any, sandboxes: bool) -> None:
    uid = wanted.label_selector.get(UID_LABEL)
    state = wanted.HasField("state")
    if wanted.id or (not sandboxes and wanted.pod_sandbox_id):
        call.scope = Scope.OTHER
        call.sandbox_id = wanted.id if sandboxes else wanted.pod_sandbox_id or None
        call.container_id = None if sandboxes else wanted.id or None
    elif uid and len(wanted.label_selector) == 1 and not state:
        call.scope, call.pod_uid = Scope.POD, uid
    elif wanted.label_selector:
        call.scope = Scope.OTHER
    elif state:
        call.scope = Scope.READY if wanted.state.state == (0 if sandboxes else RUNNING) else Scope.OTHER
    else:
        call.scope = Scope.ALL


def _list_sandboxes(call: CriCall, request: Any) -> None:
    _filter(call, request.filter, sandboxes=True)


def _list_containers(call: CriCall, request: Any) -> None:
    _filter(call, request.filter, sandboxes=False)


def _run_sandbox(call: CriCall, request: Any) -> None:
    metadata = request.config.metadata
    call.pod, call.attempt = _pod(metadata), metadata.attempt
    call.seen = request.config.annotations.get(SEEN_ANNOTATION)
    call.source = request.config.annotations.get(SOURCE_ANNOTATION)
    call.handler = request.runtime_handler
    call.cgroup_parent = request.config.linux.cgroup_parent or None


def _create_container(call: CriCall, request: Any) -> None:
    call.sandbox_id = request.pod_sandbox_id or None
    call.image = request.config.image.image or None
    metadata = request.config.metadata
    call.container = Container("", metadata.name, metadata.attempt)
    if request.sandbox_config.metadata.uid:
        call.pod = _pod(request.sandbox_config.metadata)
    kinds = (_VOLUME.search(mount.host_path) for mount in request.config.mounts)
    call.volumes = tuple(sorted({kind[1] for kind in kinds if kind is not None} - _OWN_VOLUMES))


_VOLUME = re.compile(r"/volumes/kubernetes\.io~([a-z-]{1,32})/")
"""Where the kubelet mounts a pod's volumes; what it matches is the name of a volume plugin."""

_OWN_VOLUMES = frozenset({"projected", "secret", "configmap", "downward-api", "empty-dir"})
"""Volumes that the kubelet fills itself: small, but for `empty-dir`, which is new with the pod."""


def _container_id(call: CriCall, request: Any) -> None:
    call.container_id = request.container_id or None


def _stop_container(call: CriCall, request: Any) -> None:
    _container_id(call, request)
    call.grace = request.timeout


def _update_resources(call: CriCall, request: Any) -> None:
    _container_id(call, request)
    fields = [descriptor.name for descriptor, _ in request.linux.ListFields()]
    call.cpuset_only = fields == ["cpuset_cpus"]


def _exec_sync(call: CriCall, request: Any) -> None:
    _container_id(call, request)
    call.timeout = request.timeout
    call.command = hashlib.blake2b("\0".join(request.cmd).encode(), digest_size=8, key=_COMMAND_KEY).hexdigest()


_COMMAND_KEY = hashlib.sha256(b"criscope command digest").digest()


def _sandbox_id(call: CriCall, request: Any) -> None:
    call.sandbox_id = request.pod_sandbox_id or None


def _image(call: CriCall, request: Any) -> None:
    call.image = request.image.image or None
    call.annotated = bool(request.image.annotations)
    call.seen = request.image.annotations.get(SEEN_ANNOTATION)


def _pull_image(call: CriCall, request: Any) -> None:
    _image(call, request)
    if request.sandbox_config.metadata.uid:
        call.pod = _pod(request.sandbox_config.metadata)


def _stats_filter(call: CriCall, request: Any) -> None:
    call.sandbox_id = request.filter.pod_sandbox_id or None
    call.container_id = request.filter.id or None


Reader = Callable[[CriCall, Any], None]

_REQUESTS: dict[str, tuple[Any, Reader]] = {
    "ListPodSandbox": (api_pb2.ListPodSandboxRequest, _list_sandboxes),
    "ListContainers": (api_pb2.ListContainersRequest, _list_containers),
    "RunPodSandbox": (api_pb2.RunPodSandboxRequest, _run_sandbox),
    "CreateContainer": (api_pb2.CreateContainerRequest, _create_container),
    "StopContainer": (api_pb2.StopContainerRequest, _stop_container),
    "ExecSync": (api_pb2.ExecSyncRequest, _exec_sync),
    "UpdateContainerResources": (api_pb2.UpdateContainerResourcesRequest, _update_resources),
    "ImageStatus": (api_pb2.ImageStatusRequest, _image),
    "RemoveImage": (api_pb2.RemoveImageRequest, _image),
    "PullImage": (api_pb2.PullImageRequest, _pull_image),
    "ListContainerStats": (api_pb2.ListContainerStatsRequest, _stats_filter),
    **{
        name: (getattr(api_pb2, f"{name}Request"), _container_id)
        for name in (
            "StartContainer", "RemoveContainer", "ContainerStatus", "ReopenContainerLog", "Exec", "Attach",
            "ContainerStats", "CheckpointContainer",
        )
    },
    **{
        name: (getattr(api_pb2, f"{name}Request"), _sandbox_id)
        for name in (
            "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus", "PortForward", "PodSandboxStats",
            "UpdatePodSandboxResources",
        )
    },
}  # fmt: skip


def _ran_sandbox(call: CriCall, response: Any) -> None:
    call.sandbox_id = response.pod_sandbox_id or None


def _created_container(call: CriCall, response: Any) -> None:
    call.container_id = response.container_id or None
    if call.container is not None and response.container_id:
        call.container = call.container._replace(id=response.container_id)


def _sandbox_status(call: CriCall, response: Any) -> None:
    if response.status.metadata.uid:
        call.pod, call.attempt = _pod(response.status.metadata), response.status.metadata.attempt


def _container_status(call: CriCall, response: Any) -> None:
    status = response.status
    if status.id:
        call.container = Container(status.id, status.metadata.name, status.metadata.attempt)
        call.pod = _pod_of(status.labels) or call.pod


def _image_status(call: CriCall, response: Any) -> None:
    call.present = response.HasField("image")


def _exec_result(call: CriCall, response: Any) -> None:
    call.exit_code = response.exit_code


def _container_event(call: CriCall, response: Any) -> None:
    pod = _pod(response.pod_sandbox_status.metadata)
    call.event = ContainerEvent(response.container_event_type, response.container_id, pod)


_RESPONSES: dict[str, tuple[Any, Reader]] = {
    "RunPodSandbox": (api_pb2.RunPodSandboxResponse, _ran_sandbox),
    "CreateContainer": (api_pb2.CreateContainerResponse, _created_container),
    "PodSandboxStatus": (api_pb2.PodSandboxStatusResponse, _sandbox_status),
    "ContainerStatus": (api_pb2.ContainerStatusResponse, _container_status),
    "ImageStatus": (api_pb2.ImageStatusResponse, _image_status),
    "ExecSync": (api_pb2.ExecSyncResponse, _exec_result),
    "GetContainerEvents": (api_pb2.ContainerEventResponse, _container_event),
}


def read_request(call: CriCall, data: bytes) -> None:
    """Take the facts of the request of a named call. Raises `DecodeError` when it is not its method's message."""
    reader = _REQUESTS.get(unary(call.method))
    if reader is not None:
        kind, read = reader
        read(call, kind.FromString(data))


def read_response(call: CriCall, data: bytes) -> None:
    """Take the facts of an answer, lists aside. Raises `DecodeError` when it is not its method's message."""
    reader = _RESPONSES.get(unary(call.method))
    if reader is not None:
        kind, read = reader
        read(call, kind.FromString(data))


def command(call: CriCall, data: bytes) -> list[str]:
    """The words of an exec's command line, which an error may repeat; [] for other methods."""
    if call.method not in ("ExecSync", "Exec"):
        return []
    try:
        return list(api_pb2.ExecSyncRequest.FromString(data).cmd)  # Exec's has the same number and type
    except DecodeError:
        return []


def unary(method: str | None) -> str:
    """The method whose messages `method` uses: itself, or the list that it streams."""
    return STREAMED.get(method or "", method or "")
