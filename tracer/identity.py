"""Identity: which pod and container an id means, learnt from the calls that state both."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from tracer.facts import Answer, Container, CriCall, CriEvent, Done, ListedContainer, ListedSandbox, Named, Pod

MAX_KNOWN = 32_768
"""Sandboxes, and containers, remembered; the largest nodes keep some thousands including dead ones."""

MAX_WAITING = 4096
"""Calls remembered that ended before their id was known; the next list, one second later, names them."""


class Known(NamedTuple):
    """A container: itself, its sandbox ("" where not stated) and its pod."""

    container: Container
    sandbox_id: str
    pod: Pod


@dataclass(slots=True)
class IdentityStats:
    """`unnamed`: calls that ended before their id was known; `named_later`: those of them that got their name."""

    learnt: int = 0
    named_later: int = 0
    unnamed: int = 0


class Identity:
    """Feed CRI events; it completes `pod`, `container` and `sandbox_id` of their calls.

    `feed` returns calls that ended earlier and can be named only now.
    """

    def __init__(self) -> None:
        self.stats = IdentityStats()
        self.sandboxes: OrderedDict[str, Pod] = OrderedDict()
        self.containers: OrderedDict[str, Known] = OrderedDict()
        self._waiting: OrderedDict[str, CriCall] = OrderedDict()
        self._by_uid: OrderedDict[str, Pod] = OrderedDict()
        self._by_seen: OrderedDict[str, Pod] = OrderedDict()

    def feed(self, event: CriEvent) -> list[CriCall]:
        call = event.call
        before = self.stats.learnt
        if isinstance(event, Answer):
            if call.sandboxes is not None:
                self.learn_sandboxes(call.sandboxes)
            if call.containers is not None:
                self.learn_containers(call.containers)
        self._learn_call(call)
        self.complete(call)
        if isinstance(event, (Done, Named)) and _nameless(call):
            self._waiting[call.id] = call
            self.stats.unnamed += 1
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)
        if self._waiting and self.stats.learnt != before:
            return self._name_waiting()
        return []

    def pod(self, uid: str) -> Pod | None:
        """The pod of this uid, if anything stated it."""
        return self._by_uid.get(uid)

    def pod_of_seen(self, seen: str) -> Pod | None:
        """The pod whose annotation `kubernetes.io/config.seen` has this value."""
        return self._by_seen.get(seen)

    def learn_sandboxes(self, listed: tuple[ListedSandbox, ...]) -> None:
        for sandbox in listed:
            if sandbox.id not in self.sandboxes:
                self._sandbox(sandbox.id, sandbox.pod)
                self._seen(sandbox.seen, sandbox.pod)

    def learn_containers(self, listed: tuple[ListedContainer, ...]) -> None:
        for item in listed:
            if item.id not in self.containers:
                pod = item.pod or self.sandboxes.get(item.sandbox_id)
                if pod is not None:
                    self._container(Known(item.container, item.sandbox_id, pod))

    def complete(self, call: CriCall) -> None:
        """Add what is known of the call's ids."""
        if call.container_id is not None:
            known = self.containers.get(call.container_id)
            if known is not None:
                call.container = known.container
                call.pod = known.pod
                call.sandbox_id = call.sandbox_id or known.sandbox_id or None
        if call.pod is None and call.sandbox_id is not None:
            call.pod = self.sandboxes.get(call.sandbox_id)
        if call.pod is None and call.pod_uid is not None:
            call.pod = self._by_uid.get(call.pod_uid)

    def _learn_call(self, call: CriCall) -> None:
        if call.pod is None:
            return
        if call.seen and call.method == "RunPodSandbox":
            self._seen(call.seen, call.pod)
        if call.sandbox_id and call.sandbox_id not in self.sandboxes and call.method in _STATES_SANDBOX:
            self._sandbox(call.sandbox_id, call.pod)
        container = call.container
        if container is not None and container.id and container.id not in self.containers:
            self._container(Known(container, call.sandbox_id or "", call.pod))

    def _sandbox(self, sandbox_id: str, pod: Pod) -> None:
        self.stats.learnt += 1
        self.sandboxes[sandbox_id] = pod
        self._by_uid[pod.uid] = pod
        for table in (self.sandboxes, self._by_uid):
            if len(table) > MAX_KNOWN:
                table.popitem(last=False)

    def _seen(self, seen: str | None, pod: Pod) -> None:
        if seen:
            self._by_seen[seen] = pod
            if len(self._by_seen) > MAX_KNOWN:
                self._by_seen.popitem(last=False)

    def _container(self, known: Known) -> None:
        self.stats.learnt += 1
        self.containers[known.container.id] = known
        self._by_uid[known.pod.uid] = known.pod
        for table in (self.containers, self._by_uid):
            if len(table) > MAX_KNOWN:
                table.popitem(last=False)

    def _name_waiting(self) -> list[CriCall]:
        named = []
        for call in list(self._waiting.values()):
            self.complete(call)
            if not _nameless(call):
                del self._waiting[call.id]
                named.append(call)
        self.stats.named_later += len(named)
        return named


_STATES_SANDBOX = frozenset({"RunPodSandbox", "PodSandboxStatus", "CreateContainer"})


def _nameless(call: CriCall) -> bool:
    if call.container_id is not None:
        return call.container is None
    return call.pod is None and (call.sandbox_id is not None or call.pod_uid is not None)
