"""Paths of cgroups: whose they are. Runtimes and kubelet put the container's id and the pod's uid into the names.

With systemd the names are units, `kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope`; without they are plain,
`kubepods/burstable/pod<uid>/<id>`. Below a container there may be others: its own, or a whole node's (kind).
"""

import re

_ID = "[0-9a-f]{64}"
# containerd, CRI-O and dockershim; the colons are what systemd's spelling looks like without systemd. CRI-O's
# `crio-conmon-<id>` is the process that looks after the container: not a container.
_CONTAINER = re.compile(rf"(?:^|.*[:/])(?:cri-containerd[-:]|crio[-:]|docker[-:])?({_ID})(?:\.scope)?$")
# A static pod's uid is a digest without dashes; systemd reserves the dash, so there they are underscores.
_POD = re.compile(r"(?:^|.*-)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice(?::.*)?)?$")


def container_ids(path: str) -> tuple[str, ...]:
    """Ids of the containers (or sandboxes) the cgroup `path` is of or lies in, outermost first; often one, or none."""
    return tuple(found[1] for level in path.split("/") if (found := _CONTAINER.match(level)))


def pod_uid(path: str) -> str | None:
    """The innermost pod whose cgroup `path` is or lies in."""
    for level in reversed(path.split("/")):
        if found := _POD.match(level):
            return found[1].replace("_", "-")
    return None
