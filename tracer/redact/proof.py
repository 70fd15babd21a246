"""Messages that prove what they are, on an old connection where no method's name is known.

Messages about pods say who they are about twice, in metadata and in labels (`kuberuntime/labels.go`); the few others
here state what nothing else does. `Walk` must find them strict as well: no field left over.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from tracer.protocol import api_pb2
from tracer.redact.schema import Plan, plan_of
from tracer.streams import Way

UID_LABEL = "io.kubernetes.pod.uid"
NAME_LABEL = "io.kubernetes.pod.name"
NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
CONTAINER_LABEL = "io.kubernetes.container.name"

SEEN = "kubernetes.io/config.seen"
"""The annotation every pod of a kubelet has (`pkg/config/config.go:recordFirstSeenTime`)."""

_ID = re.compile(r"[0-9a-f]{64}")
_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}")

YEAR_2001 = 10**18
"""A Unix time in ns is larger."""


def _pod(item: Any) -> bool:
    """Metadata and labels of a sandbox (or of its configuration) agree."""
    labels, metadata = item.labels, item.metadata
    return bool(
        metadata.uid
        and labels.get(UID_LABEL) == metadata.uid
        and labels.get(NAME_LABEL) == metadata.name
        and labels.get(NAMESPACE_LABEL) == metadata.namespace
    )


def _named(item: Any) -> bool:
    """Metadata and labels of a container (or of its configuration) agree."""
    labels, name = item.labels, item.metadata.name
    return bool(name and labels.get(CONTAINER_LABEL) == name and labels.get(UID_LABEL) and labels.get(NAME_LABEL))


def _every(items: Iterable[Any], fits: Callable[[Any], bool]) -> bool:
    items = list(items)
    return bool(items) and all(map(fits, items))


def _listed_sandbox(item: Any) -> bool:
    return bool(_ID.fullmatch(item.id)) and _pod(item)


def _listed_container(item: Any) -> bool:
    return bool(_ID.fullmatch(item.id)) and _named(item)


def _status(answer: Any) -> bool:
    return {"RuntimeReady", "NetworkReady"} <= {condition.type for condition in answer.status.conditions}


def _version(answer: Any) -> bool:
    # The version of the kubelet's own interface, the same since its first release.
    return bool(answer.version == "0.1.0" and answer.runtime_name and answer.runtime_api_version in ("v1", "v1alpha2"))


def _filesystem(item: Any) -> bool:
    return bool(item.timestamp > YEAR_2001 and item.fs_id.mountpoint.startswith("/"))


def _image(item: Any) -> bool:
    return bool(_IMAGE_ID.fullmatch(item.id) and item.size)


_Proofs = tuple[tuple[Any, Callable[[Any], Any]], ...]

_PROOFS: dict[Way, _Proofs] = {
    "request": (
        (
            api_pb2.CreateContainerRequest,
            lambda asked: _ID.fullmatch(asked.pod_sandbox_id) and _named(asked.config) and _pod(asked.sandbox_config),
        ),
        (api_pb2.RunPodSandboxRequest, lambda asked: _pod(asked.config)),
        (api_pb2.PullImageRequest, lambda asked: asked.image.image and _pod(asked.sandbox_config)),
        (api_pb2.ImageStatusRequest, lambda asked: asked.image.image and SEEN in asked.image.annotations),
    ),
    "response": (
        (api_pb2.ListContainersResponse, lambda answer: _every(answer.containers, _listed_container)),
        (api_pb2.ListPodSandboxResponse, lambda answer: _every(answer.items, _listed_sandbox)),
        (api_pb2.ContainerStatusResponse, lambda answer: _listed_container(answer.status)),
        (api_pb2.PodSandboxStatusResponse, lambda answer: _listed_sandbox(answer.status)),
        (api_pb2.StatusResponse, _status),
        (api_pb2.VersionResponse, _version),
        (api_pb2.ImageFsInfoResponse, lambda answer: _every(answer.image_filesystems, _filesystem)),
        (api_pb2.ListImagesResponse, lambda answer: _every(answer.images, _image)),
        (api_pb2.ImageStatusResponse, lambda answer: _image(answer.image)),
    ),
}


def proven(way: Way, body: bytes) -> Iterator[Plan]:
    """The plan of a message that can be nothing else, if `Walk` finds it strict.

    There are two for a list of one image, which is the answer for one image as well.
    """
    for kind, proof in _PROOFS[way]:
        try:
            message = kind.FromString(body)
        except DecodeError:
            continue
        if proof(message):
            yield plan_of(kind.DESCRIPTOR)
