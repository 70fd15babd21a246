"""What is deployed: valid for every Kubernetes that is maintained, and no more privileged than is said."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
KUSTOMIZE = DEPLOY / "kustomize"
OVERLAYS = sorted(path.name for path in (KUSTOMIZE / "overlays").iterdir())
VERSIONS = [f"1.{minor}" for minor in range(29, 38)]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here to build overlays")


@cache
def built(overlay: str):
    """Objects of an overlay; the base from its files, which need no building to be read."""
    if overlay == "base":
        names = yaml.safe_load((KUSTOMIZE / "base" / "kustomization.yaml").read_text())["resources"]
        texts = [(KUSTOMIZE / "base" / name).read_text() for name in names]
    else:
        command = ["kubectl", "kustomize", str(KUSTOMIZE / "overlays" / overlay)]
        texts = [subprocess.run(command, check=True, capture_output=True, text=True).stdout]
    return [each for text in texts for each in yaml.safe_load_all(text)]


def pod(overlay: str = "base"):
    (found,) = [each for each in built(overlay) if each["kind"] == "DaemonSet"]
    return found["spec"]["template"]["spec"]


def container(overlay: str = "base"):
    (found,) = pod(overlay)["containers"]
    return found


def test_the_schemas_reach_to_the_newest_there_are():
    newest = max(int(each.split(".")[1]) for each in kubernetes_validate.utils.all_versions())
    assert VERSIONS[-1] == f"1.{newest}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", ["base", *(pytest.param(name, marks=needs_kubectl) for name in OVERLAYS)])
def test_every_object_is_valid(overlay, version):
    objects = built(overlay)
    assert {each["kind"] for each in objects} == {"Namespace", "ServiceAccount", "DaemonSet", "NetworkPolicy"}
    for each in objects:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_that_does_not_exist_would_be_found(version):
    (daemonset,) = yaml.safe_load_all((KUSTOMIZE / "base" / "daemonset.yaml").read_text())
    daemonset["spec"]["template"]["spec"]["hostPIDs"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemonset, version, strict=True)


def test_the_pod_asks_for_what_the_documentation_lists_and_for_nothing_else():
    """Of what Pod Security's levels forbid (docs/security.md has the reasons)."""
    spec = pod()
    assert {key: value for key, value in spec.items() if key.startswith("host")} == {"hostPID": True}
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 59559,
        "runAsGroup": 59559,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": True,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON"]},
    }
    (init,) = spec["initContainers"]
    assert init["command"] == ["chown", "59559:59559", "/var/lib/criscope"]
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert not init["securityContext"]["allowPrivilegeEscalation"]
    assert not spec["automountServiceAccountToken"]
    text = (DEPLOY.parent / "docs" / "security.md").read_text()
    for word in ("hostPID", "hostPath", "BPF", "PERFMON", "CHOWN", "allowPrivilegeEscalation", "59559"):
        assert f"`{word}" in text, word
    for volume in spec["volumes"]:
        assert f"`{volume['hostPath']['path']}`" in text, volume


@pytest.mark.parametrize("overlay", ["base", *(pytest.param(name, marks=needs_kubectl) for name in OVERLAYS)])
def test_only_the_store_is_mounted_to_be_written(overlay):
    for mount in container(overlay)["volumeMounts"]:
        assert mount.get("readOnly", False) == (mount["name"] != "store"), mount


@pytest.mark.parametrize("overlay", ["base", *(pytest.param(name, marks=needs_kubectl) for name in OVERLAYS)])
def test_directories_in_which_the_node_mounts_follow_its_unmounts(overlay):
    for mount in container(overlay)["volumeMounts"]:
        if mount["name"] in ("runtime", "kubelet"):
            assert mount["mountPropagation"] == "HostToContainer"


@pytest.mark.parametrize("overlay", ["base", *(pytest.param(name, marks=needs_kubectl) for name in OVERLAYS)])
def test_the_runtimes_directory_is_where_a_default_socket_lies(overlay):
    from tracer.kernel.sockets import RUNTIME_SOCKETS

    paths = {mount["name"]: mount["mountPath"] for mount in container(overlay)["volumeMounts"]}
    assert paths["runtime"] in {str(Path(socket).parent) for socket in RUNTIME_SOCKETS}
    assert paths["kubelet"] == "/var/lib/kubelet", "its name, wherever it lies"
    (volume,) = [each for each in pod(overlay)["volumes"] if each["name"] == "runtime"]
    assert volume["hostPath"]["path"] == paths["runtime"], "the same path: a server bound it there"


@needs_kubectl
def test_on_the_nodes_network_probes_cost_the_runtime_nothing():
    assert pod("host-network")["hostNetwork"] is True
    for probe in ("startupProbe", "livenessProbe"):
        assert container("host-network")[probe]["httpGet"]["host"] == "127.0.0.1"
        assert "exec" not in container("host-network")[probe]


def test_settings_are_the_commands():
    known = set(re.findall(r"`(CRISCOPE_[A-Z_]+)`", (DEPLOY.parent / "docs" / "cli.md").read_text()))
    given = {each["name"] for each in container()["env"]}
    assert {name for name in given if name.startswith("CRISCOPE_")} <= known


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_is_documented(overlay):
    assert f"overlays/{overlay}" in (DEPLOY.parent / "docs" / "install.md").read_text()
