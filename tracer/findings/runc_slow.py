"""A command of the OCI runtime (runc, crun) takes long: the kernel, its cgroups or the disk hold it up."""

from collections.abc import Iterator

from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene
from tracer.runtime.step import Step

SHOWN_NS = 2 * NS
WARNING_NS = 5 * NS
"""A command takes 5 to 40 ms; a hundred at once on two cores took 1.6 s."""


class RuncSlow:
    """One finding for each command."""

    kind = "runc_slow"

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for step in (*scene.steps, *scene.runtime.open_steps()):
            until = scene.now if step.end is None else step.end
            if step.kind == "runc" and until - step.start >= SHOWN_NS:
                yield self._verdict(step, until)

    def _verdict(self, step: Step, until: int) -> Verdict:
        lasted = wording.seconds(until - step.start)
        call, pod = step.call, step.pod
        what = f" of container {step.container.name}" if step.container else ""
        where = f" in pod {wording.pod(pod)}" if pod else ""
        verb = "took" if step.end is not None else "has been running for"
        behind = f"; {wording.call(call)} waits for it" if call and call.rpc.end is None else ""
        return Verdict(
            self.kind, step.id, severity_of(until - step.start, WARNING_NS), step.start,
            f"runc {step.name}{what}{where} (process {step.pid}) {verb} {lasted}{behind}.",
            end=step.end,
            pods=(pod,) if pod else (),
            calls=(call,) if call else (),
            explains=frozenset((call.id,)) if call else frozenset(),
            evidence=[Evidence(step.start, f"runc {step.name}, {lasted}.", call.id if call else None, step.id)],
            processes={step.pid: "runc"} if step.pid else {},
            unknown_process=("What it waits for: the kernel, a frozen cgroup, systemd, or the disk.",),
            next_steps=(
                f"cat /proc/{step.pid}/status /proc/{step.pid}/wchan /proc/{step.pid}/stack; the same for its children",
                "cgroup.freeze of the pod's cgroup; systemctl list-jobs; iostat",
            ),
        )  # fmt: skip
