"""The files in dashboards/ are what the description makes."""

import json
from pathlib import Path

import pytest

from dashboards import build
from tests.unit.dashboards.promtool import RULES, promtool

HERE = Path(build.__file__).parent


def test_every_file_is_what_the_builder_makes_and_there_is_no_other():
    made = build.files()
    for path, text in made.items():
        assert (HERE / path).read_text() == text, f"{path}: run `python -m dashboards.build`"
    found = {str(p.relative_to(HERE)) for place in ("grafana", "rules", "kubernetes") for p in (HERE / place).iterdir()}
    assert found == set(made)


@pytest.mark.parametrize("dashboard", build.DASHBOARDS, ids=lambda each: each.uid)
def test_a_dashboard_is_json_whose_panels_do_not_overlap_and_have_ids_of_their_own(dashboard):
    model = json.loads(dashboard.text())
    taken = set()
    for panel in model["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in model["panels"]]
    assert sorted(set(ids)) == sorted(ids)


def test_the_config_maps_carry_the_sidecars_label_and_the_same_json():
    maps = (HERE / "kubernetes" / "dashboards.yaml").read_text().split("---\n")
    for each, dashboard in zip(maps, build.DASHBOARDS, strict=True):
        head, _, body = each.partition(f"{dashboard.uid}.json: |\n")
        assert 'grafana_dashboard: "1"' in head
        assert json.loads(body) == dashboard.model()
        assert len(each) < 200_000, "kubectl apply keeps a copy in an annotation of 256 KiB at most"


def test_prometheus_takes_the_configuration_that_is_offered(tmp_path):
    offered = (HERE / "provisioning" / "prometheus.yaml").read_text()
    config = tmp_path / "prometheus.yml"
    config.write_text(offered.replace("/etc/prometheus/criscope.rules.yaml", str(RULES)))
    done = promtool("check", "config", config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout
