"""Builds the BPF objects into the wheel, so that whoever installs it needs no compiler."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BpfBuildHook(BuildHookInterface):
    """Runs `make -C bpf`; an editable installation leaves that to the developer, who runs it again and again anyway."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  (the interface's)
        if version == "editable":
            return
        missing = [tool for tool in ("make", "clang", "llvm-strip") if shutil.which(tool) is None]
        if missing:
            raise SystemExit(
                f"building criscope needs {', '.join(missing)}: apt-get install make clang llvm libbpf-dev"
            )
        subprocess.run(["make", "-C", str(Path(self.root) / "bpf")], check=True)
