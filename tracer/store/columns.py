"""What of a row is filtered by: the columns beside its packed JSON."""

from typing import Any, NamedTuple

from pydantic_core import to_json

from tracer.rows import Row
from tracer.store.packing import pack

# A relist of a node with 5,000 changed containers is about 750 kB; what is larger is no row of ours, and would make
# a page or a transaction of no known size.
ROW_BYTES = 1 << 20

# SQLite's integers are signed 64-bit; Unix ns reach that in the year 2262.
INTEGER_MAX = (1 << 63) - 1

# Words for a call that has no gRPC status of its own, by what ended it.
_NO_STATUS = {
    None: "open",
    "client_cancel": "cancelled_by_client",
    "deadline": "deadline",
    "connection": "connection_lost",
}

Pod = tuple[str, str, str]
"""(namespace, name, uid); an unknown part is empty."""


class Columns(NamedTuple):
    """One row as it is written, `pod` still to be replaced by its key."""

    kind: str
    id: str
    start: int
    end: int | None
    duration: float | None
    method: str | None
    status: str | None
    activity: str | None
    pod: Pod | None
    packed: bytes


def status_word(fields: dict[str, Any]) -> str:
    """The gRPC status of a call's fields, or the word for having none on the wire.

    `open`, `cancelled_by_client`, `deadline`, `connection_lost`, or `unknown`: the server ended it, unread.
    """
    return fields.get("status") or _NO_STATUS.get(fields.get("ended_by"), "unknown")


def columns(row: Row) -> Columns:
    """The columns of `row`. Raises ValueError when it cannot be stored: no JSON, too large, or times out of range."""
    fields = row.fields
    # Three times as fast as the json module, which would cost half of what the whole tracer may.
    json = to_json(fields, inf_nan_mode="null")
    if len(json) > ROW_BYTES:
        raise ValueError(f"{row.kind} {row.id} has {len(json)} bytes")
    if not 0 <= row.start <= INTEGER_MAX or (row.end is not None and not 0 <= row.end <= INTEGER_MAX):
        raise ValueError(f"{row.kind} {row.id} has times out of range")
    method = status = activity = None
    match row.kind:
        case "call":
            method = fields.get("method")
            status = status_word(fields)
            activity = (fields.get("activity") or {}).get("kind")
        case "pleg_event":
            status = fields.get("type")
        case "relist":
            status = fields.get("outcome") or "open"
            activity = "pod_relist" if fields.get("kind") == "pod" else "relist"
        case "sync_pass":
            status = fields.get("outcome") or "open"
            activity = "terminate" if fields.get("kind") == "terminate" else "sync"
        case "step":
            method = fields.get("name")
            status = fields.get("status") or _exit_word(row.end, fields)
            activity = fields.get("kind")
        case "finding":
            method = fields.get("kind")
            status = fields.get("state")
            activity = fields.get("severity")
        case "exit":
            status = next((link for link in ("restarted", "acted", "seen") if fields.get(link)), "unseen")
        case "node_event":
            method = fields.get("kind")
    return Columns(
        row.kind,
        row.id,
        row.start,
        row.end,
        fields.get("duration_seconds"),
        method,
        status,
        activity,
        _pod(fields),
        pack(json),
    )


def _exit_word(end: int | None, fields: dict[str, Any]) -> str:
    """How a process of the runtime ended: open, ok, failed, or unknown."""
    if end is None:
        return "open"
    code = fields.get("exit_code")
    if code is None:
        return "unknown" if fields.get("signal") is None else "failed"
    return "failed" if code else "ok"


def _pod(fields: dict[str, Any]) -> Pod | None:
    # A finding is found by its first pod.
    pod = fields.get("pod") or next(iter(fields.get("pods", ())), None)
    if not pod:
        return None
    # A PLEG event names its pod's uid beside the pod.
    return (pod.get("namespace") or "", pod.get("name") or "", pod.get("uid") or fields.get("pod_uid") or "")
