"""Recording and alerting rules for Prometheus. Every threshold is meant to be changed."""

import json
from dataclasses import dataclass
from typing import Literal

from dashboards.grafana import DOCS
from dashboards.shared import PROMPT

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Record:
    """`name` is LEVEL:METRIC:OPERATION, after Prometheus' own convention."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """critical: the node is NotReady or soon will be. warning: pods suffer, or soon will. info: worth knowing."""

    name: str
    severity: Severity
    wait: str
    """how long it must hold: longer than a passing load, shorter than the harm"""
    summary: str
    description: str
    expr: str


_UNARY = f'client="kubelet", {PROMPT}'
_RELISTS = 'kind="generic"'
_FAILURES = 'client="kubelet", status!~"OK|NOT_FOUND|cancelled_by_client|unknown"'
_NODE_ONLY = "without (method, status, client)"

RECORDS = (
    Record(
        "instance:criscope_pleg_relist_duration_seconds:p99_rate5m",
        f"histogram_quantile(0.99, sum without (kind) (rate(criscope_pleg_relist_duration_seconds_bucket{{{_RELISTS}}}[5m])))",
    ),
    Record(
        "instance:criscope_pleg_relist_duration_seconds:mean_rate5m",
        f"sum without (kind) (rate(criscope_pleg_relist_duration_seconds_sum{{{_RELISTS}}}[5m]))\n"
        f"  / sum without (kind) (rate(criscope_pleg_relist_duration_seconds_count{{{_RELISTS}}}[5m]))",
    ),
    Record(
        "instance:criscope_cri_call_duration_seconds:p99_rate5m",
        "histogram_quantile(0.99, sum without (method, client) (\n"
        f"  rate(criscope_cri_call_duration_seconds_bucket{{{_UNARY}}}[5m])\n))",
    ),
    Record(
        "instance_method:criscope_cri_call_service_seconds:mean_rate5m",
        f'sum without (stage) (rate(criscope_cri_call_stage_seconds_sum{{stage="service", {PROMPT}}}[5m]))\n'
        f'  / sum without (stage) (rate(criscope_cri_call_stage_seconds_count{{stage="service", {PROMPT}}}[5m]))',
    ),
    Record(
        "instance:criscope_cri_calls_failed:ratio_rate5m",
        f"(\n  sum {_NODE_ONLY} (rate(criscope_cri_calls_total{{{_FAILURES}}}[5m]))\n"
        f'  or 0 * sum {_NODE_ONLY} (rate(criscope_cri_calls_total{{client="kubelet"}}[5m]))\n)\n'
        f'  / sum {_NODE_ONLY} (rate(criscope_cri_calls_total{{client="kubelet"}}[5m]))',
    ),
    Record(
        "instance_stage:criscope_pod_start_stage_seconds:p90_rate30m",
        "histogram_quantile(0.9, rate(criscope_pod_start_stage_seconds_bucket[30m]))",
    ),
)


def _ended(selector: str) -> str:
    """Whether any such call ended in ten minutes; the first makes its series, of which an increase shows nothing."""
    series = f"criscope_cri_calls_total{{{selector}}}"
    return (
        f"sum {_NODE_ONLY} (increase({series}[10m])) > 0\n"
        f"  or sum {_NODE_ONLY} ({series} unless {series} offset 10m)\n"
        "    and on (cluster, job, instance) criscope_tracing offset 10m"
    )


def _holds(*kinds: str) -> str:
    return f'criscope_findings_active{{kind=~"{"|".join(kinds)}"}} > 0'


ALERTED = (
    "runtime_down", "runtime_not_reading", "runtime_slow", "writes_stalled", "starts_saturated", "kubelet_stalled",
    "pleg_stuck", "shim_hung", "cni_failing", "cni_slow", "image_pull_failed", "start_failed", "pod_not_started",
    "host_limit", "stop_stuck", "cleanup_failing", "pleg_unhealthy",
)  # fmt: skip
"""Kinds of findings that an alert of their own speaks of; CriscopeFinding is for all others."""

_PAGE = "The sentence, its evidence and the next steps are on the node's own page, and in `criscope why`."

NODE_ALERTS = (
    Alert(
        "CriscopePlegUnhealthySoon", "critical", "0s",
        "{{ $labels.instance }} becomes NotReady: PLEG is unhealthy in {{ $value | humanizeDuration }}",
        "No relist of the kubelet succeeded for a minute or more. At 0 the kubelet says `PLEG is not healthy` and the"
        " node becomes NotReady; a negative value says for how long it is. Do not restart the runtime before you know"
        " what the relist waits for.",
        "criscope_pleg_seconds_until_unhealthy < 120",
    ),
    Alert(
        "CriscopeRelistSlow", "warning", "5m",
        "Relists on {{ $labels.instance }} take {{ $value | humanizeDuration }} on average",
        "Relists end, but slowly: the kubelet learns late that containers started or died, and comes near to NotReady.",
        "instance:criscope_pleg_relist_duration_seconds:mean_rate5m > 5",
    ),
    Alert(
        "CriscopeRelistFails", "warning", "0s",
        "{{ $value | humanize }} relists on {{ $labels.instance }} failed in ten minutes",
        "A list of sandboxes or containers failed, so the relist did not count: no pod of the node makes progress"
        " meanwhile.",
        'sum without (kind, outcome) (increase(criscope_pleg_relists_total{outcome="failed"}[10m])) > 2',
    ),
    Alert(
        "CriscopeCallOpenTooLong", "warning", "0s",
        "{{ $labels.method }} on {{ $labels.instance }} has been open for {{ $value | humanizeDuration }}",
        "The kubelet gives up most calls after two minutes, RunPodSandbox after four, and then tries again from the"
        " start.",
        f"criscope_cri_oldest_call_age_seconds{{{PROMPT}}} > 60",
    ),
    Alert(
        "CriscopeStopOrExecStuck", "warning", "0s",
        "{{ $labels.method }} on {{ $labels.instance }} has been open for {{ $value | humanizeDuration }}",
        "Longer than grace periods and commands of probes last: a container that cannot be killed, or an exec whose"
        " output nobody closes.",
        'criscope_cri_oldest_call_age_seconds{method=~"StopContainer|ExecSync"} > 1800',
    ),
    Alert(
        "CriscopePullStuck", "warning", "0s",
        "An image pull on {{ $labels.instance }} has been open for {{ $value | humanizeDuration }}",
        "PullImage has no deadline. With serial pulls, which are the kubelet's default, all other pulls of the node"
        " wait for this one.",
        'criscope_cri_oldest_call_age_seconds{method="PullImage"} > 900',
    ),
    Alert(
        "CriscopePullsFail", "warning", "10m",
        "Images cannot be pulled on {{ $labels.instance }}",
        f"Pulls fail, and fail again. {_PAGE}",
        _holds("image_pull_failed"),
    ),
    Alert(
        "CriscopeRuntimeDown", "critical", "1m",
        "Nobody serves the runtime's socket on {{ $labels.instance }}",
        "The container runtime is down, or restarts in a loop: no pod starts or stops, and PLEG becomes unhealthy.",
        _holds("runtime_down"),
    ),
    Alert(
        "CriscopeRuntimeStarved", "critical", "30s",
        "The runtime on {{ $labels.instance }} does not read its socket",
        "Requests lie unread: the runtime process is stopped or gets no CPU. It is not slow at one call, it does"
        " nothing at all.",
        _holds("runtime_not_reading"),
    ),
    Alert(
        "CriscopeRuntimeSlow", "warning", "5m",
        "The runtime on {{ $labels.instance }} is slow as a whole ({{ $labels.kind }})",
        f"Calls of several methods and pods take long at once: a disk, a lock or a burst of pods. {_PAGE}",
        _holds("runtime_slow", "writes_stalled", "starts_saturated"),
    ),
    Alert(
        "CriscopeKubeletStalled", "critical", "30s",
        "The kubelet on {{ $labels.instance }} stands still ({{ $labels.kind }})",
        "The runtime answers; the kubelet does not read, or begins no relist though nothing is open. A restart of the"
        " runtime does not help.",
        _holds("kubelet_stalled", "pleg_stuck"),
    ),
    Alert(
        "CriscopeShimHung", "warning", "1m",
        "A shim on {{ $labels.instance }} does not answer its runtime",
        f"What is asked of one pod hangs, and may hold up relists and the pod's end. {_PAGE}",
        _holds("shim_hung"),
    ),
    Alert(
        "CriscopeCniFailing", "warning", "2m",
        "A CNI plugin on {{ $labels.instance }} fails",
        f"New pods stay in ContainerCreating; with DEL, old ones in Terminating. {_PAGE}",
        _holds("cni_failing"),
    ),
    Alert(
        "CriscopeCniSlow", "warning", "5m",
        "CNI plugins on {{ $labels.instance }} are slow",
        f"Every pod's start waits for them. {_PAGE}",
        _holds("cni_slow"),
    ),
    Alert(
        "CriscopePodsDoNotStart", "warning", "5m",
        "Pods on {{ $labels.instance }} do not start ({{ $labels.kind }})",
        f"Sandboxes or containers cannot be made or started, or are not even tried. {_PAGE}",
        _holds("start_failed", "pod_not_started", "host_limit"),
    ),
    Alert(
        "CriscopePodsDoNotEnd", "warning", "10m",
        "Pods on {{ $labels.instance }} do not end ({{ $labels.kind }})",
        "Stops or removals of containers and sandboxes hang or fail again and again: pods stay in Terminating, and what"
        f" they hold (addresses, volumes, names) is not free. {_PAGE}",
        _holds("stop_stuck", "cleanup_failing"),
    ),
    Alert(
        "CriscopeKubeletGivesUp", "warning", "0s",
        "The kubelet on {{ $labels.instance }} gave up calls at their deadline: {{ $value | humanize }} in ten minutes",
        "The runtime did not answer in two minutes (RunPodSandbox: four; ExecSync and StopContainer: two more than"
        " their own time). What it was doing it may still be doing: names reserved by the abandoned attempt make the"
        " next one fail.",
        _ended('client="kubelet", status="deadline"'),
    ),
    Alert(
        "CriscopeProbeStorm", "warning", "10m",
        "{{ $value | humanize }} exec probes and hooks a second on {{ $labels.instance }}",
        "Each starts a process through the shim and runc: CPU and forks that no pod's request accounts for, and locks"
        " that relists wait for.",
        f'sum {_NODE_ONLY} (rate(criscope_cri_calls_total{{method="ExecSync", client="kubelet"}}[5m])) > 10',
    ),
    Alert(
        "CriscopeListNearLimit", "warning", "10m",
        "A list on {{ $labels.instance }} has {{ $value | humanizePercentage }} of the 16 MiB that a kubelet accepts",
        "Beyond 16 MiB each relist fails and the node becomes NotReady, until something is removed.",
        "criscope_cri_largest_list_ratio > 0.75",
    ),
    Alert(
        "CriscopeListTooLarge", "critical", "0s",
        "Lists on {{ $labels.instance }} are larger than a kubelet accepts",
        "Lists fail with RESOURCE_EXHAUSTED, each time: relists cannot succeed until dead containers, pods or their"
        " annotations are removed.",
        _ended('method=~"List.+", status="RESOURCE_EXHAUSTED"'),
    ),
    Alert(
        "CriscopeFinding", "info", "15m",
        "{{ $labels.kind }} holds on {{ $labels.instance }}",
        f"A finding has held for a quarter of an hour. {_PAGE}",
        f'criscope_findings_active{{kind!~"{"|".join(ALERTED)}"}} > 0',
    ),
)  # fmt: skip

TRACER_ALERTS = (
    Alert(
        "CriscopeDown", "warning", "5m",
        "criscope on {{ $labels.instance }} is not scraped",
        "It does not run, does not answer, or is not reached. Nothing is known about this node's kubelet.",
        'up{job=~".*criscope.*"} == 0',
    ),
    Alert(
        "CriscopeBlind", "warning", "5m",
        "criscope on {{ $labels.instance }} does not trace",
        "It answers, but reading ended with an error or the kernel refused a BPF program. Its other metrics stand still"
        " or lack a part.",
        "criscope_tracing == 0 or sum without (program) (criscope_probe_attached == bool 0) > 0",
    ),
    Alert(
        "CriscopeLosesRecords", "warning", "10m",
        "criscope on {{ $labels.instance }} lost {{ $value | humanize }} records in ten minutes",
        "Calls with holes are shown as incomplete. It gets too little CPU, or the node sends more than the ring holds.",
        "sum without (program) (increase(criscope_lost_records_total[10m])) > 0",
    ),
    Alert(
        "CriscopeStoreFails", "info", "5m",
        "criscope on {{ $labels.instance }} cannot write its store",
        "Tracing and metrics go on; the history of the last day has a hole.",
        'sum without (state) (criscope_store_state{state="ok"}) == 0',
    ),
)  # fmt: skip

ALERTS = NODE_ALERTS + TRACER_ALERTS


def text() -> str:
    """The rules file that Prometheus loads."""
    groups: list[tuple[str, tuple[Record | Alert, ...]]] = [
        ("criscope-records", RECORDS),
        ("criscope-node", NODE_ALERTS),
        ("criscope-tracer", TRACER_ALERTS),
    ]
    return "groups:\n" + "".join(f"  - name: {name}\n    rules:\n{_rules(rules)}" for name, rules in groups)


def _rules(rules: tuple[Record | Alert, ...]) -> str:
    return "".join(_record(rule) if isinstance(rule, Record) else _alert(rule) for rule in rules)


def _record(rule: Record) -> str:
    return f"      - record: {rule.name}\n        expr: |\n{_block(rule.expr)}"


def _alert(rule: Alert) -> str:
    """Strings are written as JSON has them: YAML reads those alike."""
    return (
        f"      - alert: {rule.name}\n        expr: |\n{_block(rule.expr)}"
        f"        for: {rule.wait}\n"
        f"        labels:\n          severity: {rule.severity}\n"
        "        annotations:\n"
        f"          summary: {json.dumps(rule.summary)}\n"
        f"          description: {json.dumps(rule.description)}\n"
        f"          runbook_url: {DOCS}/runbooks/{rule.name}.md\n"
    )


def _block(expr: str) -> str:
    return "".join(f"          {line}\n" for line in expr.splitlines())
