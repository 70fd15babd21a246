"""The Helm chart makes what the kustomize overlays make. Helm itself is in the dependency group `chart`."""

import copy
import json
import shutil
import tomllib
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.unit.deploy.test_manifests import VERSIONS, built

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def helm():
    return pytest.importorskip("helm_python", reason="helm is not here: pip install --group chart")


def rendered(**values):
    with helm().Chart.load(CHART) as chart:
        made = chart.render(values=values, name="criscope", namespace="criscope")
    return [yaml.safe_load(text) for name, text in made.items() if name.endswith(".yaml")]


def by_name(items):
    return {each["name"]: each for each in items}


def spec_of(objects):
    """In a form in which the order of mounts and the image's tag, which the base has elsewhere, make no difference."""
    (found,) = [copy.deepcopy(each) for each in objects if each["kind"] == "DaemonSet"]
    spec = found["spec"]
    pod = spec["template"]["spec"]
    pod["volumes"] = by_name(pod["volumes"])
    for each in (*pod["containers"], *pod["initContainers"]):
        each["volumeMounts"] = by_name(each["volumeMounts"])
        each["image"] = each["image"].split(":")[0]
        each.pop("imagePullPolicy", None)
    return spec


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("base", {}),
        *((name, {"runtime": name}) for name in ("crio", "k3s", "k0s", "microk8s")),
        ("host-network", {"hostNetwork": True}),
        ("openshift", {"runtime": "crio", "seLinuxOptions": {"type": "spc_t"}}),
    ],
)
def test_it_makes_what_kustomize_makes(overlay, values):
    chart = rendered(**values)
    if overlay != "base" and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not here to build overlays")
    assert spec_of(chart) == spec_of(built(overlay))


@pytest.mark.parametrize("version", VERSIONS)
def test_with_every_value_set_it_is_valid(version):
    made = rendered(
        otlp="grpc://collector:4317",
        env={"CRISCOPE_OTLP_SHARE": "1"},
        imagePullSecrets=[{"name": "x"}],
        seLinuxOptions={"type": "spc_t"},
        networkPolicy={"egress": [{"ports": [{"port": 4317}]}]},
    )
    assert {each["kind"] for each in made} == {"ServiceAccount", "DaemonSet", "NetworkPolicy"}
    for each in made:
        kubernetes_validate.validate(each, version, strict=True)


def test_helm_finds_nothing_wrong():
    report = helm().lint(CHART, strict=True)
    assert [each for each in report["messages"] if each["severity"] > 1] == []
    assert report["errors"] == []


def test_its_values_are_all_described_and_of_their_types():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}


@pytest.mark.parametrize(
    "wrong", [{"runtim": "crio"}, {"runtime": "docker"}, {"otlp": "collector:4317"}, {"env": {"A": 1}}]
)
def test_a_value_that_means_nothing_is_refused(wrong):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**VALUES, **wrong}, SCHEMA)


def test_every_value_is_used():
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for name in VALUES:
        assert f".Values.{name}" in templates, name


def test_its_version_is_the_projects():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (str(chart["version"]), str(chart["appVersion"])) == (version, version)
