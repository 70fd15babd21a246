"""What the driver can do, by name; each runs in a process of its own and writes its calls to an oracle."""

import contextlib
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cri_api.v1 import api_pb2

from tests.rig.cri import NOBODY, CallError, Client, Subject
from tests.rig.kubelet import STAGGER, Kubelet
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

STEADY = ("cart", "checkout", "search")
"""Names of the pods of `steady`, in the namespace shop."""

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


def steady(kubelet: Kubelet, stopping: threading.Event, _canary: str) -> None:
    """Until told to stop: pods with exec probes of which nothing is to be told, and what a kubelet does each second."""
    kubelet.start()
    for name in STEADY:
        kubelet.add(Pod("shop", name, [Container("web", probe=Probe(["/bin/true"], period=2))]))
        stopping.wait(STAGGER)
    stopping.wait()


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
    slow = Container("slow", probe=Probe(["/bin/sleep", "30"], period=4))  # the runtime ends it after its timeout
    probed = Pod("live", "probed", [web, side, slow])
    staged = Pod("live", "staged", [Container("main")], init=[Container("prepare", ["/bin/true"])])
    crashing = Pod("live", "crashing", [Container("crash", command=CRASH)])
    steady = [probed, staged, *heavy]
    unpulled = Pod("live", "unpulled", [Container("main", image=NOBODY_LISTENS)])
    for pod in (*steady, crashing, unpulled):
        kubelet.add(pod)
        stopping.wait(STAGGER)
    _await_running(kubelet, steady, stopping)
    _every_method(kubelet, probed, stopping)
    _burst(kubelet, steady)
    _remove(kubelet, heavy, stopping)
    wave = [Pod("batch", f"job-{i}", [Container("one"), Container("two")]) for i in range(WAVE_PODS)]
    for pod in wave:
        kubelet.add(pod)
        stopping.wait(STAGGER)
    _await_running(kubelet, wave, stopping)
    _remove(kubelet, wave, stopping)
    kubelet.collect_garbage()
    # Long enough that everything periodic came round, the ten-second callers too.
    stopping.wait(began + ORACLE_SECONDS - time.monotonic())
    _remove(kubelet, [probed, staged, crashing, unpulled], stopping)
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
    auth = api_pb2.AuthConfig(
        username=f"{canary}-auth-user",
        password=f"{canary}-auth-password",
        auth=f"{canary}-auth-auth",
        identity_token=f"{canary}-auth-identity-token",
        registry_token=f"{canary}-auth-registry-token",
    )
    unpulled = Pod("safe", "unpulled", [Container("main", image=NOBODY_LISTENS)], auth=auth)
    kubelet.add(unpulled)
    kubelet.add(pod)
    _await_running(kubelet, [pod], stopping)
    target = first_container(kubelet, pod)
    run_command(kubelet, target, ["/bin/sh", "-c", f"echo {canary}-exec-out; echo {canary}-exec-err >&2; exit 3"])
    run_command(kubelet, target, [f"/bin/{canary}-missing"])  # the runtime's error text repeats it
    stopping.wait(3.0)  # some probes and relists over the planted containers
    _remove(kubelet, [pod, unpulled], stopping)
    kubelet.stop()


def pod(kubelet: Kubelet, stopping: threading.Event, _canary: str) -> None:
    """The life of one pod: started, a command run in it, stopped, removed."""
    kubelet.start()
    only = Pod("default", "one", [Container("main")])
    kubelet.add(only)
    _await_running(kubelet, [only], stopping)
    target = first_container(kubelet, only)
    run_command(kubelet, target, ["/bin/echo", "hello"])
    _remove(kubelet, [only], stopping)
    kubelet.collect_garbage()
    kubelet.stop()


SCENARIOS: dict[str, Callable[[Kubelet, threading.Event, str], None]] = {
    "demo": demo,
    "oracle": oracle,
    "pod": pod,
    "secrets": secrets,
    "steady": steady,
}


def other(client: Client, stopping: threading.Event) -> None:
    """Not a kubelet: a tool that lists containers five times a second."""
    request = api_pb2.ListContainersRequest(filter=api_pb2.ContainerFilter())
    while not stopping.wait(0.2):
        with contextlib.suppress(CallError):  # the runtime is restarted
            client.call("ListContainers", request, Scope("other_client"))


def _every_method(kubelet: Kubelet, target_pod: Pod, stopping: threading.Event) -> None:
    """The methods that pods, relists and periodic callers do not use, and each way a call can end."""
    client = kubelet.client
    target = first_container(kubelet, target_pod)
    container_id, sandbox_id = target.container_id, target.sandbox_id
    sandbox = Subject(pod=target.pod, sandbox_id=sandbox_id)

    shell = {"container_id": container_id, "stdin": True, "tty": True, "stdout": True}
    run_command(kubelet, target, ["/bin/seq", "20000"])
    _exec_api(kubelet, "Exec", api_pb2.ExecRequest(cmd=["/bin/sh"], **shell), target)
    _exec_api(kubelet, "Attach", api_pb2.AttachRequest(**shell), target)
    _exec_api(kubelet, "PortForward", api_pb2.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[80]), sandbox)
    worker = kubelet.worker(target_pod)
    worker.resize(kubelet.containers(target_pod)[0], api_pb2.LinuxContainerResources(cpu_shares=64))
    log = api_pb2.ReopenContainerLogRequest(container_id=container_id)
    client.call("ReopenContainerLog", log, Scope("log_rotation"), target)
    network = api_pb2.NetworkConfig(pod_cidr="10.88.0.0/24")
    runtime_config = api_pb2.UpdateRuntimeConfigRequest(runtime_config=api_pb2.RuntimeConfig(network_config=network))
    client.call("UpdateRuntimeConfig", runtime_config, Scope("startup"))
    image = api_pb2.RemoveImageRequest(image=api_pb2.ImageSpec(image=NOBODY_LISTENS))
    client.call("RemoveImage", image, Scope("image_gc"), Subject(image=NOBODY_LISTENS))
    stats = Scope("stats")
    client.call("ContainerStats", api_pb2.ContainerStatsRequest(container_id=container_id), stats, target)
    client.call("PodSandboxStats", api_pb2.PodSandboxStatsRequest(pod_sandbox_id=sandbox_id), stats, sandbox)
    all_pods = api_pb2.ListPodSandboxStatsRequest(filter=api_pb2.PodSandboxStatsFilter())
    client.call("ListPodSandboxStats", all_pods, stats)

    # The runtime refuses: ids and commands it does not know, methods it may lack.
    nowhere = "f" * 64
    lost_container = api_pb2.ContainerStatusRequest(container_id=nowhere)
    _refused(client, "ContainerStatus", lost_container, Scope("unknown"), Subject(container_id=nowhere))
    lost_sandbox = api_pb2.PodSandboxStatusRequest(pod_sandbox_id=nowhere)
    _refused(client, "PodSandboxStatus", lost_sandbox, Scope("unknown"), Subject(sandbox_id=nowhere))
    assert run_command(kubelet, target, ["/bin/missing"]) == "error"
    checkpoint = api_pb2.CheckpointContainerRequest(container_id=container_id, location="/nowhere/x.tar")
    _exec_api(kubelet, "CheckpointContainer", checkpoint, target)
    _ended(client, "GetContainerEvents", api_pb2.GetEventsRequest(), Scope("relist"), deadline=1.0)

    # The client gives up: by its deadline, and by cancelling.
    assert run_command(kubelet, target, ["/bin/sleep", "30"], deadline=1.0) == "deadline"
    assert run_command(kubelet, target, ["/bin/sleep", "30"], cancel_after=0.7) == "cancelled"
    stopping.wait(0.5)


def _burst(kubelet: Kubelet, pods: list[Pod]) -> None:
    def follow(subject: Subject) -> None:
        for turn in range(BURST_CALLS):
            time.sleep(
                random.uniform(0.01, 0.03)
            )  # without a breath the client measures its own interpreter, not the calls
            if turn % 2:
                request: Any = api_pb2.ContainerStatusRequest(container_id=subject.container_id)
                kubelet.client.call("ContainerStatus", request, Scope("unknown"), subject)
            else:
                request = api_pb2.PodSandboxStatusRequest(pod_sandbox_id=subject.sandbox_id)
                sandbox = Subject(pod=subject.pod, sandbox_id=subject.sandbox_id)
                kubelet.client.call("PodSandboxStatus", request, Scope("unknown"), sandbox)

    subjects = [first_container(kubelet, pod) for pod in pods[:BURST_STREAMS]]
    with ThreadPoolExecutor(len(subjects)) as pool:
        for done in [pool.submit(follow, subject) for subject in subjects]:
            done.result()


def first_container(kubelet: Kubelet, pod: Pod) -> Subject:
    """The pod's first running container."""
    container = kubelet.containers(pod)[0]
    return Subject(
        pod=pod.identity,
        sandbox_id=kubelet.sandboxes(pod)[0].id,
        container_id=container.id,
        container=container.metadata.name,
        attempt=container.metadata.attempt,
    )


def run_command(kubelet: Kubelet, target: Subject, command: list[str], **how: float) -> str:
    """Run a command in a container as the kubelet's API does: without a timeout, after a look for the container."""
    return _exec_api(
        kubelet, "ExecSync", api_pb2.ExecSyncRequest(container_id=target.container_id, cmd=command), target, **how
    )


def _exec_api(kubelet: Kubelet, method: str, request: Any, target: Subject, **how: float) -> str:
    scope = Scope("exec_api")
    kubelet.find_containers(scope)
    return _ended(kubelet.client, method, request, scope, target, **how)


def _ended(client: Client, method: str, request: Any, scope: Scope, subject: Subject = NOBODY, **how: float) -> str:
    """Make a call and say how it ended."""
    try:
        client.call(method, request, scope, subject, **how)
    except CallError as error:
        return error.ended
    return "ok"


def _refused(client: Client, method: str, request: Any, scope: Scope, subject: Subject) -> None:
    ended = _ended(client, method, request, scope, subject)
    assert ended == "error", f"{method} should fail, ended {ended}"


def _await_running(kubelet: Kubelet, pods: list[Pod], stopping: threading.Event) -> None:
    def run(pod: Pod) -> bool:
        return len(kubelet.containers(pod)) == len(pod.containers)

    what = f"{', '.join(pod.name for pod in pods)} to run"
    _await(stopping, lambda: all(run(pod) for pod in pods), what)


def _remove(kubelet: Kubelet, pods: list[Pod], stopping: threading.Event) -> None:
    workers = [kubelet.remove(pod) for pod in pods]
    what = f"{', '.join(pod.name for pod in pods)} to end"
    _await(stopping, lambda: all(worker.finished.is_set() for worker in workers), what)


def _await(stopping: threading.Event, condition: Callable[[], bool], what: str) -> None:
    due = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if stopping.wait(0.1) or time.monotonic() > due:
            raise TimeoutError(f"waited in vain for {what}; the oracle's failed calls say why")
