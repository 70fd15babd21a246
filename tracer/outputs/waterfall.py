"""The start of a pod as a waterfall: from the moment the kubelet saw it to the first success of its probe."""

from collections.abc import Iterable
from typing import Any

from tracer.rows import rfc3339, unix_ns

NS = 1_000_000_000

MAX_ROWS = 2000
"""Rows of a pod looked at; a start makes some dozens."""


def waterfall(uid: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any] | None:
    """The fields of `GET /api/v1/pods/{namespace}/{name}/start`, or None when no start of the pod `uid` is there.

    `rows`: (kind, fields) of the pod, in any order. Only the latest start is told: from its latest sandbox on.
    """
    found = list(rows)
    calls = sorted((f for kind, f in found if kind == "call" and f["client"]["role"] == "kubelet"), key=_start)
    made = [call for call in calls if call["method"] == "RunPodSandbox" and call["status"] in ("OK", None)]
    if not made:
        return None
    sandbox = made[-1]
    begin = unix_ns(sandbox["start"])
    passes = [f for kind, f in found if kind == "sync_pass" and sandbox["id"] in f["calls"]]
    first = min((f for f in passes), key=_start, default=None)
    seen = first["config_seen"] if first and not _again(sandbox, made) else None
    steps = {f["id"]: f for kind, f in found if kind == "step"}
    bars = (
        [_bar("seen", seen, unix_ns(sandbox["start"]) - unix_ns(seen), "waiting for volumes, devices and a turn")]
        if seen
        else []
    )
    earliest = unix_ns(seen) if seen else begin - 600 * NS
    bars += [
        _of_call(call, call["activity"]["kind"], steps)
        for call in calls
        if call["activity"]["kind"] in ("volume", "device") and earliest <= unix_ns(call["start"]) <= begin
    ]
    bars += [_of_call(call, _STAGES[call["method"]], steps) for call in calls if _belongs(call, begin)]
    bars += _sights(found, begin)
    probe = next(
        (
            call for call in calls
            if call["activity"]["kind"] == "probe" and call["status"] == "OK" and unix_ns(call["start"]) >= begin
        ),
        None,
    )  # fmt: skip
    if probe:
        bars.append(_of_call(probe, "first_probe_answered", steps))
    bars.sort(key=lambda bar: bar["start"])
    ends = [unix_ns(bar["start"]) + round((bar["duration_seconds"] or 0.0) * NS) for bar in bars]
    return {
        "uid": uid,
        "start": bars[0]["start"],
        "duration_seconds": (max(ends) - unix_ns(bars[0]["start"])) / NS,
        "config_source": first["config_source"] if first else None,
        "complete": all(call["complete"] for call in calls if _belongs(call, begin)),
        "stages": bars,
    }


_STAGES = {
    "RunPodSandbox": "sandbox",
    "ImageStatus": "image",
    "PullImage": "pull",
    "CreateContainer": "create",
    "StartContainer": "start",
    "ExecSync": "hook",
}


def _belongs(call: dict[str, Any], begin: int) -> bool:
    if call["method"] not in _STAGES or unix_ns(call["start"]) < begin:
        return False
    return bool(call["method"] != "ExecSync" or call["activity"]["kind"] == "lifecycle_hook")


def _again(sandbox: dict[str, Any], made: list[dict[str, Any]]) -> bool:
    """Whether an earlier sandbox of the pod was made: the time the pod was seen says nothing of this start."""
    return any(call is not sandbox for call in made)


def _sights(found: list[tuple[str, dict[str, Any]]], begin: int) -> list[dict[str, Any]]:
    """The first time the PLEG saw each container running."""
    first: dict[str, dict[str, Any]] = {}
    for kind, event in sorted(found, key=lambda item: item[1].get("time") or ""):
        if kind == "pleg_event" and event["type"] == "ContainerStarted" and unix_ns(event["time"]) >= begin:
            first.setdefault(event["container_id"], event)
    return [_bar("pleg_sight", event["time"], 0, event["container_id"]) for event in first.values()]


def _of_call(call: dict[str, Any], stage: str, steps: dict[str, dict[str, Any]]) -> dict[str, Any]:
    container = call["container"]["name"] if call["container"] else None
    inside = sorted((step for step in steps.values() if step["call"] == call["id"]), key=_start)
    return {
        "stage": stage,
        "start": call["start"],
        "duration_seconds": call["duration_seconds"],
        "what": " ".join(filter(None, (call["method"], container or call["image"]))),
        "status": call["status"],
        "call": call["id"],
        "steps": [
            {"kind": s["kind"], "name": s["name"], "start": s["start"], "duration_seconds": s["duration_seconds"]}
            for s in inside
        ],
    }


def _bar(stage: str, start: str, lasted: int, what: str) -> dict[str, Any]:
    return {
        "stage": stage, "start": rfc3339(unix_ns(start)), "duration_seconds": max(0, lasted) / NS, "what": what,
        "status": None, "call": None, "steps": [],
    }  # fmt: skip


def _start(fields: dict[str, Any]) -> str:
    return str(fields["start"])
