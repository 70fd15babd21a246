"""A node that differs from its peers is told from them, within its cluster, with the label `cluster` and without."""

import pytest

from dashboards import overview
from dashboards.grafana import scoped
from tests.unit.dashboards.promtool import differences, group

PANELS = {panel.title: panel.queries[0].expr for panel in overview.PEERS.panels}


def nodes(record, values, cluster, more=""):
    label = f', cluster="{cluster}"' if cluster else ""
    return {f'{record}{{instance="{name}"{label}{more}}}': f"{value}x10" for name, value in values.items()}


def expects(title, series, found):
    """`found`: labels and value."""
    expr = scoped(PANELS[title], 'cluster=~".*"')
    samples = [{"labels": labels, "value": value} for labels, value in found]
    return group(series, promql_expr_test=[{"expr": expr, "eval_time": "1m", "exp_samples": samples}])


@pytest.mark.parametrize("cluster", ["", "east"])
def test_a_node_whose_relists_take_eight_times_the_medians_stands_out(tmp_path, cluster):
    series = nodes(overview.RELIST_P99, {"n1": 0.125, "n2": 0.125, "n3": 1}, cluster)
    series |= nodes(overview.RELIST_P99, {"slow-1": 4, "slow-2": 4, "slow-3": 4}, "where all are slow")
    label = f'cluster="{cluster}", ' if cluster else ""
    found = [(f'{{{label}instance="n3"}}', 8)]
    assert differences(tmp_path, [expects("Relists: times the median node", series, found)]) == ""


def test_a_node_whose_runtime_is_slow_at_one_method_stands_out_but_not_by_microseconds(tmp_path):
    series = nodes(overview.SERVICE, {"n1": 0.125, "n2": 0.125, "n3": 1}, "east", ', method="CreateContainer"')
    series |= nodes(overview.SERVICE, {"n1": 0.5, "n2": 0.5, "n3": 0.5}, "east", ', method="RunPodSandbox"')
    series |= nodes(overview.SERVICE, {"n1": 0.0001, "n2": 0.0001, "n3": 0.005}, "east", ', method="Status"')
    found = [('{cluster="east", instance="n3", method="CreateContainer"}', 8)]
    assert differences(tmp_path, [expects("Calls: times the median node", series, found)]) == ""
