"""One node: its PLEG, its calls, whose fault they are, and what its runtime does below."""

from dashboards import shared
from dashboards.grafana import Dashboard, Panel, Query, Row
from dashboards.overview import AGE_STEPS, ANY_STEPS, LEFT_STEPS, RATIO_STEPS
from dashboards.shared import LASTING, PAGE_LINK, PROMPT, RED, YELLOW, stat

METHOD = 'method=~"$method"'
RATE = "[$__rate_interval]"


def quantiles(metric: str, by: str = "", selector: str = "") -> tuple[Query, ...]:
    """Median, 90th and 99th percentile of a histogram, by one label where given."""
    legend = f"{{{{{by}}}}} " if by else ""
    labels = f"le, {by}" if by else "le"
    braces = f"{{{selector}}}" if selector else ""
    return tuple(
        Query(
            f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{braces}{RATE})))", f"{legend}p{q[2:]:0<2}"
        )
        for q in ("0.5", "0.9", "0.99")
    )


def mean(metric: str, by: str, legend: str, selector: str = "") -> Query:
    braces = f"{{{selector}}}" if selector else ""
    return Query(
        f"sum by ({by}) (rate({metric}_sum{braces}{RATE})) / sum by ({by}) (rate({metric}_count{braces}{RATE}))", legend
    )


NOW = Row(
    "Now",
    (
        stat(
            "Until NotReady",
            "s",
            "Seconds until the kubelet calls its PLEG unhealthy; 180 at rest (600 with streamed events).",
            "min(criscope_pleg_seconds_until_unhealthy)",
            LEFT_STEPS,
            PAGE_LINK,
        ),
        stat(
            "Relist runs for",
            "s",
            "Age of the running relist; 0 between relists.",
            "max(criscope_pleg_relist_in_flight_seconds)",
            AGE_STEPS,
            PAGE_LINK,
        ),
        stat(
            "Oldest open call",
            "s",
            f"Without {LASTING.replace('|', ', ')}, which last as long as what they do.",
            f"max(criscope_cri_oldest_call_age_seconds{{{PROMPT}}})",
            AGE_STEPS,
            PAGE_LINK,
        ),
        stat(
            "Calls in flight",
            "short",
            "CRI calls that are open at this moment, of all clients.",
            "sum(criscope_cri_calls_in_flight)",
        ),
        stat(
            "Findings active",
            "short",
            "Verdicts that hold now; the node's page has their sentences, evidence and next steps.",
            "sum(criscope_findings_active)",
            ANY_STEPS,
            PAGE_LINK,
        ),
        stat(
            "Largest list",
            "percentunit",
            "Of the 16 MiB that the kubelet accepts.",
            "max(criscope_cri_largest_list_ratio)",
            RATIO_STEPS,
        ),
        Panel(
            "Findings",
            "short",
            "Verdicts that hold, by kind.",
            (Query("sum by (kind) (criscope_findings_active) > 0", "{{kind}}"),),
            height=7,
            stacked=True,
            links=(PAGE_LINK,),
        ),
        shared.ALERTS,
    ),
)

PLEG = Row(
    "PLEG",
    (
        Panel(
            "Until PLEG is unhealthy",
            "s",
            "Falls by a second a second while a relist hangs; at 0 the node becomes NotReady.",
            (
                Query("criscope_pleg_seconds_until_unhealthy", "left"),
                Query("criscope_pleg_relist_in_flight_seconds", "relist runs for"),
            ),
            steps=((None, RED), (120, YELLOW), (170, "transparent")),
            links=(PAGE_LINK,),
        ),
        Panel(
            "Relist durations",
            "s",
            "Relists of all pods that ended, by how long they took. One that hangs is not here yet.",
            (
                Query(
                    f'sum by (le) (increase(criscope_pleg_relist_duration_seconds_bucket{{kind="generic"}}{RATE}))',
                    "{{le}}",
                ),
            ),
            "heatmap",
        ),
        Panel(
            "Relists, quantiles",
            "s",
            "First request sent until last answer read.",
            quantiles("criscope_pleg_relist_duration_seconds", selector='kind="generic"'),
        ),
        Panel(
            "Parts of a relist, mean",
            "s",
            "The two lists, and the status calls of changed pods in relists that had any.",
            (mean("criscope_pleg_relist_stage_seconds", "stage", "{{stage}}"),),
        ),
        Panel(
            "From relist to relist",
            "s",
            "Start to start: one second and what the first took. More without long relists: the kubelet itself is late.",
            quantiles("criscope_pleg_relist_interval_seconds"),
        ),
        Panel(
            "Relists that ended",
            "ops",
            "By kind and outcome; a failed one had a list that failed.",
            (Query(f"sum by (kind, outcome) (rate(criscope_pleg_relists_total{RATE}))", "{{kind}} {{outcome}}"),),
        ),
        Panel(
            "PLEG events",
            "ops",
            "What relists told the kubelet's sync loop.",
            (Query(f"sum by (type) (rate(criscope_pleg_events_total{RATE}))", "{{type}}"),),
            stacked=True,
        ),
        Panel(
            "Exits: until the PLEG saw them",
            "s",
            "From the end of a container's process until a relist found it: about a second and a relist on a healthy node.",
            quantiles("criscope_exit_detection_seconds"),
        ),
    ),
)

CALLS = Row(
    "CRI calls",
    (
        Panel(
            "Calls by method",
            "ops",
            "Calls that ended.",
            (Query(f"sum by (method) (rate(criscope_cri_calls_total{{{METHOD}}}{RATE}))", "{{method}}"),),
            stacked=True,
        ),
        Panel(
            "Calls by client",
            "ops",
            "The kubelet's, and those of other clients on the same socket (crictl, monitoring agents).",
            (Query(f"sum by (client) (rate(criscope_cri_calls_total{{{METHOD}}}{RATE}))", "{{client}}"),),
            stacked=True,
        ),
        Panel(
            "99th percentile by method",
            "s",
            "Request sent until answer read, calls that ended.",
            (
                Query(
                    f"histogram_quantile(0.99, sum by (le, method) (rate(criscope_cri_call_duration_seconds_bucket{{{METHOD}}}{RATE})))",
                    "{{method}}",
                ),
            ),
        ),
        Panel(
            "Mean by method",
            "s",
            "Request sent until answer read, calls that ended.",
            (mean("criscope_cri_call_duration_seconds", "method", "{{method}}", METHOD),),
        ),
        Panel(
            "Calls that did not end well",
            "ops",
            "By status. In capitals: the server's. `deadline`: the client gave up. `connection_lost`: the runtime went away.",
            (
                Query(
                    f'sum by (method, status) (rate(criscope_cri_calls_total{{{METHOD}, status!="OK"}}{RATE})) > 0',
                    "{{method}} {{status}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Time in calls by method",
            "none",
            "Seconds of calls a second: how many calls of a method are open on average.",
            (Query(f"sum by (method) (rate(criscope_cri_call_duration_seconds_sum{{{METHOD}}}{RATE}))", "{{method}}"),),
            stacked=True,
        ),
    ),
)

FAULT = Row(
    "Whose fault",
    (
        Panel(
            "Who had to act",
            "percentunit",
            "Share of the time of all calls: request_wait: the runtime had not read the request. service: the runtime worked. response_wait: the client had not read the answer.",
            (
                Query(
                    f"sum by (stage) (rate(criscope_cri_call_stage_seconds_sum{{{METHOD}}}{RATE})) / ignoring (stage) group_left () sum (rate(criscope_cri_call_stage_seconds_sum{{{METHOD}}}{RATE}))",
                    "{{stage}}",
                ),
            ),
            stacked=True,
            maximum=1.0,
        ),
        Panel(
            "Requests that wait to be read, mean",
            "s",
            "By method. High for all methods at once: the runtime is stopped or starved of CPU.",
            (mean("criscope_cri_call_stage_seconds", "method", "{{method}}", f'{METHOD}, stage="request_wait"'),),
        ),
        Panel(
            "The runtime's work, mean",
            "s",
            "By method, without the waits: service.",
            (mean("criscope_cri_call_stage_seconds", "method", "{{method}}", f'{METHOD}, stage="service"'),),
        ),
        Panel(
            "Answers that wait to be read, mean",
            "s",
            "By method. High: the client, mostly the kubelet, is starved.",
            (mean("criscope_cri_call_stage_seconds", "method", "{{method}}", f'{METHOD}, stage="response_wait"'),),
        ),
    ),
)

OPEN = Row(
    "Open now",
    (
        Panel(
            "Age of the oldest open call",
            "s",
            "By method, at each moment; grows while one hangs.",
            (Query(f"criscope_cri_oldest_call_age_seconds{{{METHOD}}} > 0", "{{method}}"),),
            steps=((None, "transparent"), (60, RED)),
            links=(PAGE_LINK,),
        ),
        Panel(
            "Calls in flight",
            "short",
            "By method and client, at each moment.",
            (Query(f"criscope_cri_calls_in_flight{{{METHOD}}} > 0", "{{method}} {{client}}"),),
            stacked=True,
            links=(PAGE_LINK,),
        ),
    ),
)

SIZES = Row(
    "Message sizes",
    (
        Panel(
            "Answers, mean size",
            "bytes",
            "By method. Lists grow with pods, dead containers, labels and annotations.",
            (mean("criscope_cri_message_bytes", "method", "{{method}}", f'{METHOD}, direction="response"'),),
        ),
        Panel(
            "Bytes by method",
            "Bps",
            "Requests and answers: what is packed, sent and unpacked.",
            (Query(f"sum by (method) (rate(criscope_cri_message_bytes_sum{{{METHOD}}}{RATE}))", "{{method}}"),),
            stacked=True,
        ),
        Panel(
            "Largest list",
            "percentunit",
            "Of the 16 MiB that the kubelet accepts; a larger answer fails, each time.",
            (Query("max(criscope_cri_largest_list_ratio)", "largest list"),),
            steps=((None, "transparent"), (0.75, RED)),
        ),
    ),
)

INSIDE = Row(
    "Inside the runtime",
    (
        Panel(
            "Steps, 90th percentile",
            "s",
            "Calls to shims, commands of runc, CNI plugins, other processes of the runtime.",
            (
                Query(
                    f"histogram_quantile(0.9, sum by (le, kind, name) (rate(criscope_runtime_step_duration_seconds_bucket{RATE})))",
                    "{{kind}} {{name}}",
                ),
            ),
        ),
        Panel(
            "Time in steps",
            "none",
            "Seconds of steps a second: where the time goes below the CRI. runc lies in its shim's call.",
            (
                Query(
                    f"sum by (kind, name) (rate(criscope_runtime_step_duration_seconds_sum{RATE}))", "{{kind}} {{name}}"
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Node events",
            "short",
            "Starts of the kubelet, stops and starts of runtimes, OOM kills, clock steps.",
            (Query("sum by (kind) (increase(criscope_node_events_total[5m]))", "{{kind}}"),),
            stacked=True,
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="criscope-node",
    title="criscope / Node",
    description="One node: what its kubelet waits for, and whose fault it is.",
    selector=shared.NODE,
    variables=(shared.CLUSTERS, shared.ONE_NODE, shared.METHODS, shared.PAGE, shared.RUNBOOKS),
    rows=(NOW, PLEG, CALLS, FAULT, OPEN, SIZES, INSIDE),
    annotations=(shared.EVENTS, shared.FINDINGS),
    links=(shared.PAGE_LINK, shared.RUNBOOK_LINK),
)
