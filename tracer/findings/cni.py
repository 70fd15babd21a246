"""CNI plugins: one that takes long, one that fails. What else the pod waits for, or tries again, follows from it."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracer.facts import CriCall, Pod
from tracer.findings import wording
from tracer.findings.finding import Evidence, Verdict, severity_of
from tracer.findings.scene import NS, Scene
from tracer.runtime.step import Step

SHOWN_NS = 2 * NS
WARNING_NS = 4 * NS
"""Plugins that ask a cloud for an address take a second or two."""

FORGIVEN_NS = 60 * NS
"""A plugin that has not failed for longer has recovered, or is not asked any more: retries come each 10 to 15 s."""

MAX_FAILING = 64
"""Plugins that fail at once; a node has a handful."""

MAX_PODS = 32
"""Pods named in one finding."""


class CniSlow:
    """One finding for each run of a plugin."""

    kind = "cni_slow"

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for step in (*scene.steps, *scene.runtime.open_steps()):
            if step.kind != "cni" or step.parent is not None:
                continue
            until = scene.now if step.end is None else step.end
            if until - step.start >= SHOWN_NS:
                yield self._verdict(step, until)

    def _verdict(self, step: Step, until: int) -> Verdict:
        lasted = wording.seconds(until - step.start)
        call = step.call
        inside = max(
            (child for child in step.children if 2 * ((child.end or until) - child.start) > until - step.start),
            key=lambda child: child.start,
            default=None,
        )
        pod = step.pod or (call.pod if call else None)
        command = f" {step.command}" if step.command else ""
        where = f" of pod {wording.pod(pod)}" if pod else f" of sandbox {(step.sandbox_id or 'unknown')[:13]}"
        summary = (
            f"The CNI plugin {step.name}{command} {'took' if step.end is not None else 'has been running for'} {lasted}"
            f" for the sandbox{where}"
        )
        if inside is not None:
            summary += f"; in it {inside.name} (process {inside.pid})"
        evidence = [
            Evidence(
                step.start, f"{step.name}{command} (process {step.pid}): {lasted}.", call.id if call else None, step.id
            )
        ]
        if call is not None:
            waited = "took" if call.rpc.end is not None else "has been waiting for"
            end = until if call.rpc.end is None else call.rpc.end
            evidence.append(
                Evidence(
                    call.rpc.start, f"{wording.call(call)} {waited} {wording.seconds(end - call.rpc.start)}.", call.id
                )
            )
        unknown = () if call is not None else ("Which call it ran for: more than one was open.",)
        return Verdict(
            self.kind, step.id, severity_of(until - step.start, WARNING_NS), step.start, f"{summary}.",
            end=step.end,
            pods=(pod,) if pod else (),
            calls=(call,) if call else (),
            explains=frozenset((call.id,)) if call else frozenset(),
            evidence=evidence,
            confidence="high" if call is not None else "medium",
            processes={step.pid: f"The plugin {step.name}"} if step.pid else {},
            unknown=unknown,
            next_steps=(
                f"ps -o pid,stat,wchan:32,args --ppid {step.pid} -p {step.pid}",
                "Logs of the network plugin's own daemon (calico-node, cilium-agent, aws-node ...) at this time.",
            ),
        )  # fmt: skip


@dataclass(slots=True)
class _Failing:
    start: int
    last: int
    times: int = 0
    exit_code: int | None = None
    signal: int | None = None
    recovered: bool = False  # it worked for every pod that it had failed for
    pods: dict[str, Pod] = field(default_factory=dict)
    calls: OrderedDict[str, CriCall] = field(default_factory=OrderedDict)


class CniFailing:
    """One finding for each plugin that fails, until it has not failed for a while."""

    kind = "cni_failing"

    def __init__(self) -> None:
        self._failing: OrderedDict[str, _Failing] = OrderedDict()

    def look(self, scene: Scene) -> Iterator[Verdict]:
        for step in scene.steps:
            if step.kind == "cni" and step.parent is None and step.command in (None, "ADD"):
                if step.exit_code or step.signal:
                    self._failed(step)
                elif step.exit_code == 0:
                    self._succeeded(step)
        for call in scene.ended:
            self._follow(call)
        for name, failing in list(self._failing.items()):
            over = scene.now - failing.last >= FORGIVEN_NS or failing.recovered
            yield self._verdict(name, failing, end=failing.last if over else None)
            if over:
                del self._failing[name]

    def _failed(self, step: Step) -> None:
        if step.command is None and (step.call is None or step.call.method != "RunPodSandbox"):
            return  # it may have been a DEL, whose failure is retried and holds up nobody
        failing = self._failing.get(step.name)
        if failing is None:
            failing = self._failing[step.name] = _Failing(step.start, step.start)
            if len(self._failing) > MAX_FAILING:
                self._failing.popitem(last=False)
        failing.last, failing.times = step.end or step.start, failing.times + 1
        failing.exit_code, failing.signal, failing.recovered = step.exit_code, step.signal, False
        pod = step.pod or (step.call.pod if step.call else None)
        if pod is not None and len(failing.pods) < MAX_PODS:
            failing.pods[pod.uid] = pod
        if step.call is not None:
            failing.calls[step.call.id] = step.call

    def _succeeded(self, step: Step) -> None:
        """An ADD of the plugin for a pod that it failed for: that one is over."""
        failing = self._failing.get(step.name)
        if failing is not None and step.command == "ADD" and step.pod is not None:
            failing.pods.pop(step.pod.uid, None)
            failing.recovered = not failing.pods

    def _follow(self, call: CriCall) -> None:
        """The pod's further attempts are followers: they are its calls, not further troubles."""
        if call.method != "RunPodSandbox" or call.pod is None or call.rpc.status in ("OK", None):
            return
        for failing in self._failing.values():
            if call.pod.uid in failing.pods and len(failing.calls) < MAX_PODS:
                failing.calls[call.id] = call

    def _verdict(self, name: str, failing: _Failing, *, end: int | None) -> Verdict:
        calls = tuple(failing.calls.values())
        how = f"signal {failing.signal}" if failing.signal else f"exit code {failing.exit_code}"
        times = wording.times(failing.times)
        pods = tuple(failing.pods.values()) or wording.pods_of(calls)
        errors = [call.rpc.error for call in calls if call.rpc.error]
        said = f"; the runtime says: {wording.error(errors[-1])}" if errors else ""
        evidence = [
            Evidence(
                call.rpc.start,
                f"{wording.call(call)} ended with {call.rpc.status or 'no status'}: "
                f"{wording.error(call.rpc.error or '')}",
                call.id,
            )
            for call in calls
        ]
        return Verdict(
            self.kind, name, "warning", failing.start,
            f"The CNI plugin {name} failed {times} ({how}), so no sandbox could be made for "
            f"{wording.several(wording.pod(each) for each in pods) or 'a pod that is not known'}{said}.",
            end=end,
            pods=pods,
            calls=calls,
            explains=frozenset(failing.calls),
            evidence=evidence,
            next_steps=(
                "Logs of the network plugin's own daemon at this time; its IP pool; its configuration.",
                "The kubelet tries again each 10 to 15 s; what fails in between follows from this.",
            ),
        )  # fmt: skip
