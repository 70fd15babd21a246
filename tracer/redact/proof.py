"""Answers that prove what they are, on an old connection where no method's name is known.

Lists and states of pods say who they are twice, in metadata and in labels (`kuberuntime/labels.go`).
Nothing else does.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from cri_api.v1 import api_pb2
from google.protobuf.message import DecodeError

from tracer.redact.schema import Plan, plan_of

_UID_LABEL = "io.kubernetes.pod.uid"
_NAME_LABEL = "io.kubernetes.pod.name"
_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
_CONTAINER_LABEL = "io.kubernetes.container.name"

_ID = re.compile(r"[0-9a-f]{64}")


def _sandbox(item: Any) -> bool:
    labels, metadata = item.labels, item.metadata
    return bool(
        _ID.fullmatch(item.id)
        and metadata.uid
        and labels.get(_UID_LABEL) == metadata.uid
        and labels.get(_NAME_LABEL) == metadata.name
        and labels.get(_NAMESPACE_LABEL) == metadata.namespace
    )


def _container(item: Any) -> bool:
    labels = item.labels
    named = item.metadata.name and labels.get(_CONTAINER_LABEL) == item.metadata.name
    return bool(_ID.fullmatch(item.id) and named and labels.get(_UID_LABEL) and labels.get(_NAME_LABEL))


_Items = Callable[[Any], Iterable[Any]]

_CANDIDATES: tuple[tuple[Any, _Items, Callable[[Any], bool]], ...] = (
    (api_pb2.ListContainersResponse, lambda answer: answer.containers, _container),
    (api_pb2.ListPodSandboxResponse, lambda answer: answer.items, _sandbox),
    (api_pb2.ContainerStatusResponse, lambda answer: (answer.status,), _container),
    (api_pb2.PodSandboxStatusResponse, lambda answer: (answer.status,), _sandbox),
)


def proven(body: bytes) -> Plan | None:
    """The plan of an answer that can be nothing else, if `Walk.secrets` finds it strict; None when not certain."""
    for kind, items_of, fits in _CANDIDATES:
        try:
            answer = kind.FromString(body)
        except DecodeError:
            continue
        items = list(items_of(answer))
        if items and all(map(fits, items)):
            return plan_of(kind.DESCRIPTOR)
    return None
