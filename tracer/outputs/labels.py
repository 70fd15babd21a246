"""Label values: closed lists, so that no peer on a socket can make series grow. What is not listed is "other"."""

from functools import lru_cache

OTHER = "other"
UNKNOWN = "unknown"

STREAMS = frozenset({
    "GetContainerEvents", "StreamContainerStats", "StreamContainers", "StreamImages", "StreamPodSandboxMetrics",
    "StreamPodSandboxStats", "StreamPodSandboxes",
})  # fmt: skip
"""CRI methods whose answer is a stream: how long one lasts says nothing about latency."""

CRI_METHODS = STREAMS | {
    "Attach", "CheckpointContainer", "ContainerStats", "ContainerStatus", "CreateContainer", "Exec", "ExecSync",
    "ImageFsInfo", "ImageStatus", "ListContainerStats", "ListContainers", "ListImages", "ListMetricDescriptors",
    "ListPodSandbox", "ListPodSandboxMetrics", "ListPodSandboxStats", "PodSandboxStats", "PodSandboxStatus",
    "PortForward", "PullImage", "RemoveContainer", "RemoveImage", "RemovePodSandbox", "ReopenContainerLog",
    "RunPodSandbox", "RuntimeConfig", "StartContainer", "Status", "StopContainer", "StopPodSandbox",
    "UpdateContainerResources", "UpdatePodSandboxResources", "UpdateRuntimeConfig", "Version",
}  # fmt: skip
"""Every method of runtime.v1 and runtime.v1alpha2."""

_CONTAINERD = frozenset({
    "containers", "content", "diff", "events", "images", "introspection", "leases", "mounts", "namespaces", "sandbox",
    "snapshots", "streaming", "tasks", "transfer", "version",
})  # fmt: skip
"""Third part of the names of containerd's own services: containerd.services.tasks.v1.Tasks."""

STATUSES = frozenset({
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
})  # fmt: skip
"""Names of the status codes (statuscodes.md of gRPC)."""

_ENDS = {"client_cancel": "cancelled_by_client", "deadline": "deadline", "connection": "connection_lost"}


def is_cri(service: str | None) -> bool:
    """Whether a call is CRI, or may be: on a connection older than the tracer the service can be unknown."""
    return service is None or service.startswith("runtime.")


@lru_cache(maxsize=256)
def method(service: str | None, name: str | None) -> str:
    """A CRI method's own name; of containerd's services the service alone: "containerd.tasks"."""
    if name is None:
        return UNKNOWN
    if is_cri(service):
        return name if name in CRI_METHODS else OTHER
    match (service or "").split("."):
        case ["containerd", "services", part, *_] if part in _CONTAINERD:
            return f"containerd.{part}"
    return OTHER


def status(name: str | None, ended_by: str | None) -> str:
    """The status on the wire; without one, what ended the call."""
    if name is None:
        return _ENDS.get(ended_by or "", UNKNOWN)
    return name if name in STATUSES else UNKNOWN


def client(role: str) -> str:
    """What a client is, as far as series tell clients apart: kubelet or other."""
    return role if role == "kubelet" else OTHER
