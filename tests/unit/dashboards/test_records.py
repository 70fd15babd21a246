"""What the recording rules make of series that are easy to reckon."""

from dashboards import rules
from tests.unit.dashboards.promtool import differences, group

NODE = 'instance="n1"'


def histogram(name, labels, below, total):
    """Series that grow by `below` observations up to 1 s, and `total` up to 2 s, each 15 s."""
    steps = {"1.0": below, "2.0": total, "+Inf": total}
    return {f'{name}_bucket{{{NODE}, {labels}, le="{le}"}}': f"0+{step}x200" for le, step in steps.items()}


def calls(method, client, status, step):
    return {
        f'criscope_cri_calls_total{{{NODE}, method="{method}", client="{client}", status="{status}"}}': f"0+{step}x200"
    }


def spent(method, stage, seconds, count):
    labels = f'{NODE}, method="{method}", stage="{stage}"'
    return {f"criscope_cri_call_stage_seconds_sum{{{labels}}}": f"0+{seconds}x200",
            f"criscope_cri_call_stage_seconds_count{{{labels}}}": f"0+{count}x200"}  # fmt: skip


RELIST = "criscope_pleg_relist_duration_seconds"
GENERIC = 'kind="generic"'
CALL = "criscope_cri_call_duration_seconds"

CASES = {
    # 98 of 100 up to 1 s: the 99th lies in the middle of the next bucket. One pod's relists do not count.
    f"instance:{RELIST}:p99_rate5m": (
        histogram(RELIST, GENERIC, 98, 100) | histogram(RELIST, 'kind="pod"', 0, 100), {"": 1.5},
    ),
    f"instance:{RELIST}:mean_rate5m": (
        {f"{RELIST}_sum{{{NODE}, {GENERIC}}}": "0+6x200", f"{RELIST}_count{{{NODE}, {GENERIC}}}": "0+3x200"}, {"": 2},
    ),
    f"instance:{CALL}:p99_rate5m": (
        histogram(CALL, 'method="Status", client="kubelet"', 49, 50)
        | histogram(CALL, 'method="Version", client="kubelet"', 49, 50)
        | histogram(CALL, 'method="PullImage", client="kubelet"', 0, 900)
        | histogram(CALL, 'method="Status", client="other"', 0, 900),
        {"": 1.5},
    ),
    "instance_method:criscope_cri_call_service_seconds:mean_rate5m": (
        spent("Status", "service", 6, 3) | spent("Status", "request_wait", 90, 3) | spent("ExecSync", "service", 90, 3),
        {', method="Status"': 2},
    ),
    # Of the kubelet's 100 calls 5 failed; what is absent or was cancelled did not.
    "instance:criscope_cri_calls_failed:ratio_rate5m": (
        calls("Status", "kubelet", "OK", 90) | calls("Status", "kubelet", "deadline", 3)
        | calls("PullImage", "kubelet", "UNKNOWN", 2) | calls("ContainerStatus", "kubelet", "NOT_FOUND", 4)
        | calls("ExecSync", "kubelet", "cancelled_by_client", 1) | calls("Status", "other", "INTERNAL", 900),
        {"": 0.05},
    ),
    "instance_stage:criscope_pod_start_stage_seconds:p90_rate30m": (
        histogram("criscope_pod_start_stage_seconds", 'stage="sandbox"', 80, 100), {', stage="sandbox"': 1.5},
    ),
}  # fmt: skip


def expects(name, series, values):
    samples = [{"labels": f"{{{NODE}{more}}}", "value": value} for more, value in values.items()]
    return group(
        series, promql_expr_test=[{"expr": f"round({name}, 0.0001)", "eval_time": "6m", "exp_samples": samples}]
    )


def test_each_record_has_the_value_one_reckons(tmp_path):
    assert differences(tmp_path, [expects(name, *case) for name, case in CASES.items()]) == ""


def test_a_node_without_a_failure_has_the_share_0_not_none(tmp_path):
    name = "instance:criscope_cri_calls_failed:ratio_rate5m"
    assert differences(tmp_path, [expects(name, calls("Status", "kubelet", "OK", 9), {"": 0})]) == ""


def test_every_record_has_a_value_here():
    assert set(CASES) == {record.name for record in rules.RECORDS}
