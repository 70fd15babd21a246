"""docs/metrics.md says what there is: every metric with its type and labels, and no other name."""

import re
from pathlib import Path

import pytest

from tests.unit.outputs.scripted import IDLE, ScriptedLive
from tests.unit.store.sample import call, event, exit_, finding, node_event, relist, step, sync_pass
from tracer.outputs.live import STORE_STATES
from tracer.outputs.prometheus import (
    EVENT_TYPES,
    METHOD_SOURCES,
    NODE_EVENTS,
    RELIST_KINDS,
    RELIST_STAGES,
    STAGES,
    START_STAGES,
    STEP_KINDS,
    WAIT,
)
from tracer.store import Store

DOC = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(criscope_\w+)` \| (\w+) \|([\w, ]*)\| (.+) \|$", re.MULTILINE)
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum"), "counter": (), "gauge": ()}


@pytest.fixture
def families(metrics, registry):
    live = ScriptedLive(calls=[("Status", "kubelet", 1.0)], pleg_=IDLE)
    live.counters_["pipeline.busy_ns"] = 1
    live.health_["probes"] = [{"program": "socket_send", "attached": True}]
    with Store(None) as store:
        metrics.watch(live, store.status)
        metrics.feed([call("c1-1"), relist("r1"), event("e1"), sync_pass("s1")])
        metrics.feed([step("t1"), finding("f1"), node_event("n1"), exit_("x1")])
        return list(registry.collect())


def shown_name(family):
    return f"{family.name}_total" if family.type == "counter" else family.name


def test_every_metric_is_documented_with_its_type_and_labels_and_every_documented_one_exists(families):
    documented = {
        name: (kind, {label.strip() for label in labels.split(",") if label.strip()})
        for name, kind, labels, _ in ROW.findall(DOC)
    }
    labels = {
        shown_name(family): {label for sample in family.samples for label in sample.labels} - {"le"}
        for family in families
    }
    assert all(family.samples for family in families)
    assert documented == {shown_name(family): (family.type, labels[shown_name(family)]) for family in families}


def test_every_name_in_the_text_and_the_rules_exists(families):
    names = {shown_name(family) for family in families}
    names |= {f"{family.name}{suffix}" for family in families for suffix in SUFFIXES[family.type]}
    assert set(re.findall(r"\bcriscope_\w+", DOC)) - names == set()


@pytest.mark.parametrize(
    "value",
    [
        *EVENT_TYPES,
        *METHOD_SOURCES,
        *RELIST_KINDS,
        *STAGES,
        *RELIST_STAGES,
        *NODE_EVENTS,
        *STEP_KINDS,
        *START_STAGES,
        WAIT,
        "ok",
    ],
)
def test_every_value_of_a_label_is_explained(value):
    assert f"`{value}`" in DOC


def test_the_state_that_the_alert_asks_for_is_one_of_the_stores():
    assert "ok" in STORE_STATES
