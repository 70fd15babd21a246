"""The image: pinned, and what the manifest starts is in it."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKED = re.compile(
    r"^([a-z0-9-]+)==(\S+)(?: ; [^\\\n]+)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+",
    re.MULTILINE,
)


def locked(name: str) -> dict[str, str]:
    text = (DEPLOY / name).read_text()
    found = {each[1]: each[2] for each in LOCKED.finditer(text)}
    assert len(found) == len(re.findall(r"^\S+==", text, re.MULTILINE)), "every one has a version and hashes"
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements.lock", PROJECT["project"]["dependencies"]),
        ("build-requirements.lock", PROJECT["build-system"]["requires"]),
    ],
)
def test_the_lock_is_in_step_with_the_project(lock, wanted):
    pinned = locked(lock)
    for each in map(Requirement, wanted):
        version = pinned.get(canonical(each.name))
        assert version is not None, f"{each.name} is not in {lock}: run deploy/lock"
        assert each.specifier.contains(version), f"{each} but {lock} has {version}: run deploy/lock"


def test_nothing_is_installed_without_a_hash():
    for line in re.findall(r"pip install .*", CONTAINERFILE):
        assert "--require-hashes" in line or "--no-index" in line, line
    assert "--no-build-isolation" in CONTAINERFILE, "else the wheel's build would fetch what nothing pins"


def test_what_the_manifest_starts_is_in_the_image():
    (manifest,) = yaml.safe_load_all((DEPLOY / "kustomize/base/daemonset.yaml").read_text())
    spec = manifest["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    started = {Path(container["command"][0]).name, container["startupProbe"]["exec"]["command"][0]}
    for name in started:
        assert f"deploy/image/{name}" in CONTAINERFILE
        assert (DEPLOY / "image" / name).stat().st_mode & 0o111
    assert f"USER {spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}" in CONTAINERFILE


def test_the_agents_interpreter_is_the_one_that_gets_capabilities():
    shebang = (DEPLOY / "image" / "criscope-agent").read_text().splitlines()[0]
    assert shebang == f"#!/{finish().AGENT_PYTHON}"
    assert (DEPLOY / "image" / "criscope").read_text().startswith("#!/usr/bin/python3\n"), "it has none"


def test_it_is_built_for_the_python_of_its_base():
    site = re.search(r"SITE=/out/(\S+)", CONTAINERFILE)
    assert site is not None
    assert site[1] == finish().SITE.format("python3.11")
    assert "debian:12-slim" in CONTAINERFILE
    assert "--python-version 3.11" in (DEPLOY / "lock").read_text()


def test_versions_are_the_projects():
    version = PROJECT["project"]["version"]
    assert f"ARG VERSION={version}" in CONTAINERFILE
    (image,) = yaml.safe_load((DEPLOY / "kustomize/base/kustomization.yaml").read_text())["images"]
    assert str(image["newTag"]) == version


def test_the_bill_of_materials_names_packages_of_debian_and_python(tmp_path):
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: libbpf1\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:1.1.0-1+b1\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
    )
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    for name, version in (("criscope", "0.1.0"), ("prometheus_client", "0.26.0")):
        info = tmp_path / finish().SITE.format("python3.11") / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    bill = finish().materials(tmp_path)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == "criscope"
    assert [each["purl"] for each in bill["components"]] == [
        "pkg:deb/debian/libbpf1@1%3A1.1.0-1%2Bb1?arch=amd64",
        "pkg:pypi/prometheus-client@0.26.0",
    ]
    assert bill == finish().materials(tmp_path), "it repeats"


def finish():
    """deploy/image/finish.py, which lies in no package."""
    spec = importlib.util.spec_from_file_location("finish", DEPLOY / "image" / "finish.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
