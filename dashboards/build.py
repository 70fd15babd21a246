"""`python -m dashboards.build`: writes the files that Grafana, Prometheus and Kubernetes take, below dashboards/."""

from pathlib import Path

from dashboards import node, overview, pods, rules, tracer

HERE = Path(__file__).parent
DASHBOARDS = (overview.DASHBOARD, node.DASHBOARD, pods.DASHBOARD, tracer.DASHBOARD)

_CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {uid}
  labels:
    grafana_dashboard: "1"
data:
  {uid}.json: |
"""

_RULE_OBJECT = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: criscope
spec:
"""


def files() -> dict[str, str]:
    """Each generated file's text, by its path below dashboards/."""
    dashboards = {each.uid: each.text() for each in DASHBOARDS}
    maps = [_CONFIG_MAP.format(uid=uid) + _indented(text, 4) for uid, text in dashboards.items()]
    plain = rules.text()
    return {f"grafana/{uid}.json": text for uid, text in dashboards.items()} | {
        "rules/criscope.rules.yaml": plain,
        "kubernetes/dashboards.yaml": "---\n".join(maps),
        "kubernetes/prometheusrule.yaml": _RULE_OBJECT + _indented(plain, 2),
    }


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


if __name__ == "__main__":
    for path, text in files().items():
        (HERE / path).parent.mkdir(exist_ok=True)
        (HERE / path).write_text(text)
