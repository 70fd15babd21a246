"""What a runtime has now: three calls at start, so that ids on connections older than the tracer mean something.

They run in a child process: grpcio would cost the agent 20 MiB for good, and a runtime that hangs must not hang it.
Run as `python -m tracer.inventory SOCKET`, it prints the serialised answers.
"""

import json
import subprocess
import sys
from dataclasses import dataclass

TIMEOUT_SECONDS = 5.0
"""For each call; lists are answered from memory within milliseconds. A hung runtime is what we came to see."""

CHILD_SECONDS = 3 * TIMEOUT_SECONDS + 5

MAX_BYTES = 64 * 1024 * 1024
"""Of one answer; above the 16 MiB at which a kubelet gives up."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Serialised `ListPodSandboxResponse` and `ListContainersResponse` of runtime.v1, and who answered."""

    runtime: str
    version: str
    sandboxes: bytes
    containers: bytes


def ask(path: str) -> Inventory | str:
    """The runtime's inventory, or the reason why there is none."""
    command = [sys.executable, "-m", "tracer.inventory", path]
    try:
        child = subprocess.run(command, capture_output=True, timeout=CHILD_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"no answer within {CHILD_SECONDS:.0f} s"
    if child.returncode:
        lines = child.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {child.returncode}"
    head, _, rest = child.stdout.partition(b"\n")
    facts = json.loads(head)
    first = facts["sandboxes"]
    return Inventory(facts["runtime"], facts["version"], rest[:first], rest[first:])


def main(path: str) -> int:
    """Ask the runtime at `path` and print one JSON line, then the two answers' bytes."""
    import grpc  # noqa: PLC0415  (only the child pays for it)
    from cri_api.v1 import api_pb2, api_pb2_grpc  # noqa: PLC0415

    options = [("grpc.max_receive_message_length", MAX_BYTES)]
    with grpc.insecure_channel(f"unix://{path}", options=options) as channel:
        runtime = api_pb2_grpc.RuntimeServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
        try:
            version = runtime.Version(api_pb2.VersionRequest(), timeout=TIMEOUT_SECONDS)
            sandboxes = runtime.ListPodSandbox(api_pb2.ListPodSandboxRequest(), timeout=TIMEOUT_SECONDS)
            containers = runtime.ListContainers(api_pb2.ListContainersRequest(), timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            print(f"{path}: {error.code().name}: {error.details()}", file=sys.stderr)  # noqa: T201
            return 1
    first, second = sandboxes.SerializeToString(), containers.SerializeToString()
    facts = {"runtime": version.runtime_name, "version": version.runtime_version, "sandboxes": len(first)}
    sys.stdout.buffer.write(json.dumps(facts).encode() + b"\n" + first + second)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
