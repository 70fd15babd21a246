"""CRI calls: what a call of runtime.v1 or runtime.v1alpha2 asks for and answers. The only module that knows protobuf.

v1alpha2 messages are parsed as v1: v1 kept every field's number and type (a test compares the descriptors). The six
`Stream*` lists (KEP-5825) carry the same items in the same field as their `List*` answers.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple

from cri_api.v1 import api_pb2
from google.protobuf.message import DecodeError

from tracer import rpc
from tracer.rpc import Call, Event, Message

_STREAMED = {
    "StreamPodSandboxes": "ListPodSandbox",
    "StreamContainers": "ListContainers",
    "StreamContainerStats": "ListContainerStats",
    "StreamPodSandboxStats": "ListPodSandboxStats",
    "StreamPodSandboxMetrics": "ListPodSandboxMetrics",
    "StreamImages": "ListImages",
}

STREAMS = frozenset({"GetContainerEvents", *_STREAMED})
"""Server-streaming methods: they last as long as they please."""

MAX_ERROR = 512
"""Characters of an error text kept; runc and CNI errors name their cause well before."""

UID_LABEL = "io.kubernetes.pod.uid"
NAME_LABEL = "io.kubernetes.pod.name"
NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
SEEN_ANNOTATION = "kubernetes.io/config.seen"
"""When the kubelet first saw the pod, to the nanosecond (`config.go:recordFirstSeenTime`): as good as an id."""


def _methods() -> dict[str, str]:
    services = api_pb2.DESCRIPTOR.services_by_name.values()
    known = {method.name: service.name for service in services for method in service.methods}
    for streamed, listed in _STREAMED.items():
        known[streamed] = known[listed]
    return known


METHODS = _methods()
"""CRI method name -> service name (RuntimeService or ImageService)."""


class Scope(Enum):
    """What a list call asked for."""

    ALL = "all"  # no filter, or an empty one
    READY = "ready"  # sandboxes READY, or containers RUNNING
    POD = "pod"  # label io.kubernetes.pod.uid
    OTHER = "other"


class Pod(NamedTuple):
    """A pod; a name may be used again, a uid is not (a static pod's is a hash of its manifest)."""

    namespace: str
    name: str
    uid: str


class Container(NamedTuple):
    """A container; `attempt` counts restarts. `id` is "" until the runtime gave it."""

    id: str
    name: str
    attempt: int


class ListedSandbox(NamedTuple):
    """One item of a sandbox list; `created_at` is the runtime's clock, Unix ns."""

    id: str
    pod: Pod
    attempt: int
    ready: bool
    created_at: int
    seen: str


class ListedContainer(NamedTuple):
    """One item of a container list; `state` is runtime.v1.ContainerState: 0 created, 1 running, 2 exited, 3 unknown."""

    id: str
    sandbox_id: str
    container: Container
    pod: Pod | None
    state: int
    created_at: int


CREATED, RUNNING, EXITED, UNKNOWN_STATE = 0, 1, 2, 3

MethodSource = Literal["header", "inferred", "unknown"]


@dataclass(slots=True, eq=False)
class CriCall:
    """A call with the facts its messages state. Fields stay None where the call does not state them."""

    rpc: Call
    service: str | None
    method: str | None
    api: Literal["v1", "v1alpha2"] | None
    method_source: MethodSource
    scope: Scope | None = None
    pod_uid: str | None = None  # of a label filter
    pod: Pod | None = None
    container: Container | None = None
    container_id: str | None = None
    sandbox_id: str | None = None
    image: str | None = None
    annotated: bool = False  # ImageSpec carries the pod's annotations
    attempt: int | None = None  # of the sandbox to run
    seen: str | None = None  # annotation kubernetes.io/config.seen, RFC 3339
    grace: int | None = None  # StopContainer.timeout, s
    timeout: int | None = None  # ExecSync.timeout, s; 0 when absent
    command: str | None = None  # digest of ExecSync.cmd: tells commands apart, never what they say
    cpuset_only: bool = False  # UpdateContainerResources of the CPU manager, not of a resize
    exit_code: int | None = None  # of ExecSync
    sandboxes: tuple[ListedSandbox, ...] | None = None
    containers: tuple[ListedContainer, ...] | None = None
    items: int = 0  # of a list answer

    @property
    def id(self) -> str:
        return self.rpc.id


@dataclass(slots=True)
class Sent:
    """The whole request was sent: its facts are in `call`."""

    call: CriCall
    time: int


@dataclass(slots=True)
class Answer:
    """A message of the answer was sent and its facts were added to `call`."""

    call: CriCall
    time: int


@dataclass(slots=True)
class Done:
    """The call is over."""

    call: CriCall
    time: int


CriEvent = Sent | Answer | Done


@dataclass(slots=True)
class CriStats:
    """`unparsed`: messages that are not what their method says."""

    named: int = 0
    unnamed: int = 0
    foreign: int = 0
    unparsed: int = 0


@dataclass(slots=True)
class Cri:
    """Feed gRPC events, get CRI events; calls of other services pass with their names and sizes only."""

    stats: CriStats = field(default_factory=CriStats)
    _calls: dict[int, CriCall] = field(default_factory=dict)
    _lists: dict[tuple[str, Scope | None], tuple[bytes, Any]] = field(default_factory=dict)

    def open_calls(self) -> list[CriCall]:
        """Every call that has not ended."""
        return list(self._calls.values())

    def feed(self, event: Event) -> list[CriEvent]:
        if isinstance(event, rpc.Opened):
            self._calls[id(event.call)] = self._name(event.call)
            return []
        if isinstance(event, rpc.Joined | rpc.Left):
            return []
        call = self._calls.get(id(event.call))
        if call is None:
            return []
        if isinstance(event, rpc.Requested):
            self._request(call)
            return [Sent(call, event.time)]
        if isinstance(event, rpc.Responded):
            self._response(call, event.message)
            return [Answer(call, event.time)]
        del self._calls[id(event.call)]
        event.call.request = None  # its facts are taken; the bytes may hold secrets
        return [Done(call, event.time)]

    def _name(self, call: Call) -> CriCall:
        if call.path is None:
            self.stats.unnamed += 1
            return CriCall(call, None, None, None, "unknown")
        service, _, method = call.path[1:].rpartition("/")
        api: Literal["v1", "v1alpha2"] | None = None
        if service.startswith("runtime.v1."):
            api = "v1"
        elif service.startswith("runtime.v1alpha2."):
            api = "v1alpha2"
        if api is None:
            self.stats.foreign += 1
        else:
            self.stats.named += 1
        return CriCall(call, service, method, api, "header")

    def _request(self, call: CriCall) -> None:
        message = call.rpc.request
        if call.api is None or call.method is None or message is None or message.data is None:
            return
        name = _STREAMED.get(call.method, call.method)
        reader = _REQUESTS.get(name)
        if reader is None:
            return
        kind, read = reader
        try:
            read(call, kind.FromString(message.data))
        except DecodeError:
            self.stats.unparsed += 1

    def _response(self, call: CriCall, message: Message) -> None:
        if call.api is None or call.method is None or message.data is None:
            return
        name = _STREAMED.get(call.method, call.method)
        data = message.data
        try:
            if name == "ListPodSandbox":
                listed = self._listed((name, call.scope), data, read_sandboxes)
                call.sandboxes = (*call.sandboxes, *listed) if call.sandboxes else listed
                call.items = len(call.sandboxes)
            elif name == "ListContainers":
                listed = self._listed((name, call.scope), data, read_containers)
                call.containers = (*call.containers, *listed) if call.containers else listed
                call.items = len(call.containers)
            elif name in _RESPONSES:
                kind, read = _RESPONSES[name]
                read(call, kind.FromString(data))
        except DecodeError:
            self.stats.unparsed += 1

    def _listed(self, key: tuple[str, Scope | None], data: bytes, parse: Callable[[bytes], Any]) -> Any:
        """A quiet node answers the same bytes each second: parse them once."""
        known = self._lists.get(key)
        if known is not None and known[0] == data:
            return known[1]
        listed = parse(data)
        self._lists[key] = (data, listed)
        return listed


def _pod_of(labels: Any) -> Pod | None:
    uid = labels.get(UID_LABEL)
    return Pod(labels.get(NAMESPACE_LABEL, ""), labels.get(NAME_LABEL, ""), uid) if uid else None


def _pod(metadata: Any) -> Pod:
    return Pod(metadata.namespace, metadata.name, metadata.uid)


def read_sandboxes(data: bytes) -> tuple[ListedSandbox, ...]:
    """The items of a serialised ListPodSandboxResponse; raises `DecodeError` when it is none."""
    return tuple(
        ListedSandbox(
            item.id,
            _pod(item.metadata),
            item.metadata.attempt,
            item.state == 0,
            item.created_at,
            item.annotations.get(SEEN_ANNOTATION, ""),
        )
        for item in api_pb2.ListPodSandboxResponse.FromString(data).items
    )


def read_containers(data: bytes) -> tuple[ListedContainer, ...]:
    """The items of a serialised ListContainersResponse; raises `DecodeError` when it is none."""
    return tuple(
        ListedContainer(
            item.id,
            item.pod_sandbox_id,
            Container(item.id, item.metadata.name, item.metadata.attempt),
            _pod_of(item.labels),
            item.state,
            item.created_at,
        )
        for item in api_pb2.ListContainersResponse.FromString(data).containers
    )


# requests


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


def _create_container(call: CriCall, request: Any) -> None:
    call.sandbox_id = request.pod_sandbox_id or None
    call.image = request.config.image.image or None
    metadata = request.config.metadata
    call.container = Container("", metadata.name, metadata.attempt)
    if request.sandbox_config.metadata.uid:
        call.pod = _pod(request.sandbox_config.metadata)


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


# answers


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


def _exec_result(call: CriCall, response: Any) -> None:
    call.exit_code = response.exit_code


_RESPONSES: dict[str, tuple[Any, Reader]] = {
    "RunPodSandbox": (api_pb2.RunPodSandboxResponse, _ran_sandbox),
    "CreateContainer": (api_pb2.CreateContainerResponse, _created_container),
    "PodSandboxStatus": (api_pb2.PodSandboxStatusResponse, _sandbox_status),
    "ContainerStatus": (api_pb2.ContainerStatusResponse, _container_status),
    "ExecSync": (api_pb2.ExecSyncResponse, _exec_result),
}


# texts

_SECRETS = (
    # user:password in a URL; its query (registry tokens)
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@\"']+@"), r"\1…@"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s?\"']+)\?[^\s\"']*"), r"\1?…"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.+/=~-]+"), r"\1 …"),
    (
        re.compile(r"(?i)([\w-]*(?:passw(?:or)?d|secret|token|api[_-]?key|auth)[\w-]*\s*[=:]\s*)[^\s,;\"']+"),
        r"\1…",
    ),
    # the command line of a container or an exec, as runc quotes it
    (re.compile(r'exec: \\?".*?\\?": '), 'exec: "…": '),
)


def redact(text: str) -> str:
    """An error text without what may be a secret, at most `MAX_ERROR` characters."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"
