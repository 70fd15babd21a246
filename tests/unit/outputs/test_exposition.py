"""What `GET /metrics` answers, read back by the parsers of prometheus_client."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.unit.outputs.scripted import ScriptedLive
from tests.unit.store.sample import call, event, relist, sync_pass
from tracer.outputs.prometheus import exposition
from tracer.store import Store

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", "text/plain"),
        ("*/*", "text/plain"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/plain"),
        ("application/openmetrics-text", "application/openmetrics-text"),
        ("Application/OpenMetrics-Text; version=0.0.1", "application/openmetrics-text"),
        (PROMETHEUS, "application/openmetrics-text"),
        ("application/openmetrics-text;q=0.1,text/plain", "text/plain"),
        ("application/openmetrics-text;q=0", "text/plain"),
        ("application/openmetrics-text;q=x;version=9.9.9.9", "text/plain"),
        (";;,,;q=,=\0", "text/plain"),
    ],
)
def test_the_format_is_what_the_accept_header_prefers(metrics, registry, accept, media):
    text, content_type = exposition(registry, accept)
    assert content_type.split(";")[0] == media
    assert text.endswith(b"# EOF\n") == (media != "text/plain")


@pytest.mark.parametrize(("accept", "read"), [("", read_text), (PROMETHEUS, read_openmetrics)])
def test_both_formats_hold_every_family_and_every_sample(metrics, registry, accept, read):
    metrics.feed([call("c1-1"), relist("r1"), event("e1"), sync_pass("s1")])
    with Store(None) as store:
        metrics.watch(ScriptedLive(calls=[("Status", "kubelet", 1.0)]), store.status)
        text, _ = exposition(registry, accept)
        made = list(registry.collect())
    families = list(read(text.decode()))
    assert {(family.name, family.type, family.documentation) for family in families} == {
        (family.name, family.type, family.documentation) for family in made
    }
    assert {(s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples} == {
        (s.name, tuple(sorted(s.labels.items()))) for family in made for s in family.samples
    }
