"""A kubelet as its runtime sees it: pod workers, the PLEG and every periodic caller, on two connections.

The periods are those of Kubernetes 1.36 with their source beside them.
"""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2

from tests.rig.cri import NOBODY, CallError, Client, Subject
from tests.rig.oracle import Oracle, Scope
from tests.rig.pleg import Event, Pleg, container_subject, list_pods
from tests.rig.pods import CONTAINER_NAME, POD_UID, Container, Pod, Probe, identity
from tests.rig.redial import LastingChannel
from tests.rig.worker import PodWorker

STATUS_PERIOD = 5.0  # kubelet.go updateRuntimeUp
VERSION_PERIOD = 10.0  # node status update, nodeStatusUpdateFrequency
HOUSEKEEPING_PERIOD = 2.0  # kubelet.go housekeepingPeriod
STATS_PERIOD = 10.0  # eviction_manager.go monitoringInterval
LOG_PERIOD = 10.0  # container_log_manager.go containerLogMonitorInterval
IMAGE_CACHE_PERIOD = 30.0  # image_gc_manager.go Start
IMAGE_GC_PERIOD = 300.0  # kubelet.go ImageGCPeriod
CONTAINER_GC_PERIOD = 60.0  # kubelet.go ContainerGCPeriod

STAGGER = 0.1
"""Seconds between the first turns of the periodic callers. A kubelet lets them go at once; a Python process would then
measure how its own threads wait for each other."""

PROBE_RETRIES = 3  # prober.go maxProbeRetries: on errors, not on failures


class Kubelet:
    """`start`, then `add` and `remove` pods as wanted, then `stop`. Everything runs in threads of this process."""

    def __init__(self, socket: Path, oracle: Oracle) -> None:
        self.client = Client(socket, oracle, LastingChannel)
        self._oracle = oracle
        self.runtime = socket.parent
        self._pleg = Pleg(self.client, oracle, self._on_event)
        self._workers: dict[str, PodWorker] = {}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._removing = threading.Lock()  # one container is removed at a time

    def start(self) -> None:
        """The calls of a kubelet's start in their order, then everything periodic."""
        scope = Scope("startup")
        self.client.call("Version", api_pb2.VersionRequest(), scope)
        self.client.call("ImageFsInfo", api_pb2.ImageFsInfoRequest(), scope)
        for _ in range(3):  # getCgroupDriverFromCRI does not stop at the first answer
            self._try("RuntimeConfig", api_pb2.RuntimeConfigRequest(), scope)
        self._node_version()
        self._runtime_status()
        self._spawn(self._pleg.run, self._stopping)
        periodic = (
            (HOUSEKEEPING_PERIOD, self._housekeep),
            (CONTAINER_GC_PERIOD, self.collect_garbage),
            (IMAGE_CACHE_PERIOD, self._refresh_images),
            (IMAGE_GC_PERIOD, self._collect_images),
            (STATUS_PERIOD, self._runtime_status),
            (VERSION_PERIOD, self._node_version),
            (STATS_PERIOD, self._read_stats),
            (LOG_PERIOD, self._look_at_logs),
        )
        for turn, (period, action) in enumerate(periodic, start=1):
            self._spawn(self._repeat, turn * STAGGER, period, action)

    def stop(self) -> None:
        """End every thread; pods stay as they are."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self.client.close()

    def add(self, pod: Pod) -> PodWorker:
        worker = PodWorker(
            pod,
            self.client,
            oracle=self._oracle,
            pleg=self._pleg,
            runtime=self.runtime,
            on_running=self._on_running,
        )
        self._workers[pod.uid] = worker
        self._spawn(worker.run, self._stopping)
        return worker

    def worker(self, pod: Pod) -> PodWorker:
        return self._workers[pod.uid]

    def pod(self, name: str) -> Pod:
        """The newest of this name. Raises LookupError."""
        found = [worker.pod for worker in self._workers.values() if worker.pod.name == name]
        if not found:
            raise LookupError(f"no pod {name} was added")
        return found[-1]

    def remove(self, pod: Pod) -> PodWorker:
        """Begin to terminate the pod; `finished` of the answer is set when it is down."""
        worker = self._workers[pod.uid]
        worker.terminate()
        return worker

    def containers(self, pod: Pod) -> list[Any]:
        """Status of the pod's running containers as the PLEG knows them."""
        found = self._pleg.status(pod.uid).containers
        return [container for container in found if container.state == api_pb2.CONTAINER_RUNNING]

    def sandboxes(self, pod: Pod) -> list[Any]:
        found = self._pleg.status(pod.uid).sandboxes
        return [sandbox for sandbox in found if sandbox.state == api_pb2.SANDBOX_READY]

    def find_containers(self, scope: Scope) -> None:
        """What a kubelet lists before it execs, attaches or forwards a port for the API server (`findContainer`)."""
        ready = api_pb2.PodSandboxFilter(state=api_pb2.PodSandboxStateValue(state=api_pb2.SANDBOX_READY))
        running = api_pb2.ContainerFilter(state=api_pb2.ContainerStateValue(state=api_pb2.CONTAINER_RUNNING))
        self.client.call("ListPodSandbox", api_pb2.ListPodSandboxRequest(filter=ready), scope)
        self.client.call("ListContainers", api_pb2.ListContainersRequest(filter=running), scope)

    def collect_garbage(self) -> None:
        """kuberuntime_gc.go `GarbageCollect`: dead containers beyond the newest, then sandboxes without any."""
        scope = Scope("container_gc", self._oracle.number())
        empty = api_pb2.ListContainersRequest(filter=api_pb2.ContainerFilter())
        for container in self._removable(self.client.call("ListContainers", empty, scope).containers):
            self._remove_container(container, scope)
        occupied = {entry.pod_sandbox_id for entry in self.client.call("ListContainers", empty, scope).containers}
        request = api_pb2.ListPodSandboxRequest(filter=api_pb2.PodSandboxFilter())
        for sandbox in self.client.call("ListPodSandbox", request, scope).items:
            gone = self._is_gone(sandbox.labels[POD_UID])
            if sandbox.state == api_pb2.SANDBOX_NOTREADY and sandbox.id not in occupied and gone:
                subject = Subject(pod=identity(sandbox.labels), sandbox_id=sandbox.id)
                stop = api_pb2.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
                self.client.call("StopPodSandbox", stop, scope, subject)
                remove = api_pb2.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id)
                self.client.call("RemovePodSandbox", remove, scope, subject)

    def _on_event(self, event: Event) -> None:
        """kubelet.go `syncLoopIteration`, its PLEG branch."""
        worker = self._workers.get(event.pod_uid)
        if worker is not None and event.type != "ContainerRemoved":
            worker.poke()
        if event.type == "ContainerDied":
            self._spawn(self._remove_dead, event.pod_uid)

    def _on_running(self, pod: Pod, container: Container, container_id: str) -> None:
        if container.probe:
            self._spawn(self._probe, pod, container, container.probe, container_id)

    def _probe(self, pod: Pod, container: Container, probe: Probe, container_id: str) -> None:
        """One prober worker: as long as its container is the running one."""
        scope = Scope("probe")
        request = api_pb2.ExecSyncRequest(container_id=container_id, cmd=probe.command, timeout=probe.timeout)
        subject = Subject(pod=pod.identity, container_id=container_id, container=container.name)
        while not self._stopping.wait(probe.period):
            if self._workers[pod.uid].terminating:
                return
            running = any(found.id == container_id for found in self.containers(pod))
            seen = any(found.id == container_id for found in self._pleg.status(pod.uid).containers)
            if seen and not running:
                return
            for _ in range(PROBE_RETRIES if running else 0):
                try:
                    self.client.call("ExecSync", request, scope, subject)
                except CallError as error:
                    if error.status != "DEADLINE_EXCEEDED":  # a probe that took too long failed, which is an answer
                        continue
                break

    def _remove_dead(self, uid: str) -> None:
        """pod_container_deletor.go: after a death, the pod's dead containers that nobody needs."""
        containers = self._pleg.status(uid).containers
        dead = [found for found in containers if found.state == api_pb2.CONTAINER_EXITED]
        for container in dead if self._is_gone(uid) else _all_but_newest(dead):
            self._remove_container(container, Scope("container_gc", self._oracle.number()))

    def _removable(self, containers: Any) -> list[Any]:
        dead = [entry for entry in containers if entry.state == api_pb2.CONTAINER_EXITED]
        gone = [entry for entry in dead if self._is_gone(entry.labels[POD_UID])]
        return gone + _all_but_newest([entry for entry in dead if not self._is_gone(entry.labels[POD_UID])])

    def _remove_container(self, container: Any, scope: Scope) -> None:
        """Its status twice (log manager's Clean, then removeContainerLog), then the removal."""
        subject = Subject(
            pod=identity(container.labels),
            container_id=container.id,
            container=container.labels[CONTAINER_NAME],
            attempt=container.metadata.attempt,
        )
        status = api_pb2.ContainerStatusRequest(container_id=container.id)
        remove = api_pb2.RemoveContainerRequest(container_id=container.id)
        with self._removing:
            for method, request in (
                ("ContainerStatus", status),
                ("ContainerStatus", status),
                ("RemoveContainer", remove),
            ):
                if self._try(method, request, scope, subject) is None:
                    return  # another removed it first

    def _is_gone(self, uid: str) -> bool:
        worker = self._workers.get(uid)
        return worker is None or worker.finished.is_set()

    def _runtime_status(self) -> None:
        self._try("Status", api_pb2.StatusRequest(), Scope("runtime_status"))

    def _node_version(self) -> None:
        self._try("Version", api_pb2.VersionRequest(version="0.1.0"), Scope("node_version"))

    def _housekeep(self) -> None:
        self.find_containers(Scope("housekeeping", self._oracle.number()))

    def _refresh_images(self) -> None:
        self.client.call("ListImages", api_pb2.ListImagesRequest(), Scope("image_gc"))

    def _collect_images(self) -> None:
        """Image detection with every container's status (for image volumes), then the file system's usage."""
        scope = Scope("image_gc", self._oracle.number())
        self.client.call("ListImages", api_pb2.ListImagesRequest(), scope)
        for record in list_pods(self.client, scope).values():
            for container in record.containers:
                self._container_status(container, scope)
        self.client.call("ImageFsInfo", api_pb2.ImageFsInfoRequest(), scope)

    def _read_stats(self) -> None:
        scope = Scope("stats", self._oracle.number())
        self.client.call("ImageFsInfo", api_pb2.ImageFsInfoRequest(), scope)
        containers = api_pb2.ListContainersRequest(filter=api_pb2.ContainerFilter())
        self.client.call("ListContainers", containers, scope)
        self.client.call("ListPodSandbox", api_pb2.ListPodSandboxRequest(filter=api_pb2.PodSandboxFilter()), scope)
        stats = api_pb2.ListContainerStatsRequest(filter=api_pb2.ContainerStatsFilter())
        self._try("ListContainerStats", stats, scope)  # fails as a whole when a container vanishes meanwhile

    def _look_at_logs(self) -> None:
        scope = Scope("log_rotation", self._oracle.number())
        request = api_pb2.ListContainersRequest(filter=api_pb2.ContainerFilter())
        for container in self.client.call("ListContainers", request, scope).containers:
            if container.state == api_pb2.CONTAINER_RUNNING:
                self._container_status(container, scope)

    def _container_status(self, container: Any, scope: Scope) -> None:
        request = api_pb2.ContainerStatusRequest(container_id=container.id)
        self._try("ContainerStatus", request, scope, container_subject(container))

    def _try(self, method: str, request: Any, scope: Scope, subject: Subject = NOBODY) -> Any:
        """A call whose failure the kubelet only logs; None then."""
        try:
            return self.client.call(method, request, scope, subject)
        except CallError:
            return None

    def _repeat(self, delay: float, period: float, action: Callable[[], None]) -> None:
        """After `delay` seconds, then each time `period` seconds after the last one ended (wait.Until)."""
        self._stopping.wait(delay)
        while not self._stopping.is_set():
            with contextlib.suppress(CallError):  # a kubelet logs it and comes back
                action()
            self._stopping.wait(period)

    def _spawn(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()


def _all_but_newest(containers: list[Any]) -> list[Any]:
    """Of each name: what maximum-dead-containers-per-container=1 keeps."""
    ordered = sorted(containers, key=lambda entry: entry.created_at, reverse=True)
    kept: set[tuple[str, str]] = set()
    surplus = []
    for entry in ordered:
        key = (entry.labels[POD_UID], entry.labels[CONTAINER_NAME])
        if key in kept:
            surplus.append(entry)
        kept.add(key)
    return surplus
