"""Locks: which open call may hold what another call waits for. The runtime's locks are not seen; their order is.

A runtime holds a lock of a container, of a sandbox, or of all of them while it changes one. So what a call waits for
can only be held by a call that began before it; how long either takes says nothing.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from tracer.facts import CriCall

CONTAINER_CHANGES = frozenset({
    "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "UpdateContainerResources",
    "CheckpointContainer",
})  # fmt: skip
SANDBOX_CHANGES = frozenset({"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "UpdatePodSandboxResources"})
CHANGES = CONTAINER_CHANGES | SANDBOX_CHANGES
"""Calls that change a container or a sandbox, and so hold its lock in one runtime or the other."""

DEEPER = frozenset({
    "runtime_down", "runtime_not_reading", "shim_hung", "cni_slow", "runc_slow", "runtime_slow", "starts_saturated",
    "writes_stalled",
})  # fmt: skip
"""Kinds of findings that say what a holder itself waits for: what waits behind it only follows from that."""

_PROOFS = CHANGES | {"ContainerStatus", "PodSandboxStatus"}
"""What, answered, proves that nobody holds what it is about."""

MAX_ABANDONED = 256
"""Calls remembered that the client gave up while the runtime may go on with them."""

ABANDONED_NS = 3600 * 1_000_000_000
"""What was given up longer ago is no longer thought to be going on."""


class Abandoned:
    """Changes that their client gave up, so that the runtime may still be at them. Feed every call that ended."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, CriCall] = OrderedDict()

    def __iter__(self) -> Iterator[CriCall]:
        return iter(self._calls.values())

    def ended(self, calls: Iterable[CriCall], now: int) -> None:
        """`calls` ended; those given up are remembered until what they changed is changed, or answers, again."""
        for call in calls:
            if call.method in CHANGES and call.rpc.ended_by in ("deadline", "client_cancel"):
                self._calls[call.id] = call
            elif self._calls and call.rpc.status == "OK" and call.method in _PROOFS:
                self._over(call)
        while len(self._calls) > MAX_ABANDONED:
            self._calls.popitem(last=False)
        for ident, call in list(self._calls.items()):
            if now - (call.rpc.end or now) <= ABANDONED_NS:
                break
            del self._calls[ident]

    def _over(self, done: CriCall) -> None:
        for ident, call in list(self._calls.items()):
            if relation(call, done) is not None and done.rpc.start >= (call.rpc.end or 0):
                del self._calls[ident]


def relation(holder: CriCall, waiting: CriCall) -> int | None:
    """How near `holder` is to what `waiting` is about: 0 its container, 1 its sandbox, 2 its pod; None: another's.

    Two calls to two containers of one pod have nothing to do with each other.
    """
    if holder.rpc.peer.path != waiting.rpc.peer.path:
        return None
    if _container(holder) and _container(waiting):
        return 0 if _one_container(holder, waiting) else None
    if holder.sandbox_id and holder.sandbox_id == waiting.sandbox_id:
        return 1
    return 2 if _pod(holder) is not None and _pod(holder) == _pod(waiting) else None


def holder(waiting: CriCall, changing: Iterable[CriCall]) -> CriCall | None:
    """Of calls that are open, or were given up, the one that `waiting` most likely waits for: the nearest, the first.

    An ExecSync may hold its own container only.
    """
    found = [
        (near, call.rpc.start, index, call)
        for index, call in enumerate(changing)
        if call is not waiting and call.rpc.start < waiting.rpc.start and _held_then(call, waiting)
        and (near := relation(call, waiting)) is not None
        and (call.method in CHANGES or (call.method == "ExecSync" and near == 0))
    ]  # fmt: skip
    return min(found)[3] if found else None


def until(call: CriCall, now: int) -> int:
    """When the runtime was done with the call, as far as that was seen: an answer may lie unread by the client."""
    if call.rpc.answered is not None:
        return call.rpc.answered
    return now if call.rpc.end is None else call.rpc.end


def _held_then(call: CriCall, waiting: CriCall) -> bool:
    """Whether nobody answered it before `waiting` began."""
    return call.rpc.answered is None or call.rpc.answered >= waiting.rpc.start


def _one_container(one: CriCall, other: CriCall) -> bool:
    if one.container_id and other.container_id:
        return one.container_id == other.container_id
    # One of them is the creation of a container that has no id yet.
    if one.container is None or other.container is None or _pod(one) is None:
        return False
    return one.container.name == other.container.name and _pod(one) == _pod(other)


def _container(call: CriCall) -> bool:
    return call.container is not None or call.container_id is not None


def _pod(call: CriCall) -> str | None:
    return call.pod.uid if call.pod is not None else None
