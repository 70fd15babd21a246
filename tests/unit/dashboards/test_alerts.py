"""Each alert fires for what it is for, after the time it waits, with its words; and not for what is like it."""

import re
from dataclasses import dataclass, field

import pytest

from dashboards import rules
from dashboards.grafana import DOCS
from tests.unit.dashboards.promtool import RULES, differences, group, promtool

LABELS = {"instance": "n1", "job": "criscope"}
BY_NAME = {alert.name: alert for alert in rules.ALERTS}


def series(name, **labels):
    return f"{name}{{{', '.join(f'{key}={value!r}' for key, value in (labels | LABELS).items())}}}"


def finding(kind):
    return series("criscope_findings_active", kind=kind)


def oldest(method):
    return series("criscope_cri_oldest_call_age_seconds", method=method)


def calls(method, status, client="kubelet"):
    return series("criscope_cri_calls_total", client=client, method=method, status=status)


def relist(suffix):
    return series(f"criscope_pleg_relist_duration_seconds_{suffix}", kind="generic")


TRACING = series("criscope_tracing")


@dataclass
class Case:
    """`trouble`: series for which the alert fires at `after`, and not at `before`; `calm`: for which it never does."""

    alert: str
    trouble: dict[str, str]
    calm: dict[str, str]
    summary: str
    after: str
    before: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


def verdict(alert, kind, summary, after, before, calm=None):
    """Of an alert that speaks of one finding."""
    calm = {finding(kind): "0x100"} if calm is None else calm
    return Case(alert, {finding(kind): "1x100"}, calm, summary, after, before, {"kind": kind})


CASES = [
    Case(
        "CriscopePlegUnhealthySoon", {series("criscope_pleg_seconds_until_unhealthy"): "179-15x20"},
        {series("criscope_pleg_seconds_until_unhealthy"): "180-1x20"},
        "n1 becomes NotReady: PLEG is unhealthy in 1m 44s", "75s", "45s",
    ),
    Case(
        "CriscopePlegUnhealthySoon", {series("criscope_pleg_seconds_until_unhealthy"): "-20x20"},
        {series("criscope_pleg_seconds_until_unhealthy"): "600x20"},
        "n1 becomes NotReady: PLEG is unhealthy in -20s", "0s",
    ),
    Case(
        "CriscopeRelistSlow", {relist("sum"): "0+15x60", relist("count"): "0+2x60"},
        {relist("sum"): "0+8x60", relist("count"): "0+2x60"},
        "Relists on n1 take 7.5s on average", "6m", "5m",
    ),
    Case(
        "CriscopeRelistFails",
        {series("criscope_pleg_relists_total", kind="generic", outcome="failed"): "0x40 1+1x40"},
        {
            series("criscope_pleg_relists_total", kind="generic", outcome="failed"): "0x40 1x40",
            series("criscope_pleg_relists_total", kind="generic", outcome="ok"): "0+15x80",
        },
        "40 relists on n1 failed in ten minutes", "20m", "10m",
    ),
    Case(
        "CriscopeCallOpenTooLong", {oldest("ListContainers"): "10+15x20"},
        {oldest("ListContainers"): "50x20", oldest("PullImage"): "500x20", oldest("other"): "9999x20"},
        "ListContainers on n1 has been open for 1m 10s", "60s", "45s", {"method": "ListContainers"},
    ),
    Case(
        "CriscopeStopOrExecStuck", {oldest("StopContainer"): "2000x20"},
        {oldest("StopContainer"): "1700x20", oldest("ExecSync"): "100x20", oldest("PullImage"): "2000x20"},
        "StopContainer on n1 has been open for 33m 20s", "15s", None, {"method": "StopContainer"},
    ),
    Case(
        "CriscopePullStuck", {oldest("PullImage"): "1000x20"},
        {oldest("PullImage"): "800x20", oldest("Exec"): "1000x20"},
        "An image pull on n1 has been open for 16m 40s", "15s", None, {"method": "PullImage"},
    ),
    verdict("CriscopePullsFail", "image_pull_failed", "Images cannot be pulled on n1", "10m", "9m45s"),
    verdict("CriscopeRuntimeDown", "runtime_down", "Nobody serves the runtime's socket on n1", "1m", "45s"),
    verdict("CriscopeRuntimeStarved", "runtime_not_reading", "The runtime on n1 does not read its socket",
            "30s", "15s"),
    verdict("CriscopeRuntimeSlow", "writes_stalled", "The runtime on n1 is slow as a whole (writes_stalled)",
            "5m", "4m45s"),
    verdict("CriscopeKubeletStalled", "pleg_stuck", "The kubelet on n1 stands still (pleg_stuck)", "30s", "15s"),
    verdict("CriscopeShimHung", "shim_hung", "A shim on n1 does not answer its runtime", "1m", "45s",
            {finding("shim_hung"): "1x3 0 1x3 0x90"}),
    verdict("CriscopeCniFailing", "cni_failing", "A CNI plugin on n1 fails", "2m", "1m45s"),
    verdict("CriscopeCniSlow", "cni_slow", "CNI plugins on n1 are slow", "5m", "4m45s"),
    verdict("CriscopePodsDoNotEnd", "stop_stuck", "Pods on n1 do not end (stop_stuck)", "10m", "9m45s"),
    verdict("CriscopePodsDoNotStart", "host_limit", "Pods on n1 do not start (host_limit)", "5m", "4m45s"),
    Case(
        "CriscopeKubeletGivesUp", {TRACING: "1x100", calls("ListContainers", "deadline"): "_x50 1x50"},
        {
            TRACING: "1x100", calls("ListContainers", "deadline"): "7x100", calls("Status", "OK"): "0+1x100",
            calls("ExecSync", "deadline", "other"): "0+1x100",
        },
        "The kubelet on n1 gave up calls at their deadline: 1 in ten minutes", "15m", "12m",
    ),
    Case(
        "CriscopeKubeletGivesUp", {TRACING: "1x100", calls("ListContainers", "deadline"): "7x50 8+1x50"},
        {TRACING: "_x50 1x50", calls("ListContainers", "deadline"): "_x50 7x50"},  # Prometheus is new, not the deadline
        "The kubelet on n1 gave up calls at their deadline: 40 in ten minutes", "22m30s", "12m",
    ),
    Case(
        "CriscopeProbeStorm", {calls("ExecSync", "OK"): "0+300x100"},
        {calls("ExecSync", "OK"): "0+100x100", calls("Status", "OK"): "0+900x100"},
        "20 exec probes and hooks a second on n1", "14m", "12m",
    ),
    Case(
        "CriscopeListNearLimit", {series("criscope_cri_largest_list_ratio"): "0.8x100"},
        {series("criscope_cri_largest_list_ratio"): "0.7x100"},
        "A list on n1 has 80% of the 16 MiB that a kubelet accepts", "10m", "9m45s",
    ),
    Case(
        "CriscopeListTooLarge", {TRACING: "1x100", calls("ListContainers", "RESOURCE_EXHAUSTED"): "_x50 1x50"},
        {TRACING: "1x100", calls("RunPodSandbox", "RESOURCE_EXHAUSTED"): "0+1x100"},
        "Lists on n1 are larger than a kubelet accepts", "15m", "12m",
    ),
    verdict("CriscopeFinding", "runc_slow", "runc_slow holds on n1", "15m", "14m45s", {finding("shim_hung"): "1x100"}),
    Case("CriscopeDown", {series("up"): "0x100"}, {series("up"): "1x100"},
         "criscope on n1 is not scraped", "5m", "4m45s"),
    Case("CriscopeBlind", {TRACING: "0x100"}, {TRACING: "1x100"}, "criscope on n1 does not trace", "5m", "4m45s"),
    Case(
        "CriscopeBlind",
        {
            TRACING: "1x100", series("criscope_probe_attached", program="socket_send"): "0x100",
            series("criscope_probe_attached", program="socket_receive"): "1x100",
        },
        {TRACING: "1x100", series("criscope_probe_attached", program="socket_send"): "1x100"},
        "criscope on n1 does not trace", "5m", "4m45s",
    ),
    Case(
        "CriscopeLosesRecords", {series("criscope_lost_records_total", program="socket_send"): "0+1x100"},
        {series("criscope_lost_records_total", program="socket_send"): "5x100"},
        "criscope on n1 lost 40 records in ten minutes", "12m", "10m",
    ),
    Case(
        "CriscopeStoreFails", {series("criscope_store_state", state="ok"): "0x100"},
        {series("criscope_store_state", state="ok"): "1x100", series("criscope_store_state", state="full"): "0x100"},
        "criscope on n1 cannot write its store", "5m", "4m45s",
    ),
]  # fmt: skip


def quiet(case, when):
    return {"alertname": case.alert, "eval_time": when, "exp_alerts": []}


def firing(case):
    alert = BY_NAME[case.alert]
    annotations = {
        "summary": case.summary,
        "description": alert.description,
        "runbook_url": f"{DOCS}/runbooks/{case.alert}.md",
    }
    expected = {"exp_labels": LABELS | case.labels | {"severity": alert.severity}, "exp_annotations": annotations}
    return {"alertname": case.alert, "eval_time": case.after, "exp_alerts": [expected]}


def test_each_alert_fires_with_its_words_for_its_trouble_and_not_before_its_time(tmp_path):
    groups = [
        group(case.trouble, alert_rule_test=[*([quiet(case, case.before)] if case.before else []), firing(case)])
        for case in CASES
    ]
    assert differences(tmp_path, groups) == ""


def test_no_alert_fires_for_what_is_like_its_trouble(tmp_path):
    groups = [
        group(case.calm, alert_rule_test=[quiet(case, when) for when in ("0s", "1m", case.after)]) for case in CASES
    ]
    assert differences(tmp_path, groups) == ""


def test_an_alert_that_stays_silent_is_noticed(tmp_path):
    case = next(case for case in CASES if case.before)
    assert case.alert in differences(tmp_path, [group(case.calm, alert_rule_test=[firing(case)])])


def test_every_alert_is_made_to_fire():
    assert {case.alert for case in CASES} == set(BY_NAME)


def test_prometheus_takes_the_rules_without_a_complaint():
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules.ALERTS) + len(rules.RECORDS)} rules found" in done.stdout


@pytest.mark.parametrize("alert", rules.ALERTS, ids=lambda alert: alert.name)
def test_an_alert_names_the_node_and_is_one_sentence(alert):
    assert "{{ $labels.instance }}" in alert.summary
    assert "\n" not in alert.summary + alert.description
    assert alert.description.endswith((".", "`criscope why`."))
    assert re.fullmatch(r"Criscope[A-Za-z]+", alert.name)
