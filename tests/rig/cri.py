"""A CRI client whose every call is written to the oracle."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2
from google.protobuf import message_factory
from google.protobuf.message import Message

from tests.rig.channel import Channel, Exchange
from tests.rig.oracle import Oracle, Scope

TIMEOUT = 120.0
"""The kubelet's runtimeRequestTimeout, seconds."""

_SERVICES = [api_pb2.DESCRIPTOR.services_by_name[name] for name in ("RuntimeService", "ImageService")]
_METHODS = {method.name: method for service in _SERVICES for method in service.methods}


class CallError(Exception):
    """A call that did not end well: `status` as gRPC names it, `ended` how (see `Exchange`)."""

    def __init__(self, method: str, exchange: Exchange) -> None:
        super().__init__(f"{method}: {exchange.status}: {exchange.details}")
        self.status = exchange.status
        self.ended = exchange.ended


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a call is about, as far as it is known when the call is made."""

    pod: dict[str, str] | None = None
    sandbox_id: str | None = None
    container_id: str | None = None
    container: str | None = None
    attempt: int | None = None
    image: str | None = None


NOBODY = Subject()

_USUAL = -1.0


class Client:
    """Two connections to one socket, as a kubelet has: one for the runtime service, one for images."""

    def __init__(self, socket: Path, oracle: Oracle, connect: Callable[[Path], Channel]) -> None:
        self._oracle = oracle
        self._channels = {service.full_name: connect(socket) for service in _SERVICES}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def call(
        self,
        method: str,
        request: Message,
        scope: Scope,
        subject: Subject = NOBODY,
        *,
        deadline: float | None = _USUAL,
        cancel_after: float | None = None,
    ) -> Any:
        """Make one call and return its answer (the last one of a stream). Raises CallError.

        `deadline` (seconds, None: none) replaces the kubelet's for this method; after `cancel_after` seconds the
        client gives the call up.
        """
        descriptor = _METHODS[method]
        service = descriptor.containing_service.full_name
        allowed = _deadline(method, request) if deadline == _USUAL else deadline
        number = self._oracle.number()
        scope.calls.append(number)
        sent = request.SerializeToString()
        exchange = self._channels[service].exchange(f"/{service}/{method}", sent, allowed, cancel_after)
        answer = exchange.messages[-1] if exchange.messages else b""
        parsed: Any = message_factory.GetMessageClass(descriptor.output_type).FromString(answer)
        if exchange.ended == "ok" and method == "RunPodSandbox":
            subject = replace(subject, sandbox_id=parsed.pod_sandbox_id)
        elif exchange.ended == "ok" and method == "CreateContainer":
            subject = replace(subject, container_id=parsed.container_id)
        self._oracle.write(
            "call",
            n=number,
            service=service,
            method=method,
            start=exchange.start,
            end=exchange.end,
            status=exchange.status,
            ended=exchange.ended,
            error=exchange.details or None,
            deadline_seconds=allowed,
            request_bytes=len(sent),
            response_bytes=len(answer) if exchange.messages else None,
            activity=scope.activity,
            activity_id=scope.id,
            **asdict(subject),
        )
        if exchange.ended != "ok":
            raise CallError(method, exchange)
        return parsed


def _deadline(method: str, request: Any) -> float | None:
    """As the kubelet's cri-client sets it (remote_runtime.go, remote_image.go)."""
    if method in ("PullImage", "GetContainerEvents"):
        return None
    if method == "ExecSync":
        return TIMEOUT + request.timeout if request.timeout else None
    if method == "StopContainer":
        return TIMEOUT + float(request.timeout)
    return TIMEOUT * 2 if method == "RunPodSandbox" else TIMEOUT
