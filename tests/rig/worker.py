"""One pod worker: what a kubelet does to bring one pod to its wanted state, and to take it away again.

Follows pkg/kubelet/kubelet.go `SyncPod`, `SyncTerminatingPod` and kuberuntime_manager.go of Kubernetes 1.36.
"""

import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2

from tests.rig.cri import CallError, Client, Subject
from tests.rig.oracle import Oracle, Scope
from tests.rig.pleg import Pleg, PodStatus, inspect, list_pods
from tests.rig.pods import Container, Pod

RESYNC_SECONDS = (60.0, 90.0)
"""A pod in its wanted state is looked at again after syncFrequency, jittered by half."""

RETRY_SECONDS = (10.0, 15.0)
"""After a failed pass (backOffPeriod, jittered)."""

BACKOFF_SECONDS = (10.0, 300.0)
"""Before the second restart of a container and at most; doubles. The first restart is immediate."""

MIN_GRACE_SECONDS = 2
"""kuberuntime_container.go minimumGracePeriodInSeconds"""


class PodWorker:
    """`run` is the worker's thread; `poke` and `terminate` may be called from any other.

    `on_running` is told the pod, the container and its id each time one was started.
    """

    def __init__(
        self,
        pod: Pod,
        client: Client,
        *,
        oracle: Oracle,
        pleg: Pleg,
        runtime: Path,
        on_running: Callable[[Pod, Container, str], None],
    ) -> None:
        self.pod = pod
        self.finished = threading.Event()
        """set when the pod is terminated"""
        self.terminating = False
        self._client = client
        self._oracle = oracle
        self._pleg = pleg
        self._runtime = runtime
        self._on_running = on_running
        self._pokes: queue.Queue[None] = queue.Queue()
        self._backoff: dict[str, tuple[float, float]] = {}  # container name: (wait, not before this time)

    def poke(self) -> None:
        """Something about the pod changed: look at it again."""
        self._pokes.put(None)

    def terminate(self) -> None:
        self.terminating = True
        self.poke()

    def run(self, stopping: threading.Event) -> None:
        """Work until the pod is terminated."""
        since = 0
        wait = 0.0
        while not stopping.is_set():
            self._sleep(wait, stopping)
            status = self._pleg.status_newer_than(self.pod.uid, since, stopping) if since else PodStatus()
            if stopping.is_set():
                return
            if self.terminating:
                if self._pass("terminate", partial(self._terminate, status)):
                    self.finished.set()
                    return
                wait = random.uniform(*RETRY_SECONDS)
            else:
                wait = random.uniform(*(RESYNC_SECONDS if self._sync(status) else RETRY_SECONDS))
                wait = min(
                    [wait, *(due - time.monotonic() for _, due in self._backoff.values() if due > time.monotonic())]
                )
            since = time.monotonic_ns()

    def _sync(self, status: PodStatus) -> bool:
        todo = self._todo(status)
        if todo is None:
            return True
        done = self._pass(*todo)
        if done:
            self._pleg.request(self.pod.uid)
        return done

    def _sleep(self, seconds: float, stopping: threading.Event) -> None:
        """Until something happened to the pod or `seconds` have gone."""
        due = time.monotonic() + seconds
        while not stopping.is_set() and (left := due - time.monotonic()) > 0:
            try:
                self._pokes.get(timeout=min(left, 0.2))
            except queue.Empty:
                continue
            break
        while not self._pokes.empty():
            self._pokes.get_nowait()

    def _pass(self, kind: str, work: Callable[[Scope], None]) -> bool:
        scope = Scope("terminate" if kind == "terminate" else "sync", self._oracle.number())
        start = time.monotonic_ns()
        outcome = "ok"
        try:
            work(scope)
        except CallError:
            outcome = "failed"
        self._oracle.write(
            "sync_pass",
            id=scope.id,
            pod=self.pod.identity,
            **{"pass": kind},
            start=start,
            end=time.monotonic_ns(),
            outcome=outcome,
            calls=scope.calls,
        )
        return outcome == "ok"

    def _todo(self, status: PodStatus) -> tuple[str, Callable[[Scope], None]] | None:
        """kuberuntime_manager.go `computePodActions`: the kind of pass and its work, or None when all is well."""
        ready = [sandbox for sandbox in status.sandboxes if sandbox.state == api_pb2.SANDBOX_READY]
        if not ready:
            attempt = status.sandboxes[0].metadata.attempt + 1 if status.sandboxes else 0
            kind = "recreate_sandbox" if status.sandboxes else "create"
            return kind, partial(self._create, status, attempt)
        starts = self._starts(status)
        if not starts:
            return None
        kind = "restart" if all(attempt for _, attempt in starts) else "start_container"
        return kind, partial(self._start_all, ready[0].id, ready[0].metadata.attempt, starts)

    def _starts(self, status: PodStatus) -> list[tuple[Container, int]]:
        """Containers to start now, with their attempt: the next init container, or else all that do not run."""
        newest: dict[str, Any] = {}
        for found in status.containers:  # newest first
            newest.setdefault(found.metadata.name, found)
        for container in self.pod.init:
            found = newest.get(container.name)
            if found is None:
                return [(container, 0)]
            if found.state != api_pb2.CONTAINER_EXITED:
                return []
        starts = []
        for container in self.pod.containers:
            found = newest.get(container.name)
            if found is None:
                starts.append((container, 0))
            elif found.state == api_pb2.CONTAINER_EXITED and self._may_restart(container):
                starts.append((container, found.metadata.attempt + 1))
        return starts

    def _may_restart(self, container: Container) -> bool:
        wait, due = self._backoff.get(container.name, (0.0, 0.0))
        if time.monotonic() < due:
            return False
        wait = min(wait * 2 or BACKOFF_SECONDS[0], BACKOFF_SECONDS[1])
        self._backoff[container.name] = (wait, time.monotonic() + wait)
        return True

    def _create(self, status: PodStatus, attempt: int, scope: Scope) -> None:
        subject = Subject(pod=self.pod.identity)
        for old in status.sandboxes:
            self._stop_sandbox(scope, old.id)
        self.pod.log_directory(self._runtime).mkdir(parents=True, exist_ok=True)
        config = self.pod.sandbox_config(attempt, self._runtime)
        answer = self._client.call("RunPodSandbox", api_pb2.RunPodSandboxRequest(config=config), scope, subject)
        sandbox_id = answer.pod_sandbox_id
        request = api_pb2.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        self._client.call("PodSandboxStatus", request, scope, replace(subject, sandbox_id=sandbox_id))
        first = self.pod.init[:1] or self.pod.containers
        self._start_all(sandbox_id, attempt, [(container, 0) for container in first], scope)

    def _start_all(
        self,
        sandbox_id: str,
        sandbox_attempt: int,
        starts: list[tuple[Container, int]],
        scope: Scope,
    ) -> None:
        sandbox_config = self.pod.sandbox_config(sandbox_attempt, self._runtime)
        for container, attempt in starts:
            config = self.pod.container_config(container, attempt)
            self._ensure_image(config.image.image, sandbox_config, scope)
            subject = Subject(
                pod=self.pod.identity,
                sandbox_id=sandbox_id,
                container=container.name,
                attempt=attempt,
                image=config.image.image,
            )
            request = api_pb2.CreateContainerRequest(
                pod_sandbox_id=sandbox_id,
                config=config,
                sandbox_config=sandbox_config,
            )
            (self.pod.log_directory(self._runtime) / container.name).mkdir(exist_ok=True)
            container_id = self._client.call("CreateContainer", request, scope, subject).container_id
            subject = replace(subject, container_id=container_id, image=None)
            start = api_pb2.StartContainerRequest(container_id=container_id)
            self._client.call("StartContainer", start, scope, subject)
            self._on_running(self.pod, container, container_id)

    def _ensure_image(self, name: str, sandbox_config: api_pb2.PodSandboxConfig, scope: Scope) -> None:
        """Pulled if it is not there (pull policy IfNotPresent); then its user is asked, without the annotations."""
        annotated = api_pb2.ImageSpec(image=name, annotations=self.pod.all_annotations())
        subject = Subject(pod=self.pod.identity, image=name)
        present = api_pb2.ImageStatusRequest(image=annotated)
        if not self._client.call("ImageStatus", present, scope, subject).HasField("image"):
            pull = api_pb2.PullImageRequest(image=annotated, auth=self.pod.auth, sandbox_config=sandbox_config)
            self._client.call("PullImage", pull, scope, subject)
            self._client.call("ImageStatus", present, scope, subject)  # its size
        user = api_pb2.ImageStatusRequest(image=api_pb2.ImageSpec(image=name))
        self._client.call("ImageStatus", user, scope, Subject(image=name))

    def resize(self, container: Any, linux: api_pb2.LinuxContainerResources) -> None:
        """A pass of its own that changes the resources of a running container, from any thread while the pod rests."""
        request = api_pb2.UpdateContainerResourcesRequest(container_id=container.id, linux=linux)
        subject = Subject(pod=self.pod.identity, container_id=container.id, container=container.metadata.name)
        self._pass("resize", lambda scope: self._client.call("UpdateContainerResources", request, scope, subject))

    def _terminate(self, status: PodStatus, scope: Scope) -> None:
        grace = max(MIN_GRACE_SECONDS, self.pod.grace)
        running = [found for found in status.containers if found.state == api_pb2.CONTAINER_RUNNING]
        if running:
            with ThreadPoolExecutor(len(running)) as pool:
                stops = [pool.submit(self._stop_container, scope, status, found, grace) for found in running]
            for stop in stops:
                stop.result()
        for sandbox in status.sandboxes:
            self._stop_sandbox(scope, sandbox.id)
        record = list_pods(self._client, scope, self.pod.uid).get(self.pod.uid)
        if record is not None:
            inspect(self._client, scope, record)

    def _stop_container(self, scope: Scope, status: PodStatus, found: Any, grace: int) -> None:
        subject = Subject(
            pod=self.pod.identity,
            sandbox_id=status.sandboxes[0].id if status.sandboxes else None,
            container_id=found.id,
            container=found.metadata.name,
            attempt=found.metadata.attempt,
        )
        request = api_pb2.StopContainerRequest(container_id=found.id, timeout=grace)
        self._client.call("StopContainer", request, scope, subject)

    def _stop_sandbox(self, scope: Scope, sandbox_id: str) -> None:
        subject = Subject(pod=self.pod.identity, sandbox_id=sandbox_id)
        self._client.call("StopPodSandbox", api_pb2.StopPodSandboxRequest(pod_sandbox_id=sandbox_id), scope, subject)
