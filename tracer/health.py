"""PLEG health now: what the kubelet's own check will say, and what a running relist waits for."""

from typing import Any

from tracer import fields, stamps
from tracer.facts import CriCall
from tracer.fields import NS, seconds
from tracer.kubelet.kubelet import Kubelet
from tracer.kubelet.relists import EVENTED_UNHEALTHY_AFTER_NS, UNHEALTHY_AFTER_NS, Relist
from tracer.rows import rfc3339


def pleg(kubelets: list[tuple[str, int, Kubelet]], now: int, offset: int) -> dict[str, Any]:
    """The fields of `GET /api/v1/pleg`: the kubelet that is nearest to unhealthy, and all of them in `kubelets`.

    `kubelets`: (runtime path, pid, kubelet); `now` monotonic ns; `offset` wall clock minus monotonic clock.
    """
    states = [_state(path, pid, kubelet, now, offset) for path, pid, kubelet in kubelets if kubelet.relist is not None]
    states.sort(key=lambda state: state["last_relist_start"] or "")
    worst = states[0] if states else dict.fromkeys(_FIELDS)
    return {"time": rfc3339(now + offset), **worst, "kubelets": states}


_FIELDS = (
    "runtime", "kubelet_pid", "healthy", "age_seconds", "seconds_until_unhealthy", "last_relist_start", "stage",
    "stage_seconds", "relist", "relist_age_seconds", "waiting_for",
)  # fmt: skip


def _state(path: str, pid: int, kubelet: Kubelet, now: int, offset: int) -> dict[str, Any]:
    run = kubelet.relist
    assert run is not None
    last = kubelet.last_listed
    running = run.relist if not run.over else None
    stage, since = _stage(running, run.ready, kubelet.relist_end)
    waiting = running.waiting_for if running else None
    limit = EVENTED_UNHEALTHY_AFTER_NS if kubelet.evented else UNHEALTHY_AFTER_NS
    left = None if last is None else limit - (now - last)
    return {
        "runtime": path,
        "kubelet_pid": pid,
        "healthy": None if left is None else left > 0,
        "age_seconds": seconds(last, now),
        "seconds_until_unhealthy": None if left is None else left / NS,
        "last_relist_start": None if last is None else rfc3339(last + offset),
        "stage": stage,
        "stage_seconds": seconds(since, now),
        "relist": running.id if running else None,
        "relist_age_seconds": seconds(running.start, now) if running else None,
        "waiting_for": _call(waiting, now) if waiting else None,
    }


def _stage(relist: Relist | None, ready: int | None, ended: int | None) -> tuple[str, int | None]:
    """Where the PLEG is, and since when: one of its two lists, an inspection, its own work, or between relists."""
    if relist is None:
        return ("idle", ended)
    call = relist.waiting_for
    if call is None:
        return ("kubelet", ready)
    if call is relist.list_sandboxes:
        return ("list_sandboxes", call.rpc.start)
    if call is relist.list_containers:
        return ("list_containers", call.rpc.start)
    return ("inspect", call.rpc.start)


def _call(call: CriCall, now: int) -> dict[str, Any]:
    """The open call and how far it got: in the socket before the runtime, in the runtime, or before the kubelet."""
    rpc = call.rpc
    return {
        "id": rpc.id,
        "method": call.method,
        "age_seconds": seconds(rpc.start, now),
        "stage": stamps.stage(rpc),
        "pod": fields.pod(call.pod),
        "container": fields.container(call.container, call.container_id),
        "sandbox_id": call.sandbox_id,
    }
