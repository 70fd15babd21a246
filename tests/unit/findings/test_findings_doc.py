"""docs/findings.md lists every kind of finding, and no other."""

import re
from pathlib import Path

from tracer.findings.rules import rules

DOC = (Path(__file__).parents[3] / "docs" / "findings.md").read_text()


def test_every_kind_of_finding_is_documented_and_no_other():
    kinds = {kind for rule in rules() for kind in ([rule.kind] if hasattr(rule, "kind") else rule.kinds)}
    assert set(re.findall(r"^\| `(\w+)` \|", DOC, re.MULTILINE)) == kinds
