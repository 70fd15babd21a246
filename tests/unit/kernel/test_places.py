"""Patterns become the directories and names under which the kernel finds sockets."""

import os
from pathlib import Path

from tracer.kernel import layouts
from tracer.kernel.places import Places
from tracer.kernel.sockets import PATTERNS

KEY = layouts.PLACE_KEY.compiled()
WANTED = layouts.WANTED.compiled()


def entries(*patterns, follow=True):
    """(inode of the directory, is the name a directory's, name cut to its bits) -> (is it a runtime's, number)."""
    found = {}
    for key, value in Places(patterns, follow=follow).entries().items():
        bits, _device, directory, above, name = KEY.unpack(key)
        runtime, place = WANTED.unpack(value)
        assert bits % 8 == 0
        found[directory, bool(above), name[: bits // 8 - 16]] = bool(runtime), place
    return found


def test_a_whole_path_is_its_directory_and_the_name_with_its_nul(tmp_path):
    assert entries(f"{tmp_path}/a.sock") == {(tmp_path.stat().st_ino, False, b"a.sock\0"): (True, 1)}


def test_the_socket_need_not_exist_but_its_directory_must(tmp_path):
    assert entries(f"{tmp_path}/none/a.sock") == {}
    (tmp_path / "none").touch()
    assert entries(f"{tmp_path}/none/a.sock") == {}


def test_a_beginning_is_also_that_of_directories_in_which_the_socket_lies(tmp_path):
    inode = tmp_path.stat().st_ino
    assert entries(f"{tmp_path}/*") == {(inode, above, b""): (True, 1) for above in (False, True)}
    assert entries(f"{tmp_path}/plug*") == {(inode, above, b"plug"): (True, 1) for above in (False, True)}


def test_a_path_that_is_a_link_is_also_what_it_leads_to(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "a.sock").symlink_to("d/real.sock")
    assert entries(f"{tmp_path}/a.sock") == {
        (tmp_path.stat().st_ino, False, b"a.sock\0"): (True, 1),
        ((tmp_path / "d").stat().st_ino, False, b"real.sock\0"): (True, 1),
    }


def test_the_first_of_two_patterns_for_one_place_names_it(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert set(entries(f"{tmp_path}/a", f"{tmp_path}/link/a").values()) == {(True, 1)}


def test_plugins_are_no_runtimes_and_abstract_names_lie_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.kernel.sockets.PLUGINS", f"{tmp_path}/")
    assert set(entries("@name", f"{tmp_path}/*").values()) == {(False, 2)}
    assert set(entries(f"{tmp_path.parent}/a", follow=False).values()) == {(False, 1)}


def test_a_name_that_is_too_long_for_a_socket_is_left_out(tmp_path):
    assert len(entries(f"{tmp_path}/{'n' * 106}")) == 1
    assert entries(f"{tmp_path}/{'n' * 107}") == {}


def test_the_device_is_that_of_the_filesystem_as_the_kernel_writes_it(tmp_path):
    (key,) = Places([f"{tmp_path}/a"], follow=True).entries()
    device = KEY.unpack(key)[1]
    mounted = [line.split()[2] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert f"{device >> 20}:{device & 0xFFFFF}" in mounted


def test_what_stat_tells_of_a_subvolume_is_not_what_the_kernel_holds(tmp_path, monkeypatch):
    """On btrfs stat shows a number for each subvolume; the mount has the filesystem's."""
    here = Places([f"{tmp_path}/a"], follow=True).entries()
    original = os.fstat

    def subvolume(descriptor):
        status = list(original(descriptor))
        status[2] = os.makedev(0, 999)
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", subvolume)
    assert Places([f"{tmp_path}/a"], follow=True).entries() == here


def test_a_directory_that_can_no_longer_be_looked_at_is_named_and_still_holds(tmp_path, monkeypatch):
    looking = Places([f"{tmp_path}/a"], follow=True)
    before = looking.entries()
    assert looking.hidden == {}

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    assert looking.entries() == before
    assert looking.hidden == {str(tmp_path): "Permission denied"}
    assert Places([f"{tmp_path}/a"], follow=True).entries() == {}


def test_a_directory_that_was_removed_is_forgotten(tmp_path):
    (tmp_path / "d").mkdir()
    looking = Places([f"{tmp_path}/d/a"], follow=True)
    assert len(looking.entries()) == 1
    (tmp_path / "d").rmdir()
    assert looking.entries() == {}


def test_directly_below_the_root():
    assert Places(["/*"], follow=True).shown(1, ["a.sock", "d"]) == "/d/a.sock"
    assert Places(["/a"], follow=True).entries()


def test_all_that_may_be_wanted_fits_the_kernels_table():
    header = (Path(__file__).parents[3] / "bpf" / "places.bpf.h").read_text()
    assert f"#define WANTED_PLACES {2 * PATTERNS} " in header
