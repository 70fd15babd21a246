"""Activities of calls that belong to no run: their method says what they are."""

from tracer.facts import CriCall, Scope
from tracer.kubelet.runs import NO_FILTER_BYTES, ActivityKind, unfiltered

_ALONE: dict[str, ActivityKind] = {
    "Status": "runtime_status",
    "Version": "node_version",
    "RuntimeConfig": "startup",
    "UpdateRuntimeConfig": "startup",
    "ImageFsInfo": "stats",
    "ListContainerStats": "stats",
    "ListPodSandboxStats": "stats",
    "ContainerStats": "stats",
    "PodSandboxStats": "stats",
    "ListMetricDescriptors": "stats",
    "ListPodSandboxMetrics": "stats",
    "PullImage": "image_pull",
    "RemoveImage": "image_gc",
    "Exec": "exec_api",
    "Attach": "exec_api",
    "PortForward": "exec_api",
    "CheckpointContainer": "exec_api",
    "ReopenContainerLog": "log_rotation",
    "RemoveContainer": "container_gc",
    "RemovePodSandbox": "sandbox_gc",
    "GetContainerEvents": "relist",
    "ImageStatus": "sync",  # whose is not known: several pods start at once with this image
    "RunPodSandbox": "sync",  # these five by pod workers only
    "CreateContainer": "sync",
    "StartContainer": "sync",
    "UpdatePodSandboxResources": "sync",
}


def alone(call: CriCall, *, starting: bool = False) -> ActivityKind:
    """What a call is that no run claims. `starting`: the kubelet asked for the runtime's status not once yet."""
    method = call.asks or ""
    if method == "Version" and (starting or call.rpc.request_bytes == NO_FILTER_BYTES):
        return "startup"  # with no version in it, it is the check of a new connection (`validateServiceConnection`)
    if method == "ImageFsInfo" and starting:
        return "startup"
    if method == "ListContainers" and call.scope is Scope.ALL and unfiltered(call):
        return "startup"  # only the container manager does (`cm/helpers.go`)
    if method == "ExecSync" and call.rpc.deadline_ns is not None:
        return "probe"  # hooks and requests have no deadline (`execSyncV1`)
    if method == "UpdateContainerResources":
        return "cpu_manager" if call.cpuset_only else "sync"
    return _ALONE.get(method, "unknown")
