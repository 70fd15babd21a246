"""A CRI client whose every call is written to the oracle, stamped next to the call itself."""

import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from cri_api.v1 import api_pb2
from google.protobuf import message_factory
from google.protobuf.message import Message

from tests.rig.oracle import Oracle, Scope

TIMEOUT = 120.0
"""The kubelet's runtimeRequestTimeout, seconds."""

MAX_RECEIVE_BYTES = 16 * 1024 * 1024
"""The kubelet's cri-client `maxMsgSize`."""

_SERVICES = [api_pb2.DESCRIPTOR.services_by_name[name] for name in ("RuntimeService", "ImageService")]
_METHODS = {method.name: method for service in _SERVICES for method in service.methods}


class CallError(Exception):
    """A call that did not end well: `status` as gRPC names it, `ended` how (error, cancelled, deadline)."""

    def __init__(self, method: str, status: str, ended: str, details: str) -> None:
        super().__init__(f"{method}: {status}: {details}")
        self.status = status
        self.ended = ended


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

    def __init__(self, socket: Path, oracle: Oracle) -> None:
        self._oracle = oracle
        options = [
            ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
            ("grpc.use_local_subchannel_pool", 1),  # else both channels would share one connection
            ("grpc.default_authority", "localhost"),
        ]
        self._channels = {
            service.full_name: grpc.insecure_channel(f"unix://{socket}", options=options) for service in _SERVICES
        }

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

        `deadline` (seconds, None: none) replaces the kubelet's for this method; `cancel_after` seconds the client
        gives the call up.
        """
        descriptor = _METHODS[method]
        allowed = _deadline(method, request) if deadline == _USUAL else deadline
        # Bytes in, bytes out: building and parsing the messages must not count as time of the call.
        sent = request.SerializeToString()
        number = self._oracle.number()
        scope.calls.append(number)
        answer, error = b"", None
        start = time.monotonic_ns()
        try:
            answer = self._invoke(descriptor, sent, allowed, cancel_after)
        except grpc.FutureCancelledError:
            error = CallError(method, "CANCELLED", "cancelled", "by this client")
        except grpc.RpcError as rpc_error:
            error = _error(method, rpc_error, allowed, time.monotonic_ns() - start)
        end = time.monotonic_ns()
        parsed: Any = message_factory.GetMessageClass(descriptor.output_type).FromString(answer)
        if method == "RunPodSandbox" and not error:
            subject = replace(subject, sandbox_id=parsed.pod_sandbox_id)
        elif method == "CreateContainer" and not error:
            subject = replace(subject, container_id=parsed.container_id)
        self._oracle.write(
            "call",
            n=number,
            service=descriptor.containing_service.full_name,
            method=method,
            start=start,
            end=end,
            status=error.status if error else "OK",
            ended=error.ended if error else "ok",
            deadline_seconds=allowed,
            request_bytes=len(sent),
            response_bytes=None if error else len(answer),
            activity=scope.activity,
            activity_id=scope.id,
            **asdict(subject),
        )
        if error:
            raise error
        return parsed

    def _invoke(self, method: Any, sent: bytes, deadline: float | None, cancel_after: float | None) -> bytes:
        service = method.containing_service.full_name
        path = f"/{service}/{method.name}"
        if method.server_streaming:
            messages = [*self._channels[service].unary_stream(path, None, None)(sent, timeout=deadline)]
            return messages[-1] if messages else b""
        call = self._channels[service].unary_unary(path, None, None)
        answer: bytes
        if cancel_after is None:
            answer = call(sent, timeout=deadline)
        else:
            future = call.future(sent, timeout=deadline)
            threading.Timer(cancel_after, future.cancel).start()
            answer = future.result()
        return answer


def _deadline(method: str, request: Any) -> float | None:
    """As the kubelet's cri-client sets it (remote_runtime.go, remote_image.go)."""
    if method in ("PullImage", "GetContainerEvents"):
        return None
    if method == "ExecSync":
        return TIMEOUT + request.timeout if request.timeout else None
    if method == "StopContainer":
        return TIMEOUT + float(request.timeout)
    return TIMEOUT * 2 if method == "RunPodSandbox" else TIMEOUT


def _error(method: str, error: Any, allowed: float | None, elapsed_ns: int) -> CallError:
    status = error.code().name
    # The runtime answers an overlong exec with the same status; only this client's own limit has run out here.
    by_deadline = status == "DEADLINE_EXCEEDED" and allowed is not None and elapsed_ns >= allowed * 1e9
    return CallError(method, status, "deadline" if by_deadline else "error", error.details() or "")
