"""Dashboards and rules use what there is, and say what they show."""

import re
from pathlib import Path

import pytest

from dashboards import overview, rules
from dashboards.build import DASHBOARDS
from dashboards.grafana import DOCS, scoped
from tracer.outputs import labels as values
from tracer.outputs.prometheus import EVENT_TYPES, RELIST_KINDS, RELIST_STAGES, STAGES, START_STAGES, STEP_KINDS, WAIT

ROOT = Path(__file__).parents[3]
METRICS_DOC = (ROOT / "docs" / "metrics.md").read_text()
GRAFANA_DOC = (ROOT / "docs" / "grafana.md").read_text()
FINDINGS = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "findings.md").read_text(), re.MULTILINE))
RUNBOOKS = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")}

TARGET = {"job", "instance", "cluster"}
"""Labels that Prometheus adds."""

UNITS = {"s", "short", "none", "percentunit", "ops", "bytes", "Bps"}
"""Of Grafana's `valueFormats`; "none" for a pure number."""


def documented():
    """Name of a series -> its own labels; docs/metrics.md is what /metrics answers (test_metrics_doc.py)."""
    found = {"up": set(), "ALERTS": {"alertname", "alertstate"}}
    for name, kind, own in re.findall(r"^\| `(criscope_\w+)` \| (\w+) \|([\w, ]*)\|", METRICS_DOC, re.MULTILINE):
        labels = {label.strip() for label in own.split(",") if label.strip()}
        if kind in ("histogram", "summary"):
            found |= {f"{name}_sum": labels, f"{name}_count": labels}
        if kind == "histogram":
            found[f"{name}_bucket"] = labels | {"le"}
        if kind in ("counter", "gauge"):
            found[name] = labels
    for record in rules.RECORDS:  # level:metric:operation; the level names the labels besides the target's
        found[record.name] = set(record.name.partition(":")[0].split("_")) - {"instance"}
    return found


SERIES = documented()
SELECTOR = re.compile(r"(?<![\w:])((?:instance\w*:)?criscope_[\w:]+|ALERTS|up)(?![\w:(=])(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring) \(([^)]*)\)")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')

EXPRESSIONS = {
    **{
        f"{d.uid}: {p.title}: {e}": scoped(e, d.selector)
        for d in DASHBOARDS for p in d.panels() for e in p.expressions()
    },
    **{f"{d.uid}: {a.name}": scoped(a.expr, d.selector) for d in DASHBOARDS for a in d.annotations},
    **{rule.name: rule.expr for rule in (*rules.RECORDS, *rules.ALERTS)},
}  # fmt: skip

KNOWN = {
    "method": {*values.CRI_METHODS, "other", "unknown"},
    "client": {"kubelet", "other"},
    "status": {*values.STATUSES, "cancelled_by_client", "deadline", "connection_lost", "unknown"},
    "kind": {*FINDINGS, *RELIST_KINDS, *STEP_KINDS, "create"},
    "stage": {*STAGES, *RELIST_STAGES, *START_STAGES, WAIT},
    "type": set(EVENT_TYPES),
    "source": {"header", "inferred", "unknown"},
    "direction": {"request", "response"},
    "outcome": {"ok", "failed"},
    "state": {"ok"},
    "alertstate": {"firing"},
    "alertname": {alert.name for alert in rules.ALERTS},
}


@pytest.mark.parametrize("expr", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_an_expression_names_series_labels_and_values_that_there_are(expr):
    used = SELECTOR.findall(expr)
    assert used
    for name, matchers in used:
        assert name in SERIES, f"{name} is not in docs/metrics.md"
        for label, operator, value in MATCHER.findall(matchers):
            assert label in SERIES[name] | TARGET, f"{name} has no label {label}"
            if label in TARGET or value.startswith("$"):
                continue
            for choice in value.split("|") if "~" in operator else [value]:
                assert any(re.fullmatch(choice, known) for known in KNOWN[label]), f"{label} is never {choice}"
    having = {label for name, _ in used for label in SERIES[name]} | TARGET
    for labels in GROUPING.findall(expr):
        assert {label.strip() for label in labels.split(",") if label.strip()} <= having


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_every_selector_of_a_dashboard_is_of_the_chosen_nodes_only(dashboard):
    for panel in dashboard.panels():
        for expr in panel.expressions():
            shown = scoped(expr, dashboard.selector)
            assert all(matchers.startswith(dashboard.selector) for _, matchers in SELECTOR.findall(shown)), shown


PANELS = {f"{d.uid}: {p.title}": p for d in DASHBOARDS for p in d.panels()}


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_panel_has_a_title_a_unit_and_a_description_that_is_a_sentence(panel):
    assert panel.title
    assert panel.unit in UNITS
    assert panel.description.endswith((".", "this one."))
    assert panel.description != panel.title
    assert panel.expressions()


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_legend_names_labels_that_the_query_keeps(panel):
    for query in panel.queries:
        kept = re.findall(r"(?:sum|max|min|count) by \(([^)]*)\)", query.expr)
        names = {label.strip() for labels in kept for label in labels.split(",")}
        if not kept:
            names = {label for name, _ in SELECTOR.findall(query.expr) for label in SERIES[name]} | TARGET
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= names, query.expr


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_titles_are_unique_within_a_row_and_every_variable_that_is_used_is_declared(dashboard):
    for row in dashboard.rows:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles)
    declared = {variable.name for variable in dashboard.variables} | {"datasource"}
    used = set(re.findall(r"\$\{?([a-z]\w*)", dashboard.text()))
    assert used - declared == set()
    assert all(variable.description for variable in dashboard.variables)


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    assert {alert.name for alert in rules.ALERTS} == RUNBOOKS


def test_the_docs_list_every_alert_with_its_severity_and_wait():
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \| (\w+) \| .+ \|$", GRAFANA_DOC, re.MULTILINE)
    assert rows == [(alert.name, alert.name, alert.severity, alert.wait) for alert in rules.ALERTS]


@pytest.mark.parametrize("variable", sorted({v.name for d in DASHBOARDS for v in d.variables} | {"datasource"}))
def test_the_docs_explain_every_variable(variable):
    assert f"| `{variable}` |" in GRAFANA_DOC


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_the_docs_say_what_every_dashboard_answers(dashboard):
    assert f"| {dashboard.title} |" in GRAFANA_DOC


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_a_runbook_says_what_to_look_at_and_what_to_do_and_its_severity(name):
    text = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()
    alert = next(alert for alert in rules.ALERTS if alert.name == name)
    assert text.startswith(f"# {name}\n\n{alert.severity.capitalize()}. ")
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Look", "## Do", "## When it is wrong"]
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / "docs" / "runbooks" / target).exists(), target
    for kind in re.findall(r"(?:kind=|[Ff]inding[s]? )`?([a-z]+_[a-z_]+)", text):
        assert kind in FINDINGS | {"container_gc"}, kind


def test_the_rules_file_leads_to_the_runbooks_by_one_address_that_can_be_replaced():
    urls = re.findall(r"runbook_url: (.+)", rules.text())
    assert urls == [f"{DOCS}/runbooks/{alert.name}.md" for alert in rules.ALERTS]


def test_every_kind_that_an_alert_speaks_of_is_left_out_of_the_alert_for_all_others():
    spoken = {
        kind
        for alert in rules.ALERTS
        for kinds in re.findall(r'criscope_findings_active\{kind=~"([^"]+)"', alert.expr)
        for kind in kinds.split("|")
    }
    assert spoken | {"pleg_unhealthy"} == set(rules.ALERTED)


def test_quantiles_of_the_overview_are_recorded():
    recorded = {record.name for record in rules.RECORDS}
    text = overview.DASHBOARD.text()
    assert set(re.findall(r"instance\w*:criscope_\w+:\w+", text)) <= recorded
    assert "histogram_quantile" not in text, "too much for all nodes at once"
