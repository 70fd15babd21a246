"""Proofs: when a call whose name is not on the wire can only be one method of the CRI.

The schema is closed: a request must parse as the method's message without a field left over, and the pair of messages
must state something that only this method states. What only fits proves nothing: containerd's own `Containers/Get`, on
the same socket, fits `ExecSync`, for example. So every proof asks for values that are plausible only there.
"""

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from tracer.facts import UID_LABEL
from tracer.protocol import api_pb2

ID = re.compile(r"[0-9a-f]{64}")
"""Ids of sandboxes and containers, in containerd and CRI-O alike."""

_REFERENCE = re.compile(r"[\w.\-/:@<>+]+")
"""An image's name with tag or digest; a message of another type, read as text, has other characters."""

DEADLINE_SLACK_NS = 5_000_000
"""Between a deadline and the same one rounded up to the header's unit (1 ms), less the time the dial took."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A finished call: its messages, and what was known when it ended.

    `ok`: the server answered OK. `deadline_ns`: None when unknown or absent; `usual_ns`: the client's usual deadline,
    None while unknown. `containers`, `sandboxes`: ids that lists have shown.
    """

    request: bytes
    response: bytes
    ok: bool
    deadline_ns: int | None
    usual_ns: int | None
    containers: Container[str]
    sandboxes: Container[str]

    def beyond_usual(self, seconds: int) -> bool:
        """Whether the deadline is the usual one and `seconds` more (`cri-client`: StopContainer, ExecSync)."""
        if self.deadline_ns is None or self.usual_ns is None:
            return False
        return abs(self.deadline_ns - self.usual_ns - seconds * 1_000_000_000) <= DEADLINE_SLACK_NS


Proof = Callable[[Evidence, Any, Any], bool]


def strictly(kind: Any, data: bytes) -> Any:
    """`data` as a message of `kind` with nothing left over, or None."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        return None
    message.DiscardUnknownFields()
    return message if message.ByteSize() == len(data) else None


def leniently(kind: Any, data: bytes) -> Any:
    """`data` as a message of `kind`, fields of a newer CRI left over or not; None when it is none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return None


def proven(evidence: Evidence) -> str | None:
    """The only method this call can be, or None."""
    found: dict[bool, list[str]] = {True: [], False: []}  # by whether the answer has no field left over
    for method, (request_kind, response_kind, proof) in _PROOFS.items():
        request = strictly(request_kind, evidence.request)
        if request is None:
            continue
        response = leniently(response_kind, evidence.response)
        if response is not None and proof(evidence, request, response):
            found[strictly(response_kind, evidence.response) is not None].append(method)
    if found[True]:
        return found[True][0] if len(found[True]) == 1 else None
    return found[False][0] if len(found[False]) == 1 else None


def by_elimination(request: bytes, taken: Container[str]) -> str | None:
    """The method of a list whose answers are empty: of the two that have this filter, the other one is `taken`.

    The kubelet asks for READY sandboxes and RUNNING containers (housekeeping); its filters have no other form alike.
    """
    for filtered, method, other in _FILTERS:
        if request == filtered and other in taken and method not in taken:
            return method
    return None


_FILTERS = (
    (b"\x0a\x02\x12\x00", "ListPodSandbox", "ListContainers"),  # {filter: {state: {READY}}}
    (b"\x0a\x04\x12\x02\x08\x01", "ListContainers", "ListPodSandbox"),  # {filter: {state: {RUNNING}}}
)


def contradicts(method: str, request: bytes) -> bool:
    """Whether a request cannot be one of `method`."""
    entry = _REQUESTS.get(method)
    return entry is not None and strictly(entry, request) is None


def _list_sandboxes(_: Evidence, __: Any, response: Any) -> bool:
    return bool(response.items) and all(
        ID.fullmatch(item.id) and item.metadata.uid and item.labels.get(UID_LABEL) == item.metadata.uid
        for item in response.items
    )


def _list_containers(_: Evidence, __: Any, response: Any) -> bool:
    return bool(response.containers) and all(
        ID.fullmatch(item.id) and ID.fullmatch(item.pod_sandbox_id) and item.metadata.name and UID_LABEL in item.labels
        for item in response.containers
    )


def _sandbox_status(_: Evidence, request: Any, response: Any) -> bool:
    status = response.status
    return bool(ID.fullmatch(status.id) and status.id == request.pod_sandbox_id and status.metadata.uid)


def _container_status(_: Evidence, request: Any, response: Any) -> bool:
    status = response.status
    named = status.id == request.container_id and status.metadata.name and UID_LABEL in status.labels
    return bool(ID.fullmatch(status.id) and named)


def _run_sandbox(_: Evidence, request: Any, response: Any) -> bool:
    config = request.config
    stated = config.metadata.uid and config.labels.get(UID_LABEL) == config.metadata.uid
    return bool(stated and ID.fullmatch(response.pod_sandbox_id))


def _create_container(_: Evidence, request: Any, response: Any) -> bool:
    stated = (
        ID.fullmatch(request.pod_sandbox_id) and request.config.metadata.name and request.sandbox_config.metadata.uid
    )
    return bool(stated and ID.fullmatch(response.container_id))


def _stop_container(evidence: Evidence, request: Any, _: Any) -> bool:
    # {id, number}, nothing back: the others of this shape answer with a status.
    return (
        evidence.ok
        and not evidence.response
        and request.timeout > 1
        and request.container_id in evidence.containers
        and (evidence.deadline_ns is None or evidence.beyond_usual(request.timeout))
    )


def _exec_sync(evidence: Evidence, request: Any, response: Any) -> bool:
    if not request.cmd or request.timeout <= 0 or request.container_id not in evidence.containers:
        return False
    if response.stdout.startswith((b"http://", b"https://")):
        return False  # an Exec's address
    if len(request.cmd) == 1 and ("checkpoint" in request.cmd[0] or request.cmd[0].endswith(".tar")):
        # CheckpointContainer{id, location, timeout} has this shape too, but not this deadline. The kubelet's location
        # is <root>/checkpoints/checkpoint-<pod>-<container>-<time>.tar (`kubelet.go:CheckpointContainer`).
        return evidence.beyond_usual(request.timeout)
    return evidence.deadline_ns is None or evidence.beyond_usual(request.timeout)


def _update_resources(evidence: Evidence, request: Any, _: Any) -> bool:
    # UpdatePodSandboxResources has this shape too, with a sandbox's id.
    return evidence.ok and request.HasField("linux") and request.container_id in evidence.containers


def _status(_: Evidence, __: Any, response: Any) -> bool:
    return any(condition.type == "RuntimeReady" for condition in response.status.conditions)


def _version(_: Evidence, __: Any, response: Any) -> bool:
    return bool(response.runtime_name) and response.runtime_api_version in ("v1", "v1alpha2")


def _image_fs_info(_: Evidence, __: Any, response: Any) -> bool:
    return bool(response.image_filesystems) and all(
        item.fs_id.mountpoint.startswith("/") and item.timestamp > 10**18 for item in response.image_filesystems
    )


def _list_images(_: Evidence, __: Any, response: Any) -> bool:
    return bool(response.images) and all(_image(item) for item in response.images)


def _image(image: Any) -> bool:
    named = all(_REFERENCE.fullmatch(name) for name in (*image.repo_tags, *image.repo_digests))
    return _image_id(image.id) and image.size > 0 and named


def _image_id(text: str) -> bool:
    return bool(ID.fullmatch(text.removeprefix("sha256:")))


def _image_status(_: Evidence, request: Any, response: Any) -> bool:
    return bool(request.image.image) and _image(response.image)


def _pull_image(_: Evidence, request: Any, response: Any) -> bool:
    return bool(request.image.image and request.sandbox_config.metadata.uid and response.image_ref)


def _list_container_stats(_: Evidence, __: Any, response: Any) -> bool:
    return bool(response.stats) and all(
        ID.fullmatch(item.attributes.id) and UID_LABEL in item.attributes.labels for item in response.stats
    )


def _list_sandbox_stats(_: Evidence, __: Any, response: Any) -> bool:
    return bool(response.stats) and all(
        ID.fullmatch(item.attributes.id) and item.attributes.metadata.uid for item in response.stats
    )


def _container_events(_: Evidence, __: Any, response: Any) -> bool:
    sandbox = response.pod_sandbox_status
    return bool(ID.fullmatch(response.container_id) and sandbox.metadata.uid and response.created_at > 10**18)


_PROOFS: dict[str, tuple[Any, Any, Proof]] = {
    "ListPodSandbox": (api_pb2.ListPodSandboxRequest, api_pb2.ListPodSandboxResponse, _list_sandboxes),
    "ListContainers": (api_pb2.ListContainersRequest, api_pb2.ListContainersResponse, _list_containers),
    "PodSandboxStatus": (api_pb2.PodSandboxStatusRequest, api_pb2.PodSandboxStatusResponse, _sandbox_status),
    "ContainerStatus": (api_pb2.ContainerStatusRequest, api_pb2.ContainerStatusResponse, _container_status),
    "RunPodSandbox": (api_pb2.RunPodSandboxRequest, api_pb2.RunPodSandboxResponse, _run_sandbox),
    "CreateContainer": (api_pb2.CreateContainerRequest, api_pb2.CreateContainerResponse, _create_container),
    "StopContainer": (api_pb2.StopContainerRequest, api_pb2.StopContainerResponse, _stop_container),
    "ExecSync": (api_pb2.ExecSyncRequest, api_pb2.ExecSyncResponse, _exec_sync),
    "UpdateContainerResources": (
        api_pb2.UpdateContainerResourcesRequest, api_pb2.UpdateContainerResourcesResponse, _update_resources,
    ),
    "Status": (api_pb2.StatusRequest, api_pb2.StatusResponse, _status),
    "Version": (api_pb2.VersionRequest, api_pb2.VersionResponse, _version),
    "ImageFsInfo": (api_pb2.ImageFsInfoRequest, api_pb2.ImageFsInfoResponse, _image_fs_info),
    "ListImages": (api_pb2.ListImagesRequest, api_pb2.ListImagesResponse, _list_images),
    "ImageStatus": (api_pb2.ImageStatusRequest, api_pb2.ImageStatusResponse, _image_status),
    "PullImage": (api_pb2.PullImageRequest, api_pb2.PullImageResponse, _pull_image),
    "ListContainerStats": (
        api_pb2.ListContainerStatsRequest, api_pb2.ListContainerStatsResponse, _list_container_stats,
    ),
    "ListPodSandboxStats": (
        api_pb2.ListPodSandboxStatsRequest, api_pb2.ListPodSandboxStatsResponse, _list_sandbox_stats,
    ),
    "GetContainerEvents": (api_pb2.GetEventsRequest, api_pb2.ContainerEventResponse, _container_events),
}  # fmt: skip

_REQUESTS: dict[str, Any] = {
    **{method: request for method, (request, _, _) in _PROOFS.items()},
    "StartContainer": api_pb2.StartContainerRequest,
    "RemoveContainer": api_pb2.RemoveContainerRequest,
    "StopPodSandbox": api_pb2.StopPodSandboxRequest,
    "RemovePodSandbox": api_pb2.RemovePodSandboxRequest,
}


_ONLY_ID_BYTES = 66  # a tag, a length, 64 digits


def only_id(request: bytes) -> str | None:
    """The id, when the request is {1: id} and nothing else, as StartContainer's and RemovePodSandbox's are."""
    if len(request) != _ONLY_ID_BYTES:
        return None
    message = strictly(api_pb2.StartContainerRequest, request)
    found = None if message is None else ID.fullmatch(message.container_id)
    return found[0] if found else None
