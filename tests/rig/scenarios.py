"""What the driver can do, by name; each runs in a process of its own and writes its calls to an oracle."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from cri_api.v1 import api_pb2

from tests.rig.cri import CallError, Client, Subject
from tests.rig.kubelet import Kubelet
from tests.rig.oracle import Scope
from tests.rig.pods import Container, Pod, Probe

PATIENCE_SECONDS = 60.0
"""For a pod to start or end; it takes 1 to 3 s on two idle cores."""

HEAVY_PODS = 6
HEAVY_BYTES = 200 * 1024
"""Each heavy pod and its container carry this much annotation (Kubernetes allows 256 KiB a pod), so that both lists
are over 1 MiB."""

WAVE_PODS = 4

ORACLE_SECONDS = 16.0

BURST_STREAMS = 6
BURST_CALLS = 30
"""Each of so many threads asks so often for one status, as followers of container logs do: streams that overlap."""

NOBODY_LISTENS = "127.0.0.1:1/criscope/none:1"
"""An image whose registry refuses the connection at once."""

CRASH = ["/bin/sh", "-c", "sleep 2; exit 1"]


def demo(kubelet: Kubelet, stopping: threading.Event, _canary: str) -> None:
    """Until told to stop: a pod with an exec probe, one that crashes, and jobs that come and go."""
    kubelet.start()
    kubelet.add(Pod("shop", "cart", [Container("web", probe=Probe(["/bin/true"], period=2)), Container("cache")]))
    kubelet.add(Pod("shop", "checkout", [Container("crash", command=CRASH)]))
    jobs: list[Pod] = []
    number = 0
    while not stopping.wait(4.0):
        number += 1
        jobs.append(Pod("batch", f"job-{number}", [Container("work")], init=[Container("prepare", ["/bin/true"])]))
        kubelet.add(jobs[-1])
        if len(jobs) > 2:
            kubelet.remove(jobs.pop(0))


def oracle(kubelet: Kubelet, stopping: threading.Event, _canary: str) -> None:
    """At least 500 calls of every method, in about 20 s: what the tracer must report without a flaw."""
    began = time.monotonic()
    kubelet.start()
    ballast = {"ballast": "x" * HEAVY_BYTES}
    heavy = [
        Pod("load", f"heavy-{i}", [Container("main", annotations=ballast)], annotations=ballast)
        for i in range(HEAVY_PODS)
    ]
    web = Container("web", probe=Probe(["/bin/true"], period=1))
    side = Container("side", probe=Probe(["/bin/false"], period=2))
    probed = Pod("live", "probed", [web, side])
    staged = Pod("live", "staged", [Container("main")], init=[Container("prepare", ["/bin/true"])])
    crashing = Pod("live", "crashing", [Container("crash", command=CRASH)])
    steady = [probed, staged, *heavy]
    for pod in (*steady, crashing):
        kubelet.add(pod)
    _await_running(kubelet, steady, stopping)
    _every_method(kubelet, probed, stopping)
    _burst(kubelet, steady)
    _remove(kubelet, heavy, stopping)
    wave = [Pod("batch", f"job-{i}", [Container("one"), Container("two")]) for i in range(WAVE_PODS)]
    for pod in wave:
        kubelet.add(pod)
    _await_running(kubelet, wave, stopping)
    _remove(kubelet, wave, stopping)
    kubelet.collect_garbage()
    # Long enough that everything periodic came round, the ten-second callers too.
    stopping.wait(began + ORACLE_SECONDS - time.monotonic())
    _remove(kubelet, [probed, staged, crashing], stopping)
    kubelet.collect_garbage()
    kubelet.stop()


def secrets(kubelet: Kubelet, stopping: threading.Event, canary: str) -> None:
    """Plant `<canary>-<place>` wherever a call can carry a secret; no output of the tracer may show one."""
    kubelet.start()
    shell = ["/bin/sh", "-c", f"trap 'exit 0' TERM; : {canary}-command; while :; do sleep 1 & wait $!; done"]
    container = Container(
        "main",
        command=shell,
        env={"PASSWORD": f"{canary}-env"},
        annotations={"note": f"{canary}-container-annotation"},
        probe=Probe(["/bin/sh", "-c", f"echo {canary}-probe-output; : {canary}-probe-argument"], period=1),
    )
    pod = Pod("safe", "vault", [container], annotations={"note": f"{canary}-pod-annotation"})
    kubelet.add(pod)
    _await_running(kubelet, [pod], stopping)
    auth = api_pb2.AuthConfig(
        username=f"{canary}-auth-user",
        password=f"{canary}-auth-password",
        auth=f"{canary}-auth-auth",
        identity_token=f"{canary}-auth-identity-token",
        registry_token=f"{canary}-auth-registry-token",
    )
    image = api_pb2.ImageSpec(image=NOBODY_LISTENS, annotations={"note": f"{canary}-image-annotation"})
    scope = Scope("image_pull")
    request = api_pb2.PullImageRequest(image=image, auth=auth, sandbox_config=pod.sandbox_config(0, kubelet.runtime))
    _expect_error(kubelet.client, "PullImage", request, scope, Subject(pod=pod.identity, image=NOBODY_LISTENS))
    target = _subject(kubelet, pod)
    for code in (0, 3):
        command = ["/bin/sh", "-c", f"echo {canary}-exec-out; echo {canary}-exec-err >&2; exit {code}"]
        exec_request = api_pb2.ExecSyncRequest(container_id=target.container_id, cmd=command, timeout=5)
        kubelet.client.call("ExecSync", exec_request, Scope("exec_api"), target)
    # The runtime's error text repeats the name of a command it cannot find.
    missing = api_pb2.ExecSyncRequest(container_id=target.container_id, cmd=[f"/bin/{canary}-missing"], timeout=5)
    _expect_error(kubelet.client, "ExecSync", missing, Scope("exec_api"), target)
    stopping.wait(3.0)  # some probes and relists over the planted containers
    _remove(kubelet, [pod], stopping)
    kubelet.stop()


def pod(kubelet: Kubelet, stopping: threading.Event, _canary: str) -> None:
    """The life of one pod: started, a command run in it, stopped, removed."""
    kubelet.start()
    only = Pod("default", "one", [Container("main")])
    kubelet.add(only)
    _await_running(kubelet, [only], stopping)
    target = _subject(kubelet, only)
    request = api_pb2.ExecSyncRequest(container_id=target.container_id, cmd=["/bin/echo", "hello"], timeout=5)
    kubelet.client.call("ExecSync", request, Scope("exec_api"), target)
    _remove(kubelet, [only], stopping)
    kubelet.collect_garbage()
    kubelet.stop()


SCENARIOS: dict[str, Callable[[Kubelet, threading.Event, str], None]] = {
    "demo": demo,
    "oracle": oracle,
    "pod": pod,
    "secrets": secrets,
}


def other(client: Client, stopping: threading.Event) -> None:
    """Not a kubelet: a tool that lists containers five times a second."""
    request = api_pb2.ListContainersRequest(filter=api_pb2.ContainerFilter())
    while not stopping.wait(0.2):
        client.call("ListContainers", request, Scope("other_client"))


def _every_method(kubelet: Kubelet, target_pod: Pod, stopping: threading.Event) -> None:
    """The methods that pods, relists and periodic callers do not use, and each way a call can end."""
    client = kubelet.client
    scope = Scope("exec_api")
    target = _subject(kubelet, target_pod)
    sandbox = Subject(pod=target.pod, sandbox_id=target.sandbox_id)
    container_id, sandbox_id = target.container_id, target.sandbox_id

    for method, request, subject in (
        (
            "Exec",
            api_pb2.ExecRequest(container_id=container_id, cmd=["/bin/sh"], stdin=True, tty=True, stdout=True),
            target,
        ),
        ("Attach", api_pb2.AttachRequest(container_id=container_id, stdin=True, tty=True, stdout=True), target),
        ("PortForward", api_pb2.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[80]), sandbox),
        ("ExecSync", api_pb2.ExecSyncRequest(container_id=container_id, cmd=["/bin/seq", "20000"], timeout=5), target),
        ("ReopenContainerLog", api_pb2.ReopenContainerLogRequest(container_id=container_id), target),
        ("ContainerStats", api_pb2.ContainerStatsRequest(container_id=container_id), target),
        ("PodSandboxStats", api_pb2.PodSandboxStatsRequest(pod_sandbox_id=sandbox_id), sandbox),
        ("ListPodSandboxStats", api_pb2.ListPodSandboxStatsRequest(filter=api_pb2.PodSandboxStatsFilter()), Subject()),
        ("UpdateContainerResources", _resources(container_id), target),
        ("UpdateRuntimeConfig", _pod_cidr(), Subject()),
        ("RemoveImage", api_pb2.RemoveImageRequest(image=api_pb2.ImageSpec(image=NOBODY_LISTENS)), _image()),
    ):
        client.call(method, request, scope, subject)

    # Errors by the server: unknown ids, a refused registry, methods this runtime lacks, an exec past its own timeout.
    nowhere = "f" * 64
    _expect_error(
        client,
        "ContainerStatus",
        api_pb2.ContainerStatusRequest(container_id=nowhere),
        scope,
        Subject(container_id=nowhere),
    )
    _expect_error(
        client,
        "PodSandboxStatus",
        api_pb2.PodSandboxStatusRequest(pod_sandbox_id=nowhere),
        scope,
        Subject(sandbox_id=nowhere),
    )
    pull = api_pb2.PullImageRequest(image=api_pb2.ImageSpec(image=NOBODY_LISTENS))
    pull.sandbox_config.CopyFrom(target_pod.sandbox_config(0, kubelet.runtime))
    _expect_error(client, "PullImage", pull, Scope("image_pull"), replace(_image(), pod=target_pod.identity))
    missing = api_pb2.ExecSyncRequest(container_id=container_id, cmd=["/bin/missing"], timeout=5)
    _expect_error(client, "ExecSync", missing, scope, target)
    late = api_pb2.ExecSyncRequest(container_id=container_id, cmd=["/bin/sleep", "30"], timeout=1)
    _expect_error(client, "ExecSync", late, scope, target)
    _ended(client, "GetContainerEvents", api_pb2.GetEventsRequest(), scope, Subject(), deadline=1.0)
    checkpoint = api_pb2.CheckpointContainerRequest(container_id=container_id, location="/nowhere/x.tar")
    _expect_error(client, "CheckpointContainer", checkpoint, scope, target)

    # The client gives up: by its deadline, and by cancelling.
    endless = api_pb2.ExecSyncRequest(container_id=container_id, cmd=["/bin/sleep", "30"])
    assert _ended(client, "ExecSync", endless, scope, target, deadline=1.0) == "deadline"
    assert _ended(client, "ExecSync", endless, scope, target, cancel_after=0.7) == "cancelled"
    stopping.wait(0.5)


def _burst(kubelet: Kubelet, pods: list[Pod]) -> None:
    def follow(subject: Subject) -> None:
        for turn in range(BURST_CALLS):
            time.sleep(0.01)  # without a breath the client measures its own interpreter, not the calls
            if turn % 2:
                request: Any = api_pb2.ContainerStatusRequest(container_id=subject.container_id)
                kubelet.client.call("ContainerStatus", request, Scope("unknown"), subject)
            else:
                request = api_pb2.PodSandboxStatusRequest(pod_sandbox_id=subject.sandbox_id)
                sandbox = Subject(pod=subject.pod, sandbox_id=subject.sandbox_id)
                kubelet.client.call("PodSandboxStatus", request, Scope("unknown"), sandbox)

    subjects = [_subject(kubelet, pod) for pod in pods[:BURST_STREAMS]]
    with ThreadPoolExecutor(len(subjects)) as pool:
        for done in [pool.submit(follow, subject) for subject in subjects]:
            done.result()


def _subject(kubelet: Kubelet, pod: Pod) -> Subject:
    """The pod's first running container."""
    container = kubelet.containers(pod)[0]
    return Subject(
        pod=pod.identity,
        sandbox_id=kubelet.sandboxes(pod)[0].id,
        container_id=container.id,
        container=container.metadata.name,
        attempt=container.metadata.attempt,
    )


def _image() -> Subject:
    return Subject(image=NOBODY_LISTENS)


def _resources(container_id: str | None) -> api_pb2.UpdateContainerResourcesRequest:
    linux = api_pb2.LinuxContainerResources(cpu_shares=64)
    return api_pb2.UpdateContainerResourcesRequest(container_id=container_id, linux=linux)


def _pod_cidr() -> api_pb2.UpdateRuntimeConfigRequest:
    network = api_pb2.NetworkConfig(pod_cidr="10.88.0.0/24")
    return api_pb2.UpdateRuntimeConfigRequest(runtime_config=api_pb2.RuntimeConfig(network_config=network))


def _ended(client: Client, method: str, request: Any, scope: Scope, subject: Subject, **how: float) -> str:
    """How a call ended that is not expected to go well."""
    try:
        client.call(method, request, scope, subject, **how)
    except CallError as error:
        return error.ended
    return "ok"


def _expect_error(client: Client, method: str, request: Any, scope: Scope, subject: Subject) -> None:
    ended = _ended(client, method, request, scope, subject)
    assert ended == "error", f"{method} should fail, ended {ended}"


def _await_running(kubelet: Kubelet, pods: list[Pod], stopping: threading.Event) -> None:
    _await(stopping, lambda: all(len(kubelet.containers(pod)) == len(pod.containers) for pod in pods))


def _remove(kubelet: Kubelet, pods: list[Pod], stopping: threading.Event) -> None:
    workers = [kubelet.remove(pod) for pod in pods]
    _await(stopping, lambda: all(worker.finished.is_set() for worker in workers))


def _await(stopping: threading.Event, condition: Callable[[], Any]) -> None:
    due = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if stopping.wait(0.1) or time.monotonic() > due:
            raise TimeoutError("a pod did not become what it should")
