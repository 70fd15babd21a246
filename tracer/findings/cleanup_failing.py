"""Stops and removals that fail at once, again and again, for one reason."""

import re
from collections.abc import Hashable, Iterator

from tracer.facts import CriCall
from tracer.findings import wording
from tracer.findings.finding import Verdict
from tracer.findings.scene import Scene
from tracer.findings.troubles import FORGIVEN_NS, Trouble, Troubles, failed, said, told

CLEANUPS = frozenset({"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"})

LEAST = 2
"""A single failure may be a race, and is tried again at once."""

MAX_OBJECTS = 1024
"""Containers or sandboxes of one trouble that are told apart."""

_OWN = re.compile(r"[0-9a-f]{12,}|/[^\s\":]+|\d+")
"""What is an object's own in an error: ids, paths, numbers."""

_BUSY = "device or resource busy"
_NETWORK = ("failed to destroy network", "cni plugin not initialized", "cni config uninitialized")


class CleanupFailing:
    """One finding for each method and reason, whichever containers or sandboxes meet it."""

    kind = "cleanup_failing"

    def __init__(self) -> None:
        self._troubles = Troubles()
        self._left: dict[Hashable, set[str]] = {}  # objects that failed, and did not succeed since
        self._met: dict[Hashable, set[str]] = {}  # all that failed
        self._others: dict[Hashable, set[str]] = {}  # those that succeeded without having failed

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for call in scene.ended:
            if call.method in CLEANUPS and scene.kubelet_of(call) is not None:
                self._take(call, scene)
        for key, trouble in self._troubles:
            over = scene.now - trouble.last >= FORGIVEN_NS or not self._left[key]
            if trouble.times >= LEAST:
                yield self._verdict(key, trouble, end=trouble.last if over else None)
            if over:
                self._troubles.over(key)
        for key in [key for key in self._left if self._troubles.get(key) is None]:
            for of in (self._left, self._met, self._others):
                del of[key]

    def _take(self, call: CriCall, scene: Scene) -> None:
        ident = call.container_id or call.sandbox_id or ""
        if failed(call) and call.rpc.status != "NOT_FOUND" and scene.unexplained(call, self.kind):
            key: Hashable = (call.rpc.peer.path, call.method, _OWN.sub("", call.rpc.error or ""))
            self._troubles.add(key, call)
            for of in (self._left, self._met):
                of.setdefault(key, set())
                if len(of[key]) < MAX_OBJECTS:
                    of[key].add(ident)
            self._others.setdefault(key, set())
        elif call.rpc.status == "OK":
            for key, left in self._left.items():
                if isinstance(key, tuple) and key[:2] == (call.rpc.peer.path, call.method):
                    left.discard(ident)
                    if ident not in self._met[key] and len(self._others[key]) < MAX_OBJECTS:
                        self._others[key].add(ident)

    def _verdict(self, key: Hashable, trouble: Trouble, *, end: int | None) -> Verdict:
        call = trouble.latest
        met, others = len(self._met[key]), len(self._others[key])
        things = "sandboxes" if call.container_id is None else "containers"
        text = (call.rpc.error or "").lower()
        if met == 1:
            who = f"{wording.call(call)} failed {trouble.times} times"
        else:
            who = f"{call.method} failed for {met} of {met + others} {things} ({trouble.times} times)"
        longest = max((each.rpc.end or each.rpc.start) - each.rpc.start for each in trouble.calls.values())
        summary = f"{who}, each within {wording.gap(longest)}: {said(call)}"
        if _BUSY in text:
            summary += "; something on the host still uses it: likely a mount in another mount namespace"
        elif any(words in text for words in _NETWORK):
            summary += "; the pod network cannot be taken down, so the sandboxes stay"
        return Verdict(
            self.kind, key, "warning", trouble.start, f"{summary}.",
            end=end,
            pods=trouble.all_pods,
            calls=trouble.named,
            explains=frozenset(trouble.calls),
            evidence=told(trouble.named[:8]),
            next_steps=(
                "A busy mount: grep the container's id in /proc/*/mountinfo.",
                "The network: is the plugin's own daemon up, and its configuration in /etc/cni/net.d?",
            ),
        )  # fmt: skip
