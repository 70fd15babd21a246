"""Facts: what CRI calls state, in plain types. Made by `tracer.cri`, used by everything after it."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from tracer.rpc import Call

STREAMED = {
    "StreamPodSandboxes": "ListPodSandbox",
    "StreamContainers": "ListContainers",
    "StreamContainerStats": "ListContainerStats",
    "StreamPodSandboxStats": "ListPodSandboxStats",
    "StreamPodSandboxMetrics": "ListPodSandboxMetrics",
    "StreamImages": "ListImages",
}

STREAMS = frozenset({"GetContainerEvents", *STREAMED})
"""Server-streaming methods: they last as long as they please."""

UID_LABEL = "io.kubernetes.pod.uid"
NAME_LABEL = "io.kubernetes.pod.name"
NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
SOURCE_ANNOTATION = "kubernetes.io/config.source"
SEEN_ANNOTATION = "kubernetes.io/config.seen"
"""When the kubelet first saw the pod, to the nanosecond (`config.go:recordFirstSeenTime`): as good as an id."""


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


class ContainerEvent(NamedTuple):
    """One message of `GetContainerEvents`; `kind` is runtime.v1.ContainerEventType: 0 created, 1 started, ..."""

    kind: int
    container_id: str
    pod: Pod


EVENT_CREATED, EVENT_STARTED, EVENT_STOPPED, EVENT_DELETED = 0, 1, 2, 3

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
    source: str | None = None  # annotation kubernetes.io/config.source: file, api or http
    handler: str | None = None  # RunPodSandbox.runtime_handler; "" is the runtime's default
    cgroup_parent: str | None = None  # of the sandbox to run
    volumes: tuple[str, ...] = ()  # CreateContainer: kinds of the mounted volumes that are not the kubelet's own
    present: bool | None = None  # ImageStatus: whether the runtime has the image
    grace: int | None = None  # StopContainer.timeout, s
    timeout: int | None = None  # ExecSync.timeout, s; 0 when absent
    command: str | None = None  # digest of ExecSync.cmd: tells commands apart, never what they say
    cpuset_only: bool = False  # UpdateContainerResources of the CPU manager, not of a resize
    exit_code: int | None = None  # of ExecSync
    sandboxes: tuple[ListedSandbox, ...] | None = None
    containers: tuple[ListedContainer, ...] | None = None
    items: int = 0  # of a list answer
    event: ContainerEvent | None = None  # the latest of a GetContainerEvents stream

    @property
    def id(self) -> str:
        return self.rpc.id

    @property
    def asks(self) -> str | None:
        """Its method, or the list that it streams: what the kubelet wants to know is the same."""
        return STREAMED.get(self.method or "", self.method)

    @property
    def cri(self) -> bool:
        """Whether it is a call of the CRI."""
        return self.api is not None or self.method_source == "inferred"


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


@dataclass(slots=True)
class Named:
    """A call that is over got its method only now (or lost the one it had): show it again."""

    call: CriCall
    time: int


CriEvent = Sent | Answer | Done | Named
