"""What is secret in the CRI's messages: plans made from the descriptors of runtime.v1.

v1alpha2 messages follow the plans of v1, which kept every field's number and type (tests/unit/test_cri.py).
"""

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, Union

from google.protobuf.descriptor import FieldDescriptor

from tracer.protocol import api_pb2
from tracer.protowire import FIXED32, FIXED64, LENGTH, VARINT
from tracer.streams import Way

SECRET_FIELDS = frozenset({
    "AuthConfig.username", "AuthConfig.password", "AuthConfig.auth", "AuthConfig.server_address",
    "AuthConfig.identity_token", "AuthConfig.registry_token",
    "KeyValue.value",  # environment of a container
    "ContainerConfig.command", "ContainerConfig.args",
    "ExecSyncRequest.cmd", "ExecRequest.cmd",
    "ExecSyncResponse.stdout", "ExecSyncResponse.stderr",
    "ExecResponse.url", "AttachResponse.url", "PortForwardResponse.url",  # hold a one-time token
    "ContainerStatus.message",  # the container's own last words (terminationMessagePath)
    "WindowsSandboxSecurityContext.credential_spec", "WindowsContainerSecurityContext.credential_spec",
})  # fmt: skip
"""Fields that are overwritten, besides the values of `annotations` and `info`."""

KNOWN_ANNOTATIONS = frozenset({
    # pkg/kubelet/kuberuntime/labels.go; not io.kubernetes.container.preStopHandler, which holds a command line
    b"io.kubernetes.container.hash",
    b"io.kubernetes.container.ports",
    b"io.kubernetes.container.restartCount",
    b"io.kubernetes.container.terminationMessagePath",
    b"io.kubernetes.container.terminationMessagePolicy",
    b"io.kubernetes.pod.deletionGracePeriod",
    b"io.kubernetes.pod.terminationGracePeriod",
    # pkg/kubelet/types/pod_update.go
    b"kubernetes.io/config.hash",
    b"kubernetes.io/config.mirror",
    b"kubernetes.io/config.seen",
    b"kubernetes.io/config.source",
    # containerd internal/cri/annotations
    b"io.kubernetes.cri.container-name",
    b"io.kubernetes.cri.container-type",
    b"io.kubernetes.cri.image-name",
    b"io.kubernetes.cri.sandbox-id",
    b"io.kubernetes.cri.sandbox-name",
    b"io.kubernetes.cri.sandbox-namespace",
    b"io.kubernetes.cri.sandbox-uid",
})  # fmt: skip
"""Annotations that the kubelet and the runtime themselves write. Names and no prefix: under io.kubernetes. CRI-O keeps
copies of all of a pod's annotations (io.kubernetes.cri-o.Annotations)."""


class Rule(IntEnum):
    """What to do with a field that is not a message of its own."""

    KEEP = 0
    OVERWRITE = 1
    ANNOTATIONS = 2  # map<string, string>: values go, but for known keys
    VALUES = 3  # map<string, string>: all values go
    GUESS = 4  # bytes of a message whose schema is not known


@dataclass(slots=True, eq=False)
class Plan:
    """What to do with each field of a message, by its tag (number << 3 | wire type)."""

    name: str
    rules: dict[int, Union[Rule, "Plan"]] = field(default_factory=dict)


_plans: dict[str, Plan] = {}


def plan_of(descriptor: Any) -> Plan:
    """The plan of a protobuf message."""
    known = _plans.get(descriptor.full_name)
    if known is not None:
        return known
    plan = _plans[descriptor.full_name] = Plan(descriptor.name)
    for member in descriptor.fields:
        for wire in _wires(member):
            plan.rules[member.number << 3 | wire] = _rule(descriptor, member)
    return plan


def _rule(descriptor: Any, member: Any) -> Rule | Plan:
    nested = member.message_type
    if nested is None:
        secret = f"{descriptor.name}.{member.name}" in SECRET_FIELDS
        return Rule.OVERWRITE if secret else Rule.KEEP
    if nested.GetOptions().map_entry and member.name == "annotations":
        return Rule.ANNOTATIONS
    if nested.GetOptions().map_entry and member.name == "info":
        return Rule.VALUES
    return plan_of(nested)


_FIXED64_TYPES = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64)
_FIXED32_TYPES = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32)
_LENGTH_TYPES = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def _wires(member: Any) -> tuple[int, ...]:
    """Wire types a field may have: a repeated number is written packed or one by one."""
    if member.type in _LENGTH_TYPES:
        return (LENGTH,)
    wire = FIXED64 if member.type in _FIXED64_TYPES else FIXED32 if member.type in _FIXED32_TYPES else VARINT
    return (wire, LENGTH) if member.is_repeated else (wire,)


def request_of(plan: Plan) -> Plan:
    """The plan of the request that a message of this plan answers, or is."""
    return _requests()[plan]


@cache
def _requests() -> dict[Plan, Plan]:
    methods = [method for service in api_pb2.DESCRIPTOR.services_by_name.values() for method in service.methods]
    asked = [plan_of(method.input_type) for method in methods]
    return {
        **dict(zip(asked, asked, strict=True)),
        **{plan_of(m.output_type): p for m, p in zip(methods, asked, strict=True)},
    }


_LISTED = {
    "StreamPodSandboxes": "ListPodSandbox",
    "StreamContainers": "ListContainers",
    "StreamContainerStats": "ListContainerStats",
    "StreamPodSandboxStats": "ListPodSandboxStats",
    "StreamPodSandboxMetrics": "ListPodSandboxMetrics",
    "StreamImages": "ListImages",
}
"""KEP-5825: messages of a streamed list have the same fields as those of the list call."""


@lru_cache(maxsize=512)
def plan_for(path: str | None, way: Way) -> Plan | None:
    """The plan of a CRI method's request or response; None when the method is not known or not of the CRI.

    `/runtime.v1.RuntimeService/Status`, response -> the plan of StatusResponse.
    """
    if path is None:
        return None
    service, _, method = path[1:].rpartition("/")
    package, _, name = service.rpartition(".")
    if package not in ("runtime.v1", "runtime.v1alpha2") or name not in api_pb2.DESCRIPTOR.services_by_name:
        return None
    known = api_pb2.DESCRIPTOR.services_by_name[name].methods_by_name.get(_LISTED.get(method, method))
    if known is None:
        return None
    return plan_of(known.input_type if way == "request" else known.output_type)
