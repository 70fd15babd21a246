"""What hangs at one pod: its calls, what began before them, and how to say so."""

from collections import OrderedDict
from dataclasses import dataclass, field

from tracer.facts import CriCall, Pod
from tracer.findings import wording
from tracer.findings.finding import Evidence
from tracer.findings.inspecting import Share
from tracer.findings.scene import NS

MAX_CALLS = 64
"""Calls named in one finding."""

MOST_NAMES = 3
"""Containers of a pod named in one sentence."""

MAX_TIMES = 4
"""Different times after which calls were given up; the kubelet has one for all of these."""


@dataclass(slots=True)
class PodHang:
    """`calls`: those that hung, the latest `MAX_CALLS`. Times are monotonic ns; `stall` is when the one now began.

    `gave_up`: how many calls their client gave up; `after`: after how many seconds. `holder`: the change that began
    before `first` and is thought to hold it up; `exec`: an ExecSync that ended just before; `state`: as listed.
    """

    first: CriCall
    start: int
    until: int
    pod: Pod | None
    stall: int
    stalls: int = 1
    gave_up: int = 0
    after: set[int] = field(default_factory=set)
    calls: OrderedDict[str, CriCall] = field(default_factory=OrderedDict)
    holder: CriCall | None = None
    share: Share | None = None
    exec: CriCall | None = None
    state: str | None = None
    reads: bool = False
    cleared: bool = False

    def add(self, call: CriCall, end: int, *, read: bool) -> None:
        """`call` hangs until now, or hung until `end`. Once a look as long as it is open, and once when it ended."""
        self.calls[call.id] = call
        if len(self.calls) > MAX_CALLS:
            self.calls.popitem(last=False)
        self.until = max(self.until, end)
        self.reads = self.reads or read
        self.cleared = False
        if call.rpc.ended_by in ("deadline", "client_cancel"):
            self.gave_up += 1
            if read and len(self.after) < MAX_TIMES:
                self.after.add(round((end - call.rpc.start) / NS))
        held = self.holder
        if held is not None and held.rpc.answered is not None and held.rpc.answered < end - NS:
            self.holder = None  # it ended, and what was thought to wait for it still hangs

    def summary(self, now: int, *, over: bool, see: str | None) -> str:
        """Without the full stop. `see`: kind of the finding that explains the holder."""
        calls = tuple(self.calls.values())
        names = _names(calls)
        verb = "did" if over else "do" if len(names) > 1 else "does"
        summary = f"{_who(names, calls)} {verb} not answer {wording.several(each.method or 'a call' for each in calls)}"
        summary += f" for {wording.seconds(self.until - self.stall)}"
        if self.gave_up:
            each = ", each" if self.gave_up > 1 else ""
            after = f"{each} after {next(iter(self.after))} s" if len(self.after) == 1 else ""
            summary += f" ({self.gave_up} given up{after})"
        if self.stalls > 1:
            summary += f", the {self.stalls}. time within {wording.seconds(self.until - self.start)}"
        if self.holder is not None:
            summary += f"; {_holding(self.holder, self.first, now)}"
        elif self.exec is not None:
            ago = wording.gap(self.first.rpc.start - (self.exec.rpc.end or 0))
            summary += f"; it stopped answering {ago} after an {self.exec.method}"
        if see is not None:
            summary += f" (see {see})"
        if self.share is not None:
            summary += f"; {self.share.words}, both lists answered"
        return summary

    def evidence(self, now: int) -> list[Evidence]:
        """What the finding rests on."""
        found: list[Evidence] = []
        holder = self.holder
        if holder is not None:
            before = wording.gap(self.first.rpc.start - holder.rpc.start)
            found.append(Evidence(holder.rpc.start, f"{wording.call(holder)} began {before} before.", holder.id))
        if self.exec is not None:
            found.append(Evidence(self.exec.rpc.end, f"{wording.call(self.exec)} was the last before.", self.exec.id))
        if self.state is not None:
            found.append(Evidence(None, f"The relist's list shows the container as {self.state}."))
        for call in self.calls.values():
            lasted = wording.seconds((now if call.rpc.end is None else call.rpc.end) - call.rpc.start)
            how = {"deadline": "given up by its client", "client_cancel": "given up by its client", None: "open"}
            found.append(
                Evidence(
                    call.rpc.start, f"{wording.call(call)}: {lasted}, {how.get(call.rpc.ended_by, 'answered')}.",
                    call.id,
                )
            )  # fmt: skip
        return found


def _names(calls: tuple[CriCall, ...]) -> list[str]:
    """Each container and the sandbox once."""
    names = [f"container {each.container.name}" for each in calls if each.container is not None]
    names += [f"container {each.container_id[:13]}" for each in calls if each.container is None and each.container_id]
    names += ["the sandbox" for each in calls if not each.container_id and each.sandbox_id]
    return sorted(set(names))[:MOST_NAMES] or ["a container"]


def _who(names: list[str], calls: tuple[CriCall, ...]) -> str:
    """`Container main of pod default/web-0`."""
    who = " and ".join(names)
    pod = next((each.pod for each in calls if each.pod is not None), None)
    return f"{who[0].upper()}{who[1:]}{f' of pod {wording.pod(pod)}' if pod is not None else ''}"


def _holding(holder: CriCall, first: CriCall, now: int) -> str:
    """What was open before, how it stands, and when it is expected to end."""
    grace = f" with {holder.grace} s grace" if holder.method == "StopContainer" and holder.grace is not None else ""
    where = ""
    if holder.container is not None and holder.container_id != first.container_id:
        where = f" of container {holder.container.name}"
    before = wording.gap(first.rpc.start - holder.rpc.start)
    what = f"{holder.method}{grace}{where}, which began {before} before,"
    rpc = holder.rpc
    if rpc.ended_by in ("deadline", "client_cancel") and rpc.end is not None:
        return (
            f"{what} was given up by its client after {wording.seconds(rpc.end - rpc.start)} and is likely still going "
            "on in the runtime"
        )
    if rpc.end is not None:
        return f"{what} likely held it up and took {wording.seconds(rpc.end - rpc.start)}"
    what = f"{what} is open for {wording.seconds(now - rpc.start)} and likely holds it up"
    if holder.method == "StopContainer" and holder.grace is not None:
        left = rpc.start + holder.grace * NS - now
        if left > 0:
            return f"{what}: expected to clear when the grace ends, in {wording.seconds(left)}"
        return f"{what}, {wording.seconds(-left)} longer than its grace"
    return what
