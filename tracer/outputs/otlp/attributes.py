"""Attributes of spans: OpenTelemetry's names where its semantic conventions have one, `criscope.` and ours elsewhere.

Only fields of rows, which hold no secret. What is null has no attribute.
"""

from typing import Any

Value = str | bool | int | float
Attributes = dict[str, Value]

CODES = {
    name: code
    for code, name in enumerate((
        "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
        "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
        "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
    ))
}  # fmt: skip
"""Numbers of the status codes (statuscodes.md of gRPC)."""

_CALL = (
    "method_source", "api", "stream", "connection", "request_wait_seconds", "service_seconds", "response_wait_seconds",
    "ended_by", "deadline_seconds", "request_bytes", "response_bytes", "complete", "sandbox_id",
)  # fmt: skip
_RELIST = (
    "kind", "interval_seconds", "list_sandboxes_seconds", "list_containers_seconds", "inspect_seconds", "sandboxes",
    "containers", "outcome", "complete",
)  # fmt: skip
_SYNC_PASS = ("kind", "trigger", "config_seen", "config_source", "outcome", "complete")
_STEP = ("kind", "name", "signal", "status", "command", "sandbox_id", "exec_id")


def of_call(fields: dict[str, Any], stage: str | None) -> Attributes:
    """`stage`: of the sync pass, that the call is a part of."""
    client, activity, status = fields["client"], fields["activity"], fields["status"]
    return _known({
        "rpc.system": "grpc",
        "rpc.service": fields["service"],
        "rpc.method": fields["method"],
        "rpc.grpc.status_code": CODES.get(status),
        "error.type": status if status not in (None, "OK") else _ENDS.get(fields["ended_by"]),
        "network.transport": "unix",
        "server.address": fields["runtime"],
        "container.image.name": fields["image"],
        **_place(fields),
        "criscope.call.id": fields["id"],
        "criscope.call.activity": activity["kind"],
        "criscope.call.activity_id": activity["id"],
        "criscope.call.client_pid": client["pid"],
        "criscope.call.client_comm": client["comm"],
        "criscope.call.client_role": client["role"],
        "criscope.call.pass_stage": stage,
        **{f"criscope.call.{name}": fields[name] for name in _CALL},
    })  # fmt: skip


def of_relist(fields: dict[str, Any]) -> Attributes:
    return _known({
        "criscope.relist.id": fields["id"],
        **{f"criscope.relist.{name}": fields[name] for name in _RELIST},
    })  # fmt: skip


def of_sync_pass(fields: dict[str, Any]) -> Attributes:
    return _known({
        **_pod(fields["pod"]),
        "criscope.sync_pass.id": fields["id"],
        **{f"criscope.sync_pass.{name}": fields[name] for name in _SYNC_PASS},
    })  # fmt: skip


def of_step(fields: dict[str, Any]) -> Attributes:
    return _known({
        "process.pid": fields["pid"],
        "process.exit.code": fields["exit_code"],
        **_place(fields),
        "criscope.step.id": fields["id"],
        **{f"criscope.step.{name}": fields[name] for name in _STEP},
    })  # fmt: skip


def of_event(fields: dict[str, Any]) -> Attributes:
    """Of a PLEG event."""
    return _known({
        **_pod(fields["pod"]),
        "container.id": fields["container_id"],
        "criscope.pleg_event.id": fields["id"],
    })  # fmt: skip


_ENDS = {"client_cancel": "cancelled_by_client", "deadline": "deadline", "connection": "connection_lost"}
"""Of a call without a status: the words of the `status` filter and of the metrics."""


def _pod(pod: dict[str, str] | None) -> dict[str, Value | None]:
    if pod is None:
        return {}
    return {"k8s.namespace.name": pod["namespace"], "k8s.pod.name": pod["name"], "k8s.pod.uid": pod["uid"]}


def _place(fields: dict[str, Any]) -> dict[str, Value | None]:
    """Pod and container of a call or step."""
    container = fields["container"] or {"id": None, "name": None, "attempt": None}
    return {
        **_pod(fields["pod"]),
        "k8s.container.name": container["name"],
        "k8s.container.restart_count": container["attempt"],
        "container.id": container["id"],
    }


def _known(attributes: dict[str, Value | None]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}
