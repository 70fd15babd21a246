"""What runs and exists on the machine, for tests that nothing is left behind."""

from collections import Counter
from pathlib import Path

from tests.rig import footprint

SHARED_DIRECTORIES = {
    "/sys/class/net": "*",
    "/run": "*",
    "/run/netns": "*",
    "/run/containerd": "**/*",
    "/var/tmp": "*",
    "/var/lib/containerd": "*",
    "/var/lib/cni": "**/*",
}


def shared_state() -> dict[str, object]:
    """What a node touches besides its own directories, as the whole machine sees it."""
    return {
        "mounts": Counter(line.split(" ", 2)[2] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": sorted(Path("/sys/fs/cgroup").glob("**/criscope-*")),
        **{path: sorted(Path(path).glob(pattern)) for path, pattern in SHARED_DIRECTORIES.items()},
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "routes": Path("/proc/net/route").read_text(),
    }


def rig_processes() -> list[tuple[int, list[str]]]:
    programs = ("containerd", "containerd-shim-runc-v2", "runc")
    return [(pid, argv) for pid, argv in footprint.processes() if Path(argv[0]).name in programs]
