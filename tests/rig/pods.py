"""Pods as the driver is told to run them, and the CRI messages a kubelet makes of them (its kuberuntime/labels.go)."""

import datetime as dt
import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cri_api.v1 import api_pb2

from tests.rig import images

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
RESTART_COUNT = "io.kubernetes.container.restartCount"

# The first process of a pid namespace gets no signal it does not handle; without the trap each stop takes the whole
# grace period.
SERVE = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"]


@dataclass(frozen=True, slots=True)
class Probe:
    """An exec probe: `period` and `timeout` in seconds."""

    command: list[str]
    period: float
    timeout: int = 1


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    command: list[str] = field(default_factory=lambda: list(SERVE))
    env: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    probe: Probe | None = None
    image: str = images.BUSYBOX


@dataclass(frozen=True, slots=True)
class Pod:
    namespace: str
    name: str
    containers: list[Container]
    init: list[Container] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    auth: api_pb2.AuthConfig | None = None
    """for the registry"""
    grace: int = 30
    """seconds between SIGTERM and SIGKILL"""
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    seen: str = field(default_factory=lambda: dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z"))

    @property
    def identity(self) -> dict[str, str]:
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    def labels(self) -> dict[str, str]:
        return {POD_NAME: self.name, POD_NAMESPACE: self.namespace, POD_UID: self.uid}

    def all_annotations(self) -> dict[str, str]:
        return {"kubernetes.io/config.seen": self.seen, "kubernetes.io/config.source": "api"} | self.annotations

    def sandbox_config(self, attempt: int, runtime: Path) -> api_pb2.PodSandboxConfig:
        """`runtime` is the node's directory; its name is also the node's cgroup."""
        linux = api_pb2.LinuxPodSandboxConfig(cgroup_parent=f"/{runtime.name}/pod{self.uid}")
        linux.security_context.namespace_options.pid = api_pb2.CONTAINER
        return api_pb2.PodSandboxConfig(
            metadata=api_pb2.PodSandboxMetadata(
                name=self.name,
                uid=self.uid,
                namespace=self.namespace,
                attempt=attempt,
            ),
            hostname=self.name,
            log_directory=str(self.log_directory(runtime)),
            labels=self.labels(),
            annotations=self.all_annotations(),
            linux=linux,
        )

    def container_config(self, container: Container, attempt: int) -> api_pb2.ContainerConfig:
        linux = api_pb2.LinuxContainerConfig()
        linux.resources.cpu_shares = 2  # what a kubelet gives a container without requests
        linux.resources.oom_score_adj = 1000
        linux.security_context.namespace_options.pid = api_pb2.CONTAINER
        return api_pb2.ContainerConfig(
            metadata=api_pb2.ContainerMetadata(name=container.name, attempt=attempt),
            image=api_pb2.ImageSpec(image=container.image),
            command=container.command,
            envs=[api_pb2.KeyValue(key=key, value=value) for key, value in container.env.items()],
            labels=self.labels() | {CONTAINER_NAME: container.name},
            annotations={
                "io.kubernetes.container.hash": hashlib.sha256(repr(container).encode()).hexdigest()[:8],
                RESTART_COUNT: str(attempt),
                "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
                "io.kubernetes.container.terminationMessagePolicy": "File",
                "io.kubernetes.pod.terminationGracePeriod": str(self.grace),
            }
            | container.annotations,
            log_path=f"{container.name}/{attempt}.log",
            linux=linux,
        )

    def log_directory(self, runtime: Path) -> Path:
        return runtime / "logs" / f"{self.namespace}_{self.name}_{self.uid}"


def identity(labels: Mapping[str, str]) -> dict[str, str]:
    """The pod that a sandbox or container belongs to."""
    return {"namespace": labels[POD_NAMESPACE], "name": labels[POD_NAME], "uid": labels[POD_UID]}
