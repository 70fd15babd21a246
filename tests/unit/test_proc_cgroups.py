"""The files of both versions of cgroups, as the kernel writes them, become what is known of the cgroups around."""

import pytest

from tracer.cgroupfs import MAX_KEPT, MAX_LEVELS, Cgroups
from tracer.observed import GroupSnapshot

V2_STAT = b"""usage_usec 37181237
user_usec 20160012
system_usec 17021225
nr_periods 200
nr_throttled 150
throttled_usec 9231000
nr_bursts 0
burst_usec 0
"""
V1_STAT = b"nr_periods 10\nnr_throttled 4\nthrottled_time 123456789\nnr_bursts 0\nburst_time 0\n"
PRESSURE = b"some avg10=%s avg60=3.00 avg300=1.00 total=55\nfull avg10=99.00 avg60=99.00 avg300=99.00 total=55\n"
SERVICE = "system.slice/containerd.service"


class Tree:
    """A /proc and a /sys/fs/cgroup of files."""

    def __init__(self, path, init):
        self.root, self.proc = path / "cgroup", path / "proc"
        self.write(self.proc / "1/cgroup", init)
        self.root.mkdir()

    def write(self, path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def add(self, directory, **files):
        for name, content in files.items():
            self.write(self.root / directory / name.replace("__", "."), content)

    def around(self, lines):
        return Cgroups(self.proc, self.root).around(lines)


@pytest.fixture
def v2(tmp_path):
    tree = Tree(tmp_path, b"0::/init.scope\n")
    tree.add(".", cgroup__controllers=b"cpu memory\n", cpu__stat=b"usage_usec 1\n", cpu__pressure=PRESSURE % b"77.00")
    return tree


@pytest.fixture
def v1(tmp_path):
    return Tree(tmp_path, b"4:cpu,cpuacct:/\n3:memory:/\n2:freezer:/\n1:name=systemd:/init.scope\n0::/init.scope\n")


def test_version_2_tells_limit_throttling_and_pressure_of_a_process(v2):
    v2.add(
        SERVICE,
        cpu__stat=V2_STAT,
        cpu__max=b"20000 100000\n",
        cpu__pressure=PRESSURE % b"12.50",
        memory__pressure=PRESSURE % b"0.00",
        cgroup__events=b"populated 1\nfrozen 0\n",
    )
    v2.add("system.slice", cpu__stat=V2_STAT.replace(b"200", b"0"), cpu__max=b"max 100000\n")
    assert v2.around(b"0::/system.slice/containerd.service\n") == GroupSnapshot(
        path="/system.slice/containerd.service",
        frozen=False,
        throttling={"/system.slice/containerd.service": (200, 150), "/system.slice": (0, 150)},
        cpu_limit=0.2,
        cpu_pressure=0.125,
        memory_pressure=0.0,
    )


def test_version_1_tells_limit_and_throttling_but_no_pressure(v1):
    v1.add(f"cpu/{SERVICE}", cpu__stat=V1_STAT, cpu__cfs_quota_us=b"150000\n", cpu__cfs_period_us=b"100000\n")
    lines = b"4:cpu,cpuacct:/system.slice/containerd.service\n3:memory:/system.slice/containerd.service\n0::/\n"
    assert v1.around(lines) == GroupSnapshot(
        path="/system.slice/containerd.service",
        throttling={"/system.slice/containerd.service": (10, 4)},
        cpu_limit=1.5,
    )


def test_the_least_limit_of_those_around_counts(v2):
    v2.add("a/b", cpu__stat=V2_STAT, cpu__max=b"300000 100000\n")
    v2.add("a", cpu__stat=V2_STAT, cpu__max=b"50000 100000\n")
    assert v2.around(b"0::/a/b\n").cpu_limit == 0.5


@pytest.mark.parametrize("quota", [b"max 100000\n", b"max 0\n", b"100 0\n", b"", b"nonsense"])
def test_where_there_is_no_limit_none_is_named(v2, quota):
    v2.add("a", cpu__stat=V2_STAT, cpu__max=quota)
    assert v2.around(b"0::/a\n").cpu_limit is None


def test_the_machines_pressure_is_not_a_processs(v2):
    assert v2.around(b"0::/\n").cpu_pressure is None


def test_counters_that_cannot_be_read_are_unknown_but_where_none_are_kept_nobody_is_throttled(v2):
    v2.add("a", cpu__stat=b"usage_usec 1\n")
    assert v2.around(b"0::/a\n").throttling == {}
    assert v2.around(b"0::/\n").throttling == {}
    assert v2.around(b"0::/gone\n").throttling is None


@pytest.mark.parametrize(("state", "frozen"), [(b"FROZEN\n", True), (b"FREEZING\n", True), (b"THAWED\n", False)])
def test_version_1_tells_who_is_frozen(v1, state, frozen):
    v1.add("freezer/pod", freezer__state=state)
    assert v1.around(b"2:freezer:/pod\n0::/\n").frozen is frozen


@pytest.mark.parametrize("frozen", [True, False])
def test_version_2_tells_who_is_frozen_with_those_around(v2, frozen):
    v2.add("pod/container", cgroup__events=b"populated 1\nfrozen %d\n" % frozen, cgroup__freeze=b"0\n")
    assert v2.around(b"0::/pod/container\n").frozen is frozen


def test_version_2_beside_version_1_freezes_and_tells_pressure(v1):
    v1.add("unified/pod", cgroup__events=b"frozen 1\n", cpu__pressure=PRESSURE % b"5.00")
    found = v1.around(b"2:freezer:/\n0::/pod\n")
    assert (found.frozen, found.cpu_pressure) == (True, 0.05)


@pytest.mark.parametrize(
    ("init", "line", "path"),
    [
        ("/", "/a/b", "/a/b"),
        ("/../../../../init.scope", "/../../../../a/b", "/a/b"),
        ("/../../../..", "/../../../../a/b", "/a/b"),
        ("/../../../..", "/../../../..", "/"),
        ("/../../../..", "/../../a/b", None),
        ("/../../../..", "/", None),
    ],
)
def test_paths_are_counted_from_the_top_or_are_unknown_in_a_namespace(tmp_path, init, line, path):
    """What lies between the top and the reader's own cgroup has no name there."""
    tree = Tree(tmp_path, f"0::{init}\n".encode())
    tree.add(".", cgroup__controllers=b"")
    assert tree.around(f"0::{line}\n".encode()).path == path


@pytest.mark.parametrize("lines", [b"", b"\n", b"0\n", b"0::\n", b"nonsense", b"4:cpu\n", b"\xff\xfe:\xff:\xff"])
def test_lines_that_cannot_be_tell_nothing(v2, lines):
    assert v2.around(lines) == GroupSnapshot()


def test_levels_are_looked_at_up_to_a_bound(v2):
    names = [str(number) for number in range(MAX_LEVELS + 5)]
    for count in range(1, len(names) + 1):
        v2.add("/".join(names[:count]), cpu__stat=V2_STAT, cpu__max=b"max 100000\n")
    throttling = v2.around(f"0::/{'/'.join(names)}\n".encode()).throttling
    assert throttling is not None
    assert len(throttling) == MAX_LEVELS
    assert "/" + "/".join(names) in throttling


def test_a_cgroup_is_read_once_until_it_is_forgotten(v2):
    groups = Cgroups(v2.proc, v2.root)
    v2.add("a", cpu__stat=V2_STAT)
    first = groups.around(b"0::/a\n")
    v2.add("a", cpu__stat=V2_STAT.replace(b"150", b"160"))
    assert groups.around(b"0::/a\n") is first
    groups.forget()
    assert groups.around(b"0::/a\n").throttling == {"/a": (200, 160)}


def test_of_too_many_cgroups_the_last_are_unknown(v2):
    groups = Cgroups(v2.proc, v2.root)
    found = [groups.around(f"0::/{number}\n".encode()).path for number in range(MAX_KEPT + 1)]
    assert found == [*(f"/{number}" for number in range(MAX_KEPT)), None]
