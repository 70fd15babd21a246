"""Secrets to plant, and a search for any piece of them in what was written."""

import dataclasses
import hashlib
from collections import defaultdict
from pathlib import Path

from cri_api.v1 import api_pb2 as v1

from tests.unit.conversation import Conversation
from tracer.capture import CaptureFile, CaptureWriter
from tracer.records import Data, Exec, Record
from tracer.redact import Redactor

WINDOW = 5
"""Bytes of a secret that must not be seen in a row."""

SANDBOX = "5a" * 32
CONTAINER = "c7" * 32
UID = "0e6c1f9e-3f5b-4d0e-9a53-6a5a6b0c2f11"
RUNTIME = "/runtime.v1.RuntimeService/"
IMAGE = "/runtime.v1.ImageService/"

LABELS = {"io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": UID}


def secret(name: str) -> str:
    """A text no two windows of which are alike, and that occurs nowhere else."""
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(chr(0x21 + byte % 0x5E) for byte in digest)


SECRETS = {
    name: secret(name)
    for name in (
        "username", "password", "auth", "server", "identity", "registry", "env", "command", "args", "cmd", "stdout",
        "stderr", "annotation", "hook", "info", "url", "message", "credential", "unknown",
    )
}  # fmt: skip


def config() -> v1.PodSandboxConfig:
    return v1.PodSandboxConfig(
        metadata=v1.PodSandboxMetadata(name="web-0", uid=UID, namespace="shop"),
        labels=LABELS,
        annotations={"kubernetes.io/config.seen": "2026-11-30T20:42:58.339331600Z", "note": SECRETS["annotation"]},
        windows=v1.WindowsPodSandboxConfig(
            security_context=v1.WindowsSandboxSecurityContext(credential_spec=SECRETS["credential"])
        ),
    )


def calls() -> dict[str, tuple[bytes, bytes]]:
    """Every CRI call that carries secrets: path -> request and answer."""
    annotations = {"io.kubernetes.container.restartCount": "3", "team": SECRETS["annotation"]}
    container = v1.ContainerConfig(
        metadata=v1.ContainerMetadata(name="app", attempt=3),
        image=v1.ImageSpec(image="registry/app:1", annotations={"a": SECRETS["annotation"]}),
        command=[SECRETS["command"], "-c"],
        args=["run", SECRETS["args"]],
        envs=[v1.KeyValue(key="TOKEN", value=SECRETS["env"]), v1.KeyValue(key="EMPTY")],
        labels={**LABELS, "io.kubernetes.container.name": "app"},
        annotations={**annotations, "io.kubernetes.container.preStopHandler": SECRETS["hook"]},
    )
    auth = v1.AuthConfig(
        username=SECRETS["username"],
        password=SECRETS["password"],
        auth=SECRETS["auth"],
        server_address=SECRETS["server"],
        identity_token=SECRETS["identity"],
        registry_token=SECRETS["registry"],
    )
    pod_labels = {**LABELS, "io.kubernetes.container.name": "app"}
    status = v1.ContainerStatus(
        id=CONTAINER,
        metadata=v1.ContainerMetadata(name="app"),
        labels=pod_labels,
        annotations=annotations,
        reason="Error",
        message=SECRETS["message"],
        image=container.image,
    )
    listed = v1.Container(
        id=CONTAINER, pod_sandbox_id=SANDBOX, metadata=status.metadata, labels=pod_labels, annotations=annotations
    )
    sandbox = v1.PodSandbox(
        id=SANDBOX, metadata=config().metadata, labels=LABELS, annotations={"note": SECRETS["annotation"]}
    )
    sandbox_status = v1.PodSandboxStatus(
        id=SANDBOX, metadata=config().metadata, labels=LABELS, annotations={"note": SECRETS["annotation"]}
    )
    info = {"config": SECRETS["info"]}
    url = "http://127.0.0.1:41/exec/" + SECRETS["url"]
    messages = {
        IMAGE + "PullImage": (
            v1.PullImageRequest(image=container.image, auth=auth, sandbox_config=config()),
            v1.PullImageResponse(image_ref="sha256:" + "12" * 32),
        ),
        IMAGE + "ImageStatus": (
            v1.ImageStatusRequest(image=container.image, verbose=True),
            v1.ImageStatusResponse(image=v1.Image(id="sha256:1", spec=container.image), info=info),
        ),
        RUNTIME + "RunPodSandbox": (
            v1.RunPodSandboxRequest(config=config()),
            v1.RunPodSandboxResponse(pod_sandbox_id=SANDBOX),
        ),
        RUNTIME + "CreateContainer": (
            v1.CreateContainerRequest(pod_sandbox_id=SANDBOX, config=container, sandbox_config=config()),
            v1.CreateContainerResponse(container_id=CONTAINER),
        ),
        RUNTIME + "ExecSync": (
            v1.ExecSyncRequest(container_id=CONTAINER, cmd=["sh", SECRETS["cmd"]], timeout=1),
            v1.ExecSyncResponse(stdout=SECRETS["stdout"].encode(), stderr=b"\x00" + SECRETS["stderr"].encode()),
        ),
        RUNTIME + "Exec": (
            v1.ExecRequest(container_id=CONTAINER, cmd=[SECRETS["cmd"]], tty=True),
            v1.ExecResponse(url=url),
        ),
        RUNTIME + "Attach": (v1.AttachRequest(container_id=CONTAINER), v1.AttachResponse(url=url)),
        RUNTIME + "PortForward": (v1.PortForwardRequest(pod_sandbox_id=SANDBOX), v1.PortForwardResponse(url=url)),
        RUNTIME + "ContainerStatus": (
            v1.ContainerStatusRequest(container_id=CONTAINER, verbose=True),
            v1.ContainerStatusResponse(status=status, info=info),
        ),
        RUNTIME + "PodSandboxStatus": (
            v1.PodSandboxStatusRequest(pod_sandbox_id=SANDBOX, verbose=True),
            v1.PodSandboxStatusResponse(status=sandbox_status, info=info, containers_statuses=[status]),
        ),
        RUNTIME + "Status": (v1.StatusRequest(verbose=True), v1.StatusResponse(info=info)),
        RUNTIME + "ListContainers": (
            v1.ListContainersRequest(filter=v1.ContainerFilter(id=CONTAINER)),
            v1.ListContainersResponse(containers=[listed, listed]),
        ),
        RUNTIME + "ListPodSandbox": (
            v1.ListPodSandboxRequest(),
            v1.ListPodSandboxResponse(items=[sandbox]),
        ),
        RUNTIME + "UpdateContainerResources": (
            v1.UpdateContainerResourcesRequest(container_id=CONTAINER, annotations={"n": SECRETS["annotation"]}),
            v1.UpdateContainerResourcesResponse(),
        ),
        RUNTIME + "GetContainerEvents": (
            v1.GetEventsRequest(),
            v1.ContainerEventResponse(
                container_id=CONTAINER, pod_sandbox_status=sandbox_status, containers_statuses=[status]
            ),
        ),
    }
    return {
        path: (request.SerializeToString(deterministic=True), answer.SerializeToString(deterministic=True))
        for path, (request, answer) in messages.items()
    }


def conversation() -> Conversation:
    """All of them, after a call that names every method, so that a late start finds only indices."""
    talk = Conversation().open()
    for path in calls():
        talk.call(path)
    for path, (request, answer) in calls().items():
        talk.call(path, request, answer)
    return talk


def joined(records: list[Record], at: int) -> list[Record]:
    """The records from `at` on as a source sees them that starts then: it counts bytes from its own start."""
    out = records[at:]
    starts: dict[tuple[str, str, str], int] = {}
    for number, record in enumerate(out):
        if isinstance(record, Data):
            start = starts.setdefault((record.connection, record.side, record.direction), record.offset)
            out[number] = dataclasses.replace(record, offset=record.offset - start)
    return out


def redacted(records: list[Record]) -> list[Record]:
    redactor = Redactor()
    return [safe for record in records for safe in redactor.feed(record)] + redactor.flush()


def written(records: list[Record], path: Path) -> list[Record]:
    """What a reader finds in a file of the redacted records."""
    with CaptureWriter(path, 0, overwrite=True) as writer:
        for record in redacted(records):
            writer.write(record)
    with CaptureFile(path) as capture:
        return list(capture.records())


def leaks(records: list[Record], secrets: list[str | bytes] | None = None) -> set[str]:
    """Pieces of secrets in the records' bytes, also across records, and in arguments of programs."""
    streams: dict[tuple[str, ...], bytes] = defaultdict(bytes)
    for record in records:
        if isinstance(record, Data):
            streams[record.connection, record.side, record.direction] += record.data
        elif isinstance(record, Exec):
            streams["exec",] += "\0".join([*record.argv, *record.env.values()]).encode()
    found = set()
    for text in secrets or list(SECRETS.values()):
        raw = text.encode() if isinstance(text, str) else text
        for at in range(len(raw) - WINDOW + 1):
            if any(raw[at : at + WINDOW] in stream for stream in streams.values()):
                found.add(text if isinstance(text, str) else text.decode("latin-1"))
    return found
