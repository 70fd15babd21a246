"""Patterns of socket paths become keys of the kernel's table."""

import pytest

from tracer.errors import TracerError
from tracer.kernel import layouts
from tracer.kernel.sockets import PATTERNS, RUNTIME_SOCKETS, around, wanted_entries

KEY = layouts.WANTED_KEY.compiled()


def entries(*patterns, follow=True):
    """Key (cut to its bits) -> is it a runtime's."""
    found = {}
    for key, value in wanted_entries(patterns, follow=follow).items():
        bits, path = KEY.unpack(key)
        assert bits % 8 == 0
        assert not any(path[bits // 8 :])
        runtime, place = layouts.WANTED.compiled().unpack(value)
        assert place == 0
        found[path[: bits // 8]] = bool(runtime)
    return found


def test_a_whole_path_ends_with_its_nul():
    assert entries("/srv/a.sock") == {b"/srv/a.sock\0": True}


def test_a_beginning_does_not():
    assert entries("/srv/s/*") == {b"/srv/s/": True}


def test_an_abstract_name_begins_with_nul():
    assert entries("@name", "@containerd-shim/*") == {b"\0name\0": True, b"\0containerd-shim/": True}


def test_run_is_also_tried_as_var_run_since_that_is_a_link():
    assert set(entries("/run/crio/crio.sock")) == {b"/run/crio/crio.sock\0", b"/var/run/crio/crio.sock\0"}
    assert set(entries("/var/run/crio/crio.sock")) >= {b"/run/crio/crio.sock\0", b"/var/run/crio/crio.sock\0"}


def test_links_in_the_path_are_resolved_too(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert set(entries(f"{tmp_path}/link/a.sock")) == {
        f"{tmp_path}/link/a.sock\0".encode(),
        f"{tmp_path}/real/a.sock\0".encode(),
    }


def test_plugins_of_the_kubelet_are_traced_but_not_taken_for_runtimes():
    assert entries("/var/lib/kubelet/*", "/srv/a.sock") == {b"/var/lib/kubelet/": False, b"/srv/a.sock\0": True}


def test_nobody_is_a_runtime_when_processes_are_not_followed():
    assert entries("/srv/a.sock", follow=False) == {b"/srv/a.sock\0": False}


def test_the_defaults_name_every_runtime_in_both_spellings():
    found = entries(*around(RUNTIME_SOCKETS))
    for path in (
        b"/run/containerd/containerd.sock\0",
        b"/run/containerd/containerd.sock.ttrpc\0",
        b"/run/containerd/s/",
        b"/run/crio/crio.sock\0",
        b"/var/run/crio/crio.sock\0",
        b"/run/k3s/containerd/containerd.sock\0",
        b"/run/k0s/containerd.sock\0",
        b"/var/snap/microk8s/common/run/containerd.sock\0",
        b"/run/cri-dockerd.sock\0",
        b"/var/lib/kubelet/",
    ):
        assert path in found


def test_108_bytes_are_the_longest_path():
    assert len(entries("/" + "p" * 107)) == 1
    with pytest.raises(TracerError, match="has 109 bytes: no socket can have more than 108"):
        entries("/" + "p" * 108)


@pytest.mark.parametrize("pattern", ["", "a.sock", "./a.sock", "@", "*", "/"])
def test_what_cannot_match_is_refused_by_name(pattern):
    with pytest.raises(TracerError, match="give an absolute path or @name"):
        entries(pattern)


def test_too_many_patterns_are_refused():
    with pytest.raises(TracerError, match="too many"):
        entries(*(f"/srv/{n}" for n in range(PATTERNS + 1)))
