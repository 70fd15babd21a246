"""Rows as the pipeline makes them, for the tests of everything that takes rows."""

import base64
import random
from typing import Any

from tracer.rows import Row, rfc3339

SECOND = 1_000_000_000
NOW = 1_796_069_927_930_080_560


def noise(length: int) -> str:
    """Text that cannot be packed to less than three quarters."""
    return base64.b64encode(random.randbytes(length * 3 // 4)).decode()


def pod(name: str = "web-0", uid: str = "6f1d", namespace: str = "default") -> dict[str, str]:
    return {"namespace": namespace, "name": name, "uid": uid}


def call(id_: str, start: int = NOW, seconds: float | None = 0.001, **fields: Any) -> Row:
    """A call that ended after `seconds`, or is open."""
    ended = seconds is not None
    end = start + int(seconds * SECOND) if seconds is not None else None
    return Row(
        "call",
        id_,
        start,
        end,
        {
            "id": id_,
            "runtime": "/run/containerd/containerd.sock",
            "connection": "c3",
            "stream": 17,
            "client": {"pid": 12, "comm": "kubelet", "role": "kubelet"},
            "service": "runtime.v1.RuntimeService",
            "method": "ListContainers",
            "method_source": "header",
            "api": "v1",
            "start": rfc3339(start),
            "duration_seconds": seconds,
            "request_wait_seconds": 0.0001 if ended else None,
            "service_seconds": 0.0008 if ended else None,
            "response_wait_seconds": 0.0001 if ended else None,
            "status": "OK" if ended else None,
            "ended_by": "server" if ended else None,
            "error": None,
            "deadline_seconds": 120.0,
            "request_bytes": 7,
            "response_bytes": 1234 if ended else 0,
            "streaming": False,
            "complete": True,
            "pod": None,
            "container": None,
            "sandbox_id": None,
            "image": None,
            "activity": {"kind": "relist", "id": "rc3-15"},
            "trace_id": None,
            "span_id": None,
        }
        | fields,
    )


def relist(id_: str, start: int = NOW, seconds: float | None = 0.003, **fields: Any) -> Row:
    end = start + int(seconds * SECOND) if seconds is not None else None
    return Row(
        "relist",
        id_,
        start,
        end,
        {
            "id": id_,
            "kind": "generic",
            "start": rfc3339(start),
            "duration_seconds": seconds,
            "interval_seconds": 1.004,
            "list_sandboxes_seconds": 0.001,
            "list_containers_seconds": 0.001,
            "inspect_seconds": 0.001,
            "sandboxes": 1,
            "containers": 1,
            "inspections": [
                {"pod": pod(), "start": rfc3339(start), "duration_seconds": 0.001, "calls": ["c3-19", "c3-21"]}
            ],
            "outcome": "open" if seconds is None else "ok",
            "complete": True,
            "calls": ["c3-15", "c3-17", "c3-19", "c3-21"],
            "events": [event(f"e{id_}", start).fields],
        }
        | fields,
    )


def event(id_: str, time: int = NOW, **fields: Any) -> Row:
    return Row(
        "pleg_event",
        id_,
        time,
        time,
        {
            "id": id_,
            "time": rfc3339(time),
            "type": "ContainerStarted",
            "pod": pod(),
            "pod_uid": "6f1d",
            "container_id": "ab" * 32,
            "relist": "rc3-15",
        }
        | fields,
    )


def sync_pass(id_: str, start: int = NOW, seconds: float | None = 0.4, **fields: Any) -> Row:
    end = start + int(seconds * SECOND) if seconds is not None else None
    return Row(
        "sync_pass",
        id_,
        start,
        end,
        {
            "id": id_,
            "pod": pod(),
            "kind": "create",
            "trigger": "config",
            "config_seen": None,
            "config_source": None,
            "start": rfc3339(start),
            "duration_seconds": seconds,
            "stages": [{"name": "sandbox", "start": rfc3339(start), "duration_seconds": 0.2, "calls": ["c3-23"]}],
            "calls": ["c3-23"],
            "outcome": "open" if seconds is None else "ok",
            "complete": True,
        }
        | fields,
    )


def step(id_: str, start: int = NOW, seconds: float | None = 0.05, **fields: Any) -> Row:
    return Row(
        "step",
        id_,
        start,
        None if seconds is None else start + int(seconds * SECOND),
        {
            "id": id_,
            "kind": "runc",
            "name": "create",
            "call": "c3-23",
            "parent": None,
            "start": rfc3339(start),
            "duration_seconds": seconds,
            "pid": 4711,
            "exit_code": None if seconds is None else 0,
            "signal": None,
            "status": None,
            "error": None,
            "command": None,
            "container_id": "ab" * 32,
            "sandbox_id": None,
            "exec_id": None,
            "pod": pod(),
            "container": None,
        }
        | fields,
    )


def finding(id_: str, start: int = NOW, seconds: float | None = 3.0, **fields: Any) -> Row:
    end = None if seconds is None else start + int(seconds * SECOND)
    return Row(
        "finding",
        id_,
        start,
        end,
        {
            "id": id_,
            "kind": "shim_hung",
            "severity": "warning",
            "state": "active" if end is None else "ended",
            "summary": "The shim does not answer.",
            "start": rfc3339(start),
            "end": None if end is None else rfc3339(end),
            "duration_seconds": seconds,
            "pods": [pod()],
            "calls": ["c3-23"],
            "evidence": [{"time": rfc3339(start), "text": "asked", "call": "c3-23", "step": None}],
            "confidence": "high",
            "completeness": "complete",
            "unknown": [],
            "next_steps": ["look at it"],
        }
        | fields,
    )


def node_event(id_: str, time: int = NOW, **fields: Any) -> Row:
    return Row(
        "node_event",
        id_,
        time,
        time,
        {
            "id": id_,
            "time": rfc3339(time),
            "kind": "runtime_started",
            "runtime": "/run/containerd/containerd.sock",
            "pid": 12,
            "comm": "containerd",
            "pod": None,
            "container_id": None,
            "text": "containerd serves its socket.",
        }
        | fields,
    )


def exit_(id_: str, start: int = NOW, **fields: Any) -> Row:
    return Row(
        "exit",
        id_,
        start,
        start + SECOND,
        {
            "id": id_,
            "start": rfc3339(start),
            "container_id": "ab" * 32,
            "pod": pod(),
            "container": None,
            "exit_status": 137,
            "oom": False,
            "died": rfc3339(start),
            "noticed": None,
            "handled": None,
            "seen": rfc3339(start + SECOND),
            "acted": None,
            "restarted": None,
            "detection_seconds": 1.0,
            "reaction_seconds": None,
            "restart_seconds": None,
        }
        | fields,
    )
