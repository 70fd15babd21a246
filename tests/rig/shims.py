"""Which shim holds which pod, from what the runtime keeps on disk: no call is made, so none is traced."""

import json
from pathlib import Path

from tests.rig import footprint
from tests.rig.node import Node

_TYPE = "io.kubernetes.cri.container-type"
_POD = "io.kubernetes.cri.sandbox-name"
_SANDBOX = "io.kubernetes.cri.sandbox-id"


def sandbox_id(node: Node, pod: str) -> str:
    """Of the running pod of this name; the newest when it has several. Raises LookupError when there is none."""
    found = []
    for config in node.footprint.runtime.glob("state/io.containerd.runtime.v2.task/k8s.io/*/config.json"):
        annotations = _annotations(config)
        if annotations.get(_TYPE) == "sandbox" and annotations.get(_POD) == pod:
            found.append((config.stat().st_mtime_ns, annotations[_SANDBOX]))
    if not found:
        raise LookupError(f"no pod {pod} runs")
    return max(found)[1]


def pid(node: Node, pod: str) -> int:
    """Of the pod's shim: one process serves its sandbox and all its containers. Raises LookupError."""
    wanted = sandbox_id(node, pod)
    for number, argv in footprint.processes():
        if Path(argv[0]).name == "containerd-shim-runc-v2" and wanted in argv:
            return number
    raise LookupError(f"no shim of pod {pod} runs")


def _annotations(config: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(config.read_text())["annotations"]
    except (OSError, ValueError):
        return {}  # it is just written, or removed
    return found
