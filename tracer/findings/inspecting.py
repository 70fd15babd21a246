"""How a relist spends its time: which of the pods that it inspects, one after the other, takes how much of it."""

from dataclasses import dataclass

from tracer.facts import EXITED, Pod
from tracer.findings import wording
from tracer.kubelet.relists import Relist


@dataclass(frozen=True, slots=True)
class Share:
    """One pod's part of a relist. Times in ns; `pods`: how many the relist listed, None if that was not seen."""

    relist: Relist
    pod: Pod
    taken: int
    lasted: int
    pods: int | None

    @property
    def words(self) -> str:
        """`1 of 30 pods takes 100 % of the relist's time`."""
        of = f"1 of {self.pods} pods" if self.pods is not None else "This one pod"
        verb = "took" if self.relist.end is not None else "takes"
        return (
            f"{of} {verb} {round(100 * self.taken / max(1, self.lasted))} % of the relist's time "
            f"({wording.seconds(self.taken)} of {wording.seconds(self.lasted)})"
        )


def lasted(relist: Relist, now: int) -> int:
    """Nanoseconds, so far or in all."""
    return (now if relist.end is None else relist.end) - relist.start


def largest(relist: Relist, now: int) -> Share | None:
    """The pod whose inspection takes most of the relist."""
    taken: dict[Pod, int] = {}
    for inspection in relist.inspections:
        waits = inspection.calls and inspection.calls[-1].rpc.end is None
        end = now if inspection.end is None or waits else inspection.end
        taken[inspection.pod] = taken.get(inspection.pod, 0) + end - inspection.start
    if not taken:
        return None
    pod = max(taken, key=lambda each: taken[each])
    return Share(relist, pod, taken[pod], lasted(relist, now), pods(relist))


def pods(relist: Relist) -> int | None:
    """How many pods have a sandbox; None when the list was not seen whole."""
    listed = relist.list_sandboxes.sandboxes if relist.list_sandboxes else None
    return None if listed is None else len({item.pod.uid for item in listed})


def exited(relist: Relist) -> tuple[int, int] | None:
    """How many containers have exited, and how many there are; None when the list was not seen whole."""
    listed = relist.list_containers.containers if relist.list_containers else None
    return None if listed is None else (sum(item.state == EXITED for item in listed), len(listed))


def state(relist: Relist, container_id: str) -> str | None:
    """The state in which the relist listed the container: CREATED, RUNNING, EXITED, UNKNOWN; None if it did not."""
    listed = (relist.list_containers.containers if relist.list_containers else None) or ()
    found = next((item.state for item in listed if item.id == container_id), None)
    return None if found is None else ("CREATED", "RUNNING", "EXITED", "UNKNOWN")[found] if found < 4 else "UNKNOWN"
