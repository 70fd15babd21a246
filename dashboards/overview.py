"""All nodes: which are worst now, and which differ from their peers."""

from dashboards import shared
from dashboards.grafana import Column, Dashboard, Panel, Query, Row
from dashboards.shared import GREEN, LASTING, NODE_LINK, PROMPT, RED, YELLOW, stat

RELIST_P99 = "instance:criscope_pleg_relist_duration_seconds:p99_rate5m"
CALL_P99 = "instance:criscope_cri_call_duration_seconds:p99_rate5m"
SERVICE = "instance_method:criscope_cri_call_service_seconds:mean_rate5m"
FAILED = "instance:criscope_cri_calls_failed:ratio_rate5m"
SANDBOX = "instance_stage:criscope_pod_start_stage_seconds:p90_rate30m"
LEFT = "criscope_pleg_seconds_until_unhealthy"
AGE = f"criscope_cri_oldest_call_age_seconds{{{PROMPT}}}"

LEFT_STEPS = ((None, RED), (120, YELLOW), (170, GREEN))
SECONDS_STEPS = ((None, GREEN), (1, YELLOW), (10, RED))
AGE_STEPS = ((None, GREEN), (10, YELLOW), (60, RED))
RATIO_STEPS = ((None, GREEN), (0.5, YELLOW), (0.75, RED))
ANY_STEPS = ((None, GREEN), (1, RED))
FAILED_STEPS = ((None, GREEN), (0.01, YELLOW), (0.1, RED))


def _worst(title: str, unit: str, description: str, expr: str, legend: str = "{{instance}}") -> Panel:
    return Panel(title, unit, description, (Query(f"topk(10, {expr})", legend),), links=(NODE_LINK,))


NOW = Row(
    "Now",
    (
        stat(
            "Nodes traced",
            "short",
            "Nodes whose criscope reads and decodes at this moment.",
            "sum(criscope_tracing)",
        ),
        stat(
            "Not traced",
            "short",
            "Scrapes of jobs with criscope in their name that fail, and tracers that ended with an error.",
            '(count(up{job=~".*criscope.*"} == 0) or vector(0)) + (count(criscope_tracing == 0) or vector(0))',
            ANY_STEPS,
        ),
        stat(
            "Nearest to NotReady",
            "s",
            "Seconds until the first kubelet of all calls its PLEG unhealthy; 180 at rest (600 with streamed events).",
            f"min({LEFT})",
            LEFT_STEPS,
        ),
        stat(
            "Findings active",
            "short",
            "Verdicts that hold at this moment, of all kinds and nodes.",
            "sum(criscope_findings_active)",
            ((None, GREEN), (1, YELLOW)),
        ),
        stat(
            "Oldest open call",
            "s",
            f"Of methods whose time is the runtime's (without {LASTING.replace('|', ', ')}).",
            f"max({AGE})",
            AGE_STEPS,
        ),
        stat(
            "Largest list",
            "percentunit",
            "The largest answer to a List call, as a part of the 16 MiB that a kubelet accepts.",
            "max(criscope_cri_largest_list_ratio)",
            RATIO_STEPS,
        ),
        Panel(
            "Nodes, nearest to NotReady first",
            "none",
            "One line a node. Click a node's line for its own dashboard. Quantiles need the recording rules.",
            kind="table",
            width=12,
            height=7,
            links=(("This node", NODE_LINK[1].replace("__field.labels.instance", "__data.fields.instance")),),
            columns=(
                Column("Until NotReady", "s", f"min by (instance) ({LEFT})", LEFT_STEPS),
                Column("Relist p99", "s", f"max by (instance) ({RELIST_P99})", SECONDS_STEPS),
                Column("Call p99", "s", f"max by (instance) ({CALL_P99})", SECONDS_STEPS),
                Column("Oldest call", "s", f"max by (instance) ({AGE})", AGE_STEPS),
                Column("Failed", "percentunit", f"max by (instance) ({FAILED})", FAILED_STEPS),
                Column("Findings", "short", "sum by (instance) (criscope_findings_active)", ANY_STEPS),
            ),
        ),
        shared.ALERTS,
    ),
)

WORST = Row(
    "The worst nodes",
    (
        Panel(
            "Until PLEG is unhealthy",
            "s",
            "Falls by a second a second while a relist hangs; at 0 the node becomes NotReady.",
            (Query(f"bottomk(10, {LEFT})", "{{instance}}"),),
            links=(NODE_LINK,),
            steps=((None, RED), (120, YELLOW), (170, "transparent")),
        ),
        _worst(
            "Relists, 99th percentile",
            "s",
            "Duration of relists of all pods that ended; a hang shows on the left.",
            RELIST_P99,
        ),
        _worst(
            "CRI calls, 99th percentile",
            "s",
            "Calls that ended, without those that last as long as what they do.",
            CALL_P99,
        ),
        _worst("Oldest open call", "s", "Grows while a call hangs.", AGE, "{{instance}} {{method}}"),
        _worst(
            "Calls that failed",
            "percentunit",
            "Share of the kubelet's calls that ended with an error, a deadline or a lost connection. NotFound and cancelled calls are no failures.",
            FAILED,
        ),
        _worst(
            "Pod sandboxes, 90th percentile",
            "s",
            "RunPodSandbox in first starts of pods: runtime and CNI.",
            f'{SANDBOX}{{stage="sandbox"}}',
        ),
    ),
)

PEERS = Row(
    "Against their peers",
    (
        Panel(
            "Relists: times the median node",
            "none",
            "A node's 99th percentile of relists through the median of its cluster; 1 is like the others. Shown from 1.5 on.",
            (
                Query(
                    f"topk(10, {RELIST_P99} / on (cluster) group_left () quantile by (cluster) (0.5, {RELIST_P99}) > 1.5)",
                    "{{instance}}",
                ),
            ),
            links=(NODE_LINK,),
        ),
        Panel(
            "Calls: times the median node",
            "none",
            "The runtime's own mean time of a method through that of the median node of its cluster: a node whose runtime or disk is slower than its peers'. Shown from 2 on, and 10 ms.",
            (
                Query(
                    f"topk(10, ({SERVICE} / on (cluster, method) group_left () quantile by (cluster, method) (0.5, {SERVICE}) > 2)"
                    f" and {SERVICE} > 0.01)",
                    "{{instance}} {{method}}",
                ),
            ),
            links=(NODE_LINK,),
        ),
        Panel(
            "Spread of relists over nodes",
            "s",
            "A 99th percentile of relists: of the best, the median, and the worst node.",
            (
                Query(f"min({RELIST_P99})", "best"),
                Query(f"quantile(0.5, {RELIST_P99})", "median"),
                Query(f"max({RELIST_P99})", "worst"),
            ),
        ),
        Panel(
            "Largest list",
            "percentunit",
            "Of the 16 MiB that a kubelet accepts; a larger answer fails each time. Grows with dead containers and with labels and annotations.",
            (Query("topk(10, criscope_cri_largest_list_ratio)", "{{instance}}"),),
            links=(NODE_LINK,),
            steps=((None, "transparent"), (0.75, RED)),
        ),
    ),
)

TROUBLES = Row(
    "Troubles of the fleet",
    (
        Panel(
            "Findings active, by kind",
            "short",
            "How many nodes and pods suffer of the same at once; docs/findings.md says what each kind means.",
            (Query("sum by (kind) (criscope_findings_active) > 0", "{{kind}}"),),
            stacked=True,
        ),
        Panel(
            "Node events",
            "short",
            "Starts of kubelets, stops and starts of runtimes, OOM kills, clock steps, in five minutes each.",
            (Query("sum by (kind) (increase(criscope_node_events_total[5m])) > 0", "{{kind}}"),),
            stacked=True,
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="criscope-overview",
    title="criscope / Overview",
    description="Kubelets and their container runtimes, all nodes: which are worst now, and which differ from their peers.",
    selector=shared.CLUSTER,
    variables=(shared.CLUSTERS, shared.RUNBOOKS),
    rows=(NOW, WORST, PEERS, TROUBLES),
    annotations=(shared.EVENTS,),
    links=(shared.RUNBOOK_LINK,),
)
