"""The names that runtimes and kubelet give cgroups say whose they are."""

import pytest

from tracer.cgroups import container_ids, pod_uid

A, B = "0123456789abcdef" * 4, "f" * 64
UID = "1b2c3d4e-0001-4a5b-8c6d-00112233aabb"
UNDERSCORED = UID.replace("-", "_")
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"


@pytest.mark.parametrize(
    "path",
    [
        f"{SLICE}/cri-containerd-{A}.scope",
        f"{SLICE}/crio-{A}.scope",
        f"{SLICE}/docker-{A}.scope",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{A}.scope",
        f"/kubepods/burstable/pod{UID}/{A}",
        f"/kubepods/pod{UID}/crio-{A}",
        f"/system.slice/containerd.service/kubepods-besteffort-pod{UNDERSCORED}.slice:cri-containerd:{A}",
        f"{SLICE}/cri-containerd-{A}.scope/init.scope",
        f"/kubepods/besteffort/pod{UID}/{A}/system.slice/a.service",
    ],
)
def test_container_and_pod_are_named_by_their_cgroup_and_by_those_below_it(path):
    assert container_ids(path) == (A,)
    assert pod_uid(path) == UID


def test_a_static_pods_uid_has_no_dashes():
    digest = "0123456789abcdef" * 2
    assert pod_uid(f"/kubepods/burstable/pod{digest}/{A}") == digest
    assert pod_uid(f"/kubepods.slice/kubepods-pod{digest}.slice/cri-containerd-{A}.scope") == digest


def test_a_container_without_a_pod_has_an_id_only():
    path = f"/k8s.io/{A}"
    assert (container_ids(path), pod_uid(path)) == ((A,), None)


def test_of_containers_within_containers_all_are_named_outermost_first():
    path = f"/system.slice/docker-{B}.scope/kubelet/kubepods/pod{UID}/{A}"
    assert (container_ids(path), pod_uid(path)) == ((B, A), UID)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/system.slice/containerd.service",
        "/user.slice/user-1000.slice/session-3.scope",
        f"/user/{A[:-1]}",
        f"/user/{A}0",
        f"/user/x{A}",
        f"/user/{A.upper()}",
        "/kubepods.slice/kubepods-burstable.slice",
        "/system.slice/podman.service",
    ],
)
def test_what_is_neither_a_containers_nor_a_pods_names_nobody(path):
    assert (container_ids(path), pod_uid(path)) == ((), None)


def test_the_process_that_looks_after_a_container_is_not_in_it():
    path = f"{SLICE}/crio-conmon-{A}.scope"
    assert (container_ids(path), pod_uid(path)) == ((), UID)
