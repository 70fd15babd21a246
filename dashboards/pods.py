"""Starts and ends of pods: where their time goes."""

from dashboards import shared
from dashboards.grafana import Dashboard, Panel, Query, Row
from dashboards.node import RATE, mean, quantiles
from dashboards.shared import PAGE_LINK

START = "criscope_pod_start_stage_seconds"
PASS = "criscope_sync_pass_duration_seconds"  # noqa: S105  (a pass of a pod worker)
STEP = "criscope_runtime_step_duration_seconds"
CALL = "criscope_cri_call_duration_seconds"


def _p90(metric: str, by: str, legend: str, selector: str = "") -> Query:
    braces = f"{{{selector}}}" if selector else ""
    return Query(f"histogram_quantile(0.9, sum by (le, {by}) (rate({metric}_bucket{braces}{RATE})))", legend)


STARTS = Row(
    "Starts",
    (
        Panel(
            "Stages of a start, 90th percentile",
            "s",
            "wait: from the kubelet's sight of the pod to its sandbox (volumes, a free worker, failed attempts). sandbox: runtime and CNI. image, create, start, hook: each container.",
            (_p90(START, "stage", "{{stage}}"),),
        ),
        Panel(
            "Stages of a start, time spent",
            "none",
            "Seconds of a stage a second: where all starts together spend their time.",
            (Query(f"sum by (stage) (rate({START}_sum{RATE}))", "{{stage}}"),),
            stacked=True,
        ),
        Panel(
            "First pass of a pod",
            "s",
            "From RunPodSandbox to the last container's start, quantiles.",
            quantiles(PASS, selector='kind="create"'),
        ),
        Panel(
            "Starts",
            "ops",
            "Sandboxes and containers that were asked for, by outcome.",
            (
                Query(
                    f'sum by (method, status) (rate(criscope_cri_calls_total{{method=~"RunPodSandbox|CreateContainer|StartContainer"}}{RATE}))',
                    "{{method}} {{status}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Sandboxes: who had to act, mean",
            "s",
            "RunPodSandbox: waiting for the runtime to read, the runtime's work, waiting for the kubelet to read.",
            (mean("criscope_cri_call_stage_seconds", "stage", "{{stage}}", 'method="RunPodSandbox"'),),
            stacked=True,
        ),
        Panel(
            "Worst nodes: sandbox, 90th percentile",
            "s",
            "RunPodSandbox in first starts, the ten slowest of the chosen nodes.",
            (
                Query(
                    f'topk(10, histogram_quantile(0.9, sum by (le, instance) (rate({START}_bucket{{stage="sandbox"}}{RATE}))))',
                    "{{instance}}",
                ),
            ),
        ),
    ),
)

BELOW = Row(
    "Below a start",
    (
        Panel(
            "CNI plugins, 90th percentile",
            "s",
            "From the plugin's exec to its exit.",
            (_p90(STEP, "name", "{{name}}", 'kind="cni"'),),
        ),
        Panel("runc, 90th percentile", "s", "By command.", (_p90(STEP, "name", "{{name}}", 'kind="runc"'),)),
        Panel(
            "Shims, 90th percentile",
            "s",
            "Calls of the runtime to shims, by method.",
            (_p90(STEP, "name", "{{name}}", 'kind="shim"'),),
        ),
        Panel(
            "Pulls",
            "s",
            "PullImage calls that ended; open ones are in the next panel.",
            quantiles(CALL, selector='method="PullImage"'),
        ),
        Panel(
            "Open pulls, sandboxes and creates",
            "s",
            "Age of the oldest that is open.",
            (
                Query(
                    'max by (method) (criscope_cri_oldest_call_age_seconds{method=~"PullImage|RunPodSandbox|CreateContainer|StartContainer"})',
                    "{{method}}",
                ),
            ),
            links=(PAGE_LINK,),
        ),
        Panel(
            "Findings about starts",
            "short",
            "Verdicts that hold.",
            (
                Query(
                    'sum by (kind) (criscope_findings_active{kind=~"start_.+|image_.+|cni_.+|runc_slow|host_limit|pod_not_started|starts_saturated|writes_stalled"})',
                    "{{kind}}",
                ),
            ),
            stacked=True,
            links=(PAGE_LINK,),
        ),
    ),
)

LATER = Row(
    "Later passes and ends",
    (
        Panel(
            "Passes of pod workers",
            "ops",
            "Passes that made calls and ended, by kind.",
            (Query(f"sum by (kind) (rate({PASS}_count{RATE}))", "{{kind}}"),),
            stacked=True,
        ),
        Panel(
            "Passes, 90th percentile",
            "s",
            "By kind. terminate lasts up to the pod's grace period.",
            (_p90(PASS, "kind", "{{kind}}"),),
        ),
        Panel(
            "Stops, 90th percentile",
            "s",
            "StopContainer lasts up to the grace period; StopPodSandbox tears the network down.",
            (
                _p90(
                    CALL,
                    "method",
                    "{{method}}",
                    'method=~"StopContainer|StopPodSandbox|RemoveContainer|RemovePodSandbox"',
                ),
            ),
        ),
        Panel(
            "Exec probes and hooks",
            "ops",
            "ExecSync calls that ended, by status: each starts a process through shim and runc.",
            (Query(f'sum by (status) (rate(criscope_cri_calls_total{{method="ExecSync"}}{RATE}))', "{{status}}"),),
            stacked=True,
        ),
        Panel(
            "Exec probes and hooks, quantiles",
            "s",
            "How long ExecSync takes; the command's own time is in it.",
            quantiles(CALL, selector='method="ExecSync"'),
        ),
        Panel(
            "Exits: until the PLEG saw them",
            "s",
            "From the end of a container's process until a relist found it.",
            quantiles("criscope_exit_detection_seconds"),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="criscope-pods",
    title="criscope / Pod starts",
    description="Starts and ends of pods on the chosen nodes: where their time goes.",
    selector=shared.NODE,
    variables=(shared.CLUSTERS, shared.NODES, shared.PAGE, shared.RUNBOOKS),
    rows=(STARTS, BELOW, LATER),
    annotations=(shared.EVENTS, shared.FINDINGS),
    links=(shared.PAGE_LINK, shared.RUNBOOK_LINK),
)
