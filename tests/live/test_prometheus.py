"""A real Prometheus scrapes a real run with troubles: the dashboards have data, and the alerts fire."""

import contextlib
import json
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dashboards import rules
from dashboards.build import DASHBOARDS
from dashboards.grafana import scoped
from tests.live.tracer import traced
from tests.rig import orders, registry, shims
from tests.rig.freeze import frozen
from tests.rig.node import Node
from tests.rig.scenarios import NOBODY_LISTENS

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]  # the fixture's troubles last three minutes

REPOSITORY = Path(__file__).parents[2]
KEPT = REPOSITORY / ".output" / "dashboards"
"""What every panel showed, for `make pictures` and for who wants to know why a test failed."""

SCRAPE_SECONDS = 1
WAIT = "2s"
"""Instead of the minutes that alerts wait; their thresholds stay."""

VARIABLES = {"$cluster": ".*", "$instance": ".*", "$method": ".*", "$__rate_interval": "15s"}

_CONFIG = f"""\
global:
  scrape_interval: {SCRAPE_SECONDS}s
  evaluation_interval: {SCRAPE_SECONDS}s
rule_files: [rules.yaml]
scrape_configs:
  - job_name: criscope
    static_configs: [{{targets: ["TARGET"], labels: {{cluster: here, instance: this-node}}}}]
"""

EMPTY = {
    "Relists: times the median node": "one node is its own median",
    "Calls: times the median node": "one node is its own median",
}
"""Panels that have no data here, and why."""

UNFIRED = {
    "CriscopeStopOrExecStuck": "would take half an hour",
    "CriscopePullStuck": "would take a quarter of an hour",
    "CriscopeProbeStorm": "three probes each two seconds are none",
    "CriscopeListNearLimit": "some pods are far from 16 MiB",
    "CriscopeListTooLarge": "some pods are far from 16 MiB",
    "CriscopeBlind": "nothing ends the reading of a healthy tracer",
    "CriscopeLosesRecords": "nothing is lost at this rate",
    "CriscopeStoreFails": "the disk is well",
}
"""Alerts that nothing here is to set off, and why; promtool makes each fire (tests/unit/dashboards)."""

MUST_FIRE = {
    "CriscopePlegUnhealthySoon", "CriscopeCallOpenTooLong", "CriscopeRuntimeStarved", "CriscopeRuntimeDown",
    "CriscopeKubeletStalled", "CriscopeShimHung", "CriscopeCniFailing", "CriscopeDown",
}  # fmt: skip

Series = list[dict[str, Any]]


@dataclass
class Prometheus:
    url: str
    begin: float

    def api(self, path: str, **parameters: object) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def over_time(self, expr: str) -> Series:
        """Every series that `expr` had since the beginning, without points that are no number."""
        data = self.api("query_range", query=expr, start=self.begin, end=time.time(), step=SCRAPE_SECONDS)
        found = [
            {"labels": each["metric"], "points": [p for p in each["values"] if math.isfinite(float(p[1]))]}
            for each in data["result"]
        ]
        return [each for each in found if each["points"]]

    def fired(self) -> set[str]:
        return {each["labels"]["alertname"] for each in self.over_time('ALERTS{alertstate="firing"}')}

    def until_fired(self, alert: str, seconds: float) -> None:
        due = time.monotonic() + seconds
        while not self.api("query", query=f'ALERTS{{alertname="{alert}", alertstate="firing"}}')["result"]:
            assert time.monotonic() < due, f"{alert} does not fire"
            time.sleep(0.5)


@contextlib.contextmanager
def scraping(target: str, directory: Path) -> Iterator[Prometheus]:
    """Prometheus on one target, with our rules."""
    quick = re.sub(r"\bfor: \w+", f"for: {WAIT}", rules.text())
    (directory / "rules.yaml").write_text(quick)
    (directory / "prometheus.yml").write_text(_CONFIG.replace("TARGET", target))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/tsdb",
               f"--web.listen-address={address}"]  # fmt: skip
    log = (directory / "prometheus.log").open("w")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _ready(f"http://{address}/-/ready")
            yield Prometheus(f"http://{address}", time.time())
        finally:
            process.terminate()


def _ready(url: str) -> None:
    due = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return
        assert time.monotonic() < due, "Prometheus does not start"
        time.sleep(0.1)


def make_trouble(node: Node, kubelet: orders.Orders, prometheus: Prometheus) -> None:
    """One after the other; each until its alert fires."""
    kubelet.add("refused", image=NOBODY_LISTENS)
    kubelet.add("crash", command=["/bin/sh", "-c", "sleep 1; exit 1"])
    kubelet.add("short", grace=1)
    kubelet.await_call("StartContainer", pod="short")
    kubelet.remove("short")
    with node.plugins.slow(6, pods="slow-*"), registry.silent() as image:
        kubelet.add("pulling", image=image)
        kubelet.add("slow-1")
        kubelet.await_call("StartContainer", pod="slow-1")
    with node.plugins.failing(pods="failing-*"):
        kubelet.add("failing-1")
        prometheus.until_fired("CriscopeCniFailing", 20)
    with frozen(shims.pid(node, "cart")):
        prometheus.until_fired("CriscopeShimHung", 20)
    with frozen(kubelet.pid):
        prometheus.until_fired("CriscopeKubeletStalled", 20)
    with node.down():
        prometheus.until_fired("CriscopeRuntimeDown", 20)
    time.sleep(8)
    with frozen(node.pid):
        prometheus.until_fired("CriscopeRuntimeStarved", 20)
        prometheus.until_fired("CriscopeCallOpenTooLong", 80)
        prometheus.until_fired("CriscopePlegUnhealthySoon", 80)
    time.sleep(15)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.fail("prometheus is missing: run `make setup` as root", pytrace=False)
    directory = tmp_path_factory.mktemp("prometheus")
    with Node() as node, contextlib.ExitStack() as stack:
        with traced(node.socket, directory) as tracer:
            found = stack.enter_context(scraping(tracer.url.removeprefix("http://"), directory))
            with orders.steady(node.socket, directory / "oracle.jsonl") as kubelet:
                make_trouble(node, kubelet, found)
        found.until_fired("CriscopeDown", 20)
        time.sleep(2 * SCRAPE_SECONDS)  # so that a step of a range lies behind it
        yield found


@pytest.fixture(scope="module")
def shown(prometheus: Prometheus) -> dict[str, dict[str, list[Series]]]:
    """By dashboard and panel, the series of each query; kept on disk too."""
    KEPT.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, list[Series]]] = {}
    for dashboard in DASHBOARDS:
        panels = found[dashboard.uid] = {}
        for row in dashboard.rows:
            for panel in row.panels:
                exprs = [resolved(scoped(expr, dashboard.selector)) for expr in panel.expressions()]
                panels[f"{row.title} / {panel.title}"] = [prometheus.over_time(expr) for expr in exprs]
        (KEPT / f"{dashboard.uid}.json").write_text(json.dumps(panels))
    return found


def resolved(text: str) -> str:
    """With the values that Grafana puts for variables."""
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    return text


def test_every_alert_that_a_trouble_was_made_for_fires(prometheus):
    fired = prometheus.fired()
    assert MUST_FIRE - fired == set()
    assert fired & set(UNFIRED) == set()


def test_an_alert_must_fire_or_may_or_says_why_it_cannot():
    may = {"CriscopePullsFail", "CriscopeRuntimeSlow", "CriscopeCniSlow", "CriscopePodsDoNotStart",
            "CriscopeKubeletGivesUp", "CriscopeFinding", "CriscopeRelistSlow",
           "CriscopeRelistFails", "CriscopePodsDoNotEnd"}  # fmt: skip
    assert MUST_FIRE | set(UNFIRED) | may == {alert.name for alert in rules.ALERTS}


def test_no_rule_fails(prometheus):
    groups = prometheus.api("rules")["groups"]
    assert len(groups) == 3
    assert [
        (rule["name"], rule["lastError"]) for group in groups for rule in group["rules"] if "lastError" in rule
    ] == []
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}


def test_every_recording_rule_has_data(prometheus):
    assert [record.name for record in rules.RECORDS if not prometheus.over_time(record.name)] == []


def test_every_query_of_every_panel_has_data_or_says_why_not(shown):
    without = {
        panel.rpartition(" / ")[2] for panels in shown.values() for panel, queries in panels.items() if not all(queries)
    }
    assert without == set(EMPTY)


def test_every_annotation_marks_something(prometheus):
    annotations = {(d.selector, each) for d in DASHBOARDS for each in d.annotations}
    for selector, annotation in annotations:
        assert prometheus.over_time(resolved(scoped(annotation.expr, selector))), annotation.name


def test_every_variable_offers_what_there_is(prometheus):
    for dashboard in DASHBOARDS:
        for variable in dashboard.variables:
            if variable.source is not None:
                metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", resolved(variable.source)).groups()
                window = {"start": prometheus.begin, "end": time.time()}
                offered = prometheus.api(f"label/{label}/values", **{"match[]": metric}, **window)
                assert offered, variable.name
