"""The DaemonSet's pod as a kubelet would have the runtime run it, from the very file that is deployed.

What becomes of each field is in the kubelet: kuberuntime_sandbox.go, kuberuntime_container.go, security_context.go. A
field that nothing is made of here is refused, so that none is added to the manifest untested.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import yaml
from cri_api.v1 import api_pb2, api_pb2_grpc

from tests.rig import pods
from tests.rig.driver import REPOSITORY
from tests.rig.node import Node

BASE = REPOSITORY / "deploy" / "kustomize" / "base" / "daemonset.yaml"

NAMESPACE = "criscope"

# pkg/securitycontext/util.go: defaultMaskedPaths, defaultReadonlyPaths; sent unless procMount says not.
MASKED = ("/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
          "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware")  # fmt: skip
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_PROPAGATION = {"None": api_pb2.PROPAGATION_PRIVATE, "HostToContainer": api_pb2.PROPAGATION_HOST_TO_CONTAINER}
_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_NOT_OF_THE_RUNTIME = frozenset({  # what the API server, the scheduler and the kubelet itself act on
    "serviceAccountName", "automountServiceAccountToken", "enableServiceLinks", "priorityClassName", "nodeSelector",
    "terminationGracePeriodSeconds", "tolerations", "initContainers", "containers", "volumes", "securityContext",
    "hostPID", "hostNetwork",
})  # fmt: skip
_CONTAINER = frozenset({
    "name", "image", "command", "args", "env", "securityContext", "resources", "startupProbe", "livenessProbe",
    "volumeMounts",
})  # fmt: skip
_CONTEXT = frozenset({
    "runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile", "allowPrivilegeEscalation", "readOnlyRootFilesystem",
    "capabilities",
})  # fmt: skip


def pod_spec(path: Path = BASE) -> dict[str, Any]:
    """Of the DaemonSet in a file."""
    (manifest,) = [each for each in yaml.safe_load_all(path.read_text()) if each["kind"] == "DaemonSet"]
    spec = manifest["spec"]["template"]["spec"]
    assert set(spec) <= _NOT_OF_THE_RUNTIME, set(spec) - _NOT_OF_THE_RUNTIME
    return spec


def move_volume(spec: dict[str, Any], name: str, path: Path, *, inside: bool = False) -> None:
    """Have a volume at another place of this machine; `inside` too, where the path must be the same."""
    (volume,) = [each for each in spec["volumes"] if each["name"] == name]
    volume["hostPath"]["path"] = str(path)
    for container in (*spec["initContainers"], *spec["containers"]):
        for mount in container["volumeMounts"]:
            if mount["name"] == name and inside:
                mount["mountPath"] = str(path)


class Pod:
    """A pod of the DaemonSet that runs; its init containers have run."""

    def __init__(self, stub: Any, sandbox: str, container: str, log: Path) -> None:
        self._stub = stub
        self.sandbox = sandbox
        self.container = container
        self.log = log

    @property
    def pid(self) -> int:
        """Of the container's first process; it has the same number in the container (hostPID)."""
        request = api_pb2.ContainerStatusRequest(container_id=self.container, verbose=True)
        return int(json.loads(self._stub.ContainerStatus(request).info["info"])["pid"])

    def state(self) -> str:
        status = self._stub.ContainerStatus(api_pb2.ContainerStatusRequest(container_id=self.container)).status
        return api_pb2.ContainerState.Name(status.state)

    def execute(self, command: list[str], timeout: int = 10) -> Any:
        """As a probe does it: `exit_code`, `stdout`, `stderr`."""
        return self._stub.ExecSync(
            api_pb2.ExecSyncRequest(container_id=self.container, cmd=command, timeout=timeout), timeout=timeout + 10
        )

    def stop(self, grace: int) -> int:
        """Exit code."""
        self._stub.StopContainer(api_pb2.StopContainerRequest(container_id=self.container, timeout=grace))
        return self._stub.ContainerStatus(api_pb2.ContainerStatusRequest(container_id=self.container)).status.exit_code


@contextmanager
def running(node: Node, spec: dict[str, Any], images: dict[str, str], directory: Path) -> Iterator[Pod]:
    """The pod on a node; `images`: what the manifest's names stand for. Gone with the block."""
    with grpc.insecure_channel(f"unix://{node.socket}") as channel:
        stub = api_pb2_grpc.RuntimeServiceStub(channel)
        pod = pods.Pod(NAMESPACE, "criscope-node", [], grace=spec["terminationGracePeriodSeconds"])
        config = _sandbox(spec, pod, node, directory)
        sandbox = stub.RunPodSandbox(api_pb2.RunPodSandboxRequest(config=config)).pod_sandbox_id
        try:
            _prepare(spec)
            for container in spec["initContainers"]:
                name = _start(stub, sandbox, config, _container(spec, container, pod, images))
                code = _ended(stub, name)
                assert code == 0, (container["name"], code, _said(directory, container["name"]))
            (container,) = spec["containers"]
            name = _start(stub, sandbox, config, _container(spec, container, pod, images))
            yield Pod(stub, sandbox, name, directory / f"{container['name']}.log")
        finally:
            stub.StopPodSandbox(api_pb2.StopPodSandboxRequest(pod_sandbox_id=sandbox))
            stub.RemovePodSandbox(api_pb2.RemovePodSandboxRequest(pod_sandbox_id=sandbox))


def _prepare(spec: dict[str, Any]) -> None:
    """As a kubelet checks and makes directories of the node."""
    for volume in spec["volumes"]:
        host = volume["hostPath"]
        if host["type"] == "DirectoryOrCreate":
            Path(host["path"]).mkdir(mode=0o755, exist_ok=True)
        else:
            assert host["type"] == "Directory"
            assert Path(host["path"]).is_dir(), volume


def _start(stub: Any, sandbox: str, sandbox_config: Any, config: Any) -> str:
    """Id of the started container."""
    request = api_pb2.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config)
    name: str = stub.CreateContainer(request).container_id
    stub.StartContainer(api_pb2.StartContainerRequest(container_id=name))
    return name


def _ended(stub: Any, name: str) -> int:
    for _ in range(500):
        status = stub.ContainerStatus(api_pb2.ContainerStatusRequest(container_id=name)).status
        if status.state == api_pb2.CONTAINER_EXITED:
            return status.exit_code
        time.sleep(0.02)
    raise AssertionError(f"{name} did not end")


def _said(directory: Path, name: str) -> str:
    return (directory / f"{name}.log").read_text()


def _namespaces(spec: dict[str, Any]) -> Any:
    return api_pb2.NamespaceOption(
        network=api_pb2.NODE if spec.get("hostNetwork") else api_pb2.POD,
        pid=api_pb2.NODE if spec.get("hostPID") else api_pb2.CONTAINER,
        ipc=api_pb2.POD,
    )


def _seccomp(context: dict[str, Any]) -> Any:
    kind = context["seccompProfile"]["type"]
    return api_pb2.SecurityProfile(profile_type=getattr(api_pb2.SecurityProfile, kind))


def _sandbox(spec: dict[str, Any], pod: pods.Pod, node: Node, directory: Path) -> Any:
    context = spec["securityContext"]
    config = pod.sandbox_config(0, node.footprint.runtime)
    config.log_directory = str(directory)
    config.linux.security_context.CopyFrom(
        api_pb2.LinuxSandboxSecurityContext(
            namespace_options=_namespaces(spec),
            seccomp=_seccomp(context),
            run_as_user=api_pb2.Int64Value(value=context["runAsUser"]),
            run_as_group=api_pb2.Int64Value(value=context["runAsGroup"]),
        )
    )
    return config


def _container(spec: dict[str, Any], container: dict[str, Any], pod: pods.Pod, images: dict[str, str]) -> Any:
    assert set(container) <= _CONTAINER, set(container) - _CONTAINER
    context = {**spec["securityContext"], **container["securityContext"]}
    assert set(context) <= _CONTEXT, set(context) - _CONTEXT
    assert not (context["runAsNonRoot"] and context["runAsUser"] == 0), "the kubelet would refuse it"
    environment = {each["name"]: each["value"] for each in container.get("env", [])}
    named = pods.Container(container["name"], container["command"], environment, image=images[container["image"]])
    config = pod.container_config(named, 0)
    config.args.extend(container.get("args", []))
    config.log_path = f"{named.name}.log"
    config.mounts.extend(_mounts(spec, container))
    config.linux.CopyFrom(
        api_pb2.LinuxContainerConfig(
            resources=_resources(container["resources"]),
            security_context=api_pb2.LinuxContainerSecurityContext(
                namespace_options=_namespaces(spec),
                run_as_user=api_pb2.Int64Value(value=context["runAsUser"]),
                run_as_group=api_pb2.Int64Value(value=context["runAsGroup"]),
                no_new_privs=not context["allowPrivilegeEscalation"],
                readonly_rootfs=context["readOnlyRootFilesystem"],
                capabilities=api_pb2.Capability(
                    add_capabilities=context["capabilities"]["add"], drop_capabilities=context["capabilities"]["drop"]
                ),
                seccomp=_seccomp(context),
                masked_paths=MASKED,
                readonly_paths=READ_ONLY,
            ),
        )
    )
    return config


def _mounts(spec: dict[str, Any], container: dict[str, Any]) -> Iterator[Any]:
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    for mount in container["volumeMounts"]:
        assert set(mount) <= {"name", "mountPath", "readOnly", "mountPropagation"}
        yield api_pb2.Mount(
            container_path=mount["mountPath"],
            host_path=paths[mount["name"]],
            readonly=mount.get("readOnly", False),
            propagation=_PROPAGATION[mount.get("mountPropagation", "None")],
        )


def _resources(resources: dict[str, Any]) -> Any:
    """kuberuntime_container_linux.go: shares of 1024 a CPU, a memory limit; no CPU limit, no quota."""
    assert set(resources["limits"]) == {"memory"}
    return api_pb2.LinuxContainerResources(
        cpu_shares=max(2, int(resources["requests"]["cpu"].removesuffix("m")) * 1024 // 1000),
        memory_limit_in_bytes=quantity(resources["limits"]["memory"]),
    )


def quantity(text: str) -> int:
    """`300Mi` in bytes."""
    return int(text[:-2]) * _UNITS[text[-2:]]
