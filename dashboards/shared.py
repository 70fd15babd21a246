"""What several dashboards have: variables, links, colours, annotations, and the calls that a latency may speak of."""

from dashboards.grafana import DOCS, Annotation, Link, Panel, Query, Steps, Variable

LASTING = "PullImage|StopContainer|ExecSync"
"""Methods that last as long as what they do: a download, a grace period, a probe's command."""

PROMPT = f'method!~"{LASTING}|other|unknown"'
"""Calls whose duration is the runtime's."""

CLUSTER = 'cluster=~"$cluster"'
NODE = f'{CLUSTER}, instance=~"$instance"'

CLUSTERS = Variable(
    "cluster",
    "Cluster",
    "The label `cluster`; All takes nodes without one too.",
    "label_values(criscope_build_info, cluster)",
    multiple=True,
)
ONE_NODE = Variable(
    "instance",
    "Node",
    "The label `instance`: the node's name when relabelled so, else its address.",
    f"label_values(criscope_build_info{{{CLUSTER}}}, instance)",
    every=False,
)
NODES = Variable(
    "instance",
    "Node",
    "The label `instance`: the node's name when relabelled so, else its address.",
    f"label_values(criscope_build_info{{{CLUSTER}}}, instance)",
    multiple=True,
)
METHODS = Variable(
    "method",
    "Method",
    "CRI method, in the panels about calls.",
    f"label_values(criscope_cri_calls_total{{{NODE}}}, method)",
    multiple=True,
)
PAGE = Variable(
    "page",
    "Node's page",
    "Where this browser reaches criscope's own page of the node: a tunnel's end, or an ingress.",
    text="http://127.0.0.1:9559/",
)
RUNBOOKS = Variable("docs", "Docs", "Where the docs are served; alerts lead to runbooks below it.", text=DOCS)

PAGE_LINK = ("The node's own page, at this time", "${page}#t=${__from}-${__to}")
RUNBOOK_LINK = ("Runbooks", "${docs}/grafana.md")
NODE_LINK = (
    "This node",
    "/d/criscope-node?var-datasource=${datasource}&${cluster:queryparam}&var-instance=${__field.labels.instance}&${__url_time_range}",
)

GREEN, YELLOW, RED = "green", "yellow", "red"

EVENTS = Annotation("Node events", "increase(criscope_node_events_total[1m]) > 0", "{{kind}}", "blue")
FINDINGS = Annotation("Findings", "criscope_findings_active > 0", "{{kind}}", "orange")

ALERTS = Panel(
    "Alerts",
    "none",
    "Alerts of these rules that fire now; a line's link is the runbook of the alert.",
    (Query('ALERTS{alertname=~"Criscope.+", alertstate="firing"}'),),
    kind="table",
    width=12,
    height=7,
    links=(("Runbook", "${docs}/runbooks/${__data.fields.alertname}.md"),),
)


def stat(title: str, unit: str, description: str, expr: str, steps: Steps = (), *links: Link) -> Panel:
    """One number of now; six stand in a line."""
    return Panel(title, unit, description, (Query(expr),), "stat", width=4, height=4, steps=steps, links=links)
