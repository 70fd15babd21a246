"""Prometheus' own tool, for checks and for unit tests of rules."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

RULES = Path(__file__).parents[3] / "dashboards" / "rules" / "criscope.rules.yaml"
INTERVAL = "15s"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Skips where Debian's package prometheus is not installed; fails there when CRISCOPE_LIVE=1."""
    if shutil.which("promtool") is None:
        reason = "promtool is missing: run `make setup` as root"
        if os.environ.get("CRISCOPE_LIVE") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60)


def group(series: dict[str, str], **tests: list[dict[str, Any]]) -> dict[str, Any]:
    """One unit test of the rules: series in promtool's notation, and what is expected of them."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": INTERVAL, "input_series": inputs} | tests


def differences(directory: Path, groups: list[dict[str, Any]]) -> str:
    """What promtool says of these unit tests; empty when all hold. One process for all: it takes a second to start."""
    file = directory / "test.json"  # YAML takes JSON
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": INTERVAL, "tests": groups}))
    done = promtool("test", "rules", file)
    return "" if done.returncode == 0 else done.stdout + done.stderr
