"""The words and fields shown outside (docs/rest.md), made from what the stages found."""

from typing import Any

from tracer import stamps
from tracer.chains import Chain
from tracer.facts import STREAMS, Container, CriCall, Pod
from tracer.findings.finding import Finding
from tracer.findings.processes import evidence, telling
from tracer.kubelet.passes import Stage, SyncPass
from tracer.kubelet.pleg import PlegEvent
from tracer.kubelet.relists import Relist
from tracer.kubelet.runs import ActivityKind
from tracer.node import NodeEvent
from tracer.rows import Row, rfc3339
from tracer.runtime.step import Step

NS = 1_000_000_000


_SOURCES = ("file", "api", "http")


def seconds(begin: int | None, end: int | None) -> float | None:
    """Seconds between two stamps, never negative (stamps of two CPUs may cross by microseconds); None if one lacks."""
    if begin is None or end is None:
        return None
    return max(0, end - begin) / NS


def in_seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / NS


def pod(value: Pod | None) -> dict[str, str] | None:
    return {"namespace": value.namespace, "name": value.name, "uid": value.uid} if value else None


def container(value: Container | None, container_id: str | None) -> dict[str, Any] | None:
    if value is not None:
        return {"id": value.id or container_id, "name": value.name, "attempt": value.attempt}
    return {"id": container_id, "name": None, "attempt": None} if container_id else None


class Rows:
    """Makes rows; `offset` is wall clock minus monotonic clock, ns."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def call(
        self, call: CriCall, role: str, kind: ActivityKind, activity_id: str | None, now: int | None = None
    ) -> Row:
        """`now`, monotonic ns, for an open call: its waits are told as far as they got."""
        rpc = call.rpc
        at = now or rpc.start
        peer = rpc.peer
        start = rpc.start + self.offset
        fields = {
            "id": rpc.id,
            "runtime": peer.path,
            "connection": peer.connection,
            "stream": rpc.stream,
            "client": {"pid": peer.client_pid, "comm": peer.client_comm, "role": role},
            "service": call.service,
            "method": call.method,
            "method_source": call.method_source,
            "api": call.api,
            "start": rfc3339(start),
            "duration_seconds": seconds(rpc.start, rpc.end),
            "stage": stamps.stage(rpc),
            "request_wait_seconds": in_seconds(stamps.request_wait(rpc, at)),
            "service_seconds": in_seconds(stamps.service(rpc, at)),
            "response_wait_seconds": in_seconds(stamps.response_wait(rpc, at)),
            "status": rpc.status,
            "ended_by": rpc.ended_by,
            "error": rpc.error or None,
            "deadline_seconds": None if rpc.deadline_ns is None else rpc.deadline_ns / NS,
            "request_bytes": rpc.request_bytes,
            "response_bytes": rpc.response_bytes,
            "streaming": call.method in STREAMS,
            "complete": rpc.complete,
            "pod": pod(call.pod),
            "container": container(call.container, call.container_id),
            "sandbox_id": call.sandbox_id,
            "image": call.image,
            "activity": {"kind": kind, "id": activity_id},
            "trace_id": rpc.trace,
            "span_id": rpc.span,
        }
        return Row("call", rpc.id, start, None if rpc.end is None else rpc.end + self.offset, fields)

    def relist(self, relist: Relist) -> Row:
        start = relist.start + self.offset
        first, second = relist.list_sandboxes, relist.list_containers
        inspected = [seconds(item.start, item.end) for item in relist.inspections]
        fields = {
            "id": relist.id,
            "kind": relist.kind,
            "start": rfc3339(start),
            "duration_seconds": seconds(relist.start, relist.end),
            "interval_seconds": None if relist.interval is None else relist.interval / NS,
            "list_sandboxes_seconds": seconds(first.rpc.start, first.rpc.end) if first else None,
            "list_containers_seconds": seconds(second.rpc.start, second.rpc.end) if second else None,
            "inspect_seconds": sum(value for value in inspected if value is not None),
            "sandboxes": first.items if first and first.sandboxes is not None else None,
            "containers": second.items if second and second.containers is not None else None,
            "inspections": [
                {
                    "pod": pod(item.pod),
                    "start": rfc3339(item.start + self.offset),
                    "duration_seconds": seconds(item.start, item.end),
                    "calls": [call.id for call in item.calls],
                }
                for item in relist.inspections
            ],
            "outcome": relist.outcome,
            "complete": relist.complete,
            "calls": [call.id for call in relist.calls],
            "events": [self.event(event).fields for event in relist.events],
        }
        return Row("relist", relist.id, start, None if relist.end is None else relist.end + self.offset, fields)

    def event(self, event: PlegEvent) -> Row:
        time = event.time + self.offset
        fields = {
            "id": event.id,
            "time": rfc3339(time),
            "type": event.type,
            "pod": pod(event.pod),
            "pod_uid": event.pod.uid,
            "container_id": event.container_id,
            "relist": event.relist,
        }
        return Row("pleg_event", event.id, time, time, fields)

    def sync_pass(self, sync: SyncPass) -> Row:
        start = sync.start + self.offset
        made = next((call for call in sync.calls if call.method == "RunPodSandbox"), None)
        fields = {
            "id": sync.id,
            "pod": pod(sync.pod),
            "kind": sync.kind,
            "trigger": sync.trigger,
            "config_seen": made.seen if made else None,
            "config_source": made.source if made and made.source in _SOURCES else None,
            "start": rfc3339(start),
            "duration_seconds": seconds(sync.start, sync.end),
            "stages": [self._stage(stage) for stage in sync.stages],
            "calls": [call.id for call in sync.calls],
            "outcome": sync.outcome,
            "complete": sync.complete,
        }
        return Row("sync_pass", sync.id, start, None if sync.end is None else sync.end + self.offset, fields)

    def finding(self, finding: Finding) -> Row:
        verdict = finding.verdict
        start = finding.start + self.offset
        looks = [(verdict.processes[pid], seen) for pid, seen in finding.observed.items() if pid in verdict.processes]
        told = [f" {who} (process {seen.pid}) {what}." for who, seen in looks if (what := telling(seen))]
        unknown = verdict.unknown if told else (*verdict.unknown_process, *verdict.unknown)
        end = None if finding.end is None else finding.end + self.offset
        fields = {
            "id": finding.id,
            "kind": verdict.kind,
            "severity": verdict.severity,
            "state": "active" if end is None else "ended",
            "summary": verdict.summary + "".join(told),
            "start": rfc3339(start),
            "end": None if end is None else rfc3339(end),
            "duration_seconds": seconds(finding.start, finding.end),
            "pods": [pod(each) for each in verdict.pods],
            "calls": [call.id for call in verdict.calls],
            "evidence": [
                {
                    "time": None if each.time is None else rfc3339(each.time + self.offset),
                    "text": each.text,
                    "call": each.call,
                    "step": each.step,
                }
                for each in (*verdict.evidence, *(evidence(seen, who) for who, seen in looks))
            ],
            "confidence": verdict.confidence,
            "completeness": "complete" if finding.complete else "incomplete",
            "unknown": list(unknown),
            "next_steps": list(verdict.next_steps),
        }
        return Row("finding", finding.id, start, end, fields)

    def step(self, step: Step) -> Row:
        start = step.start + self.offset
        end = None if step.end is None else step.end + self.offset
        fields = {
            "id": step.id,
            "kind": step.kind,
            "name": step.name,
            "call": step.call.id if step.call else None,
            "parent": step.parent,
            "start": rfc3339(start),
            "duration_seconds": seconds(step.start, step.end),
            "pid": step.pid,
            "exit_code": step.exit_code,
            "signal": step.signal,
            "status": step.status,
            "error": step.error,
            "command": step.command,
            "container_id": step.container_id,
            "sandbox_id": step.sandbox_id,
            "exec_id": step.exec_id,
            "pod": pod(step.pod),
            "container": container(step.container, step.container_id),
        }
        return Row("step", step.id, start, end, fields)

    def exit(self, chain: Chain) -> Row:
        begin = (chain.begin or 0) + self.offset
        last = max((at for at in (chain.seen, chain.acted, chain.restarted) if at is not None), default=None)
        names = ("died", "noticed", "handled", "seen", "acted", "restarted")
        ident = f"e{chain.container_id}"
        fields = {
            "id": ident,
            "start": rfc3339(begin),
            "container_id": chain.container_id,
            "pod": pod(chain.pod),
            "container": container(chain.container, chain.container_id),
            "exit_status": chain.exit_status,
            "oom": chain.oom,
            **{name: None if (at := getattr(chain, name)) is None else rfc3339(at + self.offset) for name in names},
            "detection_seconds": seconds(chain.died, chain.seen),
            "reaction_seconds": seconds(chain.seen, chain.acted),
            "restart_seconds": seconds(chain.died, chain.restarted),
        }
        return Row("exit", ident, begin, None if last is None else last + self.offset, fields)

    def node_event(self, event: NodeEvent) -> Row:
        time = event.time + self.offset
        fields = {
            "id": event.id,
            "time": rfc3339(time),
            "kind": event.kind,
            "runtime": event.runtime,
            "pid": event.pid,
            "comm": event.comm,
            "pod": pod(event.pod),
            "container_id": event.container_id,
            "text": event.text,
        }
        return Row("node_event", event.id, time, time, fields)

    def _stage(self, stage: Stage) -> dict[str, Any]:
        return {
            "name": stage.name,
            "start": rfc3339(stage.start + self.offset),
            "duration_seconds": seconds(stage.start, stage.end),
            "calls": [call.id for call in stage.calls],
        }
