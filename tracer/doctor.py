"""doctor: what this node supports, what criscope would use, and what to do about the rest."""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tracer.errors import TracerError
from tracer.kernel.libbpf import version
from tracer.kernel.source import KERNEL_BTF, KernelSource
from tracer.pipeline import KUBELETS


@dataclass(frozen=True, slots=True)
class Check:
    """One fact; `ok` None where it is only worth knowing."""

    name: str
    ok: bool | None
    text: str


def checks(sockets: Iterable[str]) -> list[Check]:
    """Every check in the order a reader wants them; nothing of the node is changed."""
    found = [
        Check("kernel", None, f"{platform.release()} {platform.machine()}"),
        Check(
            "root",
            os.geteuid() == 0,
            "yes" if os.geteuid() == 0 else "no: attaching needs root (or CAP_BPF, CAP_PERFMON)",
        ),
        Check(
            "BTF",
            KERNEL_BTF.exists(),
            str(KERNEL_BTF) if KERNEL_BTF.exists() else f"{KERNEL_BTF} is missing: CONFIG_DEBUG_INFO_BTF is needed",
        ),
        _libbpf(),
    ]
    sockets = list(sockets)
    found += _programs(sockets)
    found += _sockets(sockets)
    found.append(_kubelets())
    return found


def _libbpf() -> Check:
    try:
        return Check("libbpf", ok=True, text=version())
    except TracerError as error:
        return Check("libbpf", ok=False, text=str(error))


def _programs(sockets: list[str]) -> list[Check]:
    try:
        with KernelSource(sockets) as source:
            return [
                Check(f"program {probe.program}", probe.attached, "attached" if probe.attached else probe.reason)
                for probe in source.probes
            ]
    except TracerError as error:
        return [Check("programs", ok=False, text=str(error))]


def _sockets(sockets: list[str]) -> list[Check]:
    existing = [path for path in sockets if not path.endswith("*") and Path(path).exists()]
    if existing:
        return [Check("runtime socket", ok=True, text=path) for path in existing]
    tried = ", ".join(path for path in sockets if not path.endswith("*"))
    return [Check("runtime socket", ok=False, text=f"none of these exists now: {tried}; name yours with --socket")]


def _kubelets() -> Check:
    found = []
    for entry in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = entry.read_text().strip()
        except OSError:
            continue
        if name in KUBELETS:
            found.append(f"{name} (pid {entry.parent.name})")
    return Check("kubelet", bool(found) or None, ", ".join(sorted(found)) or "no process of a known name runs now")
