"""The number of series does not depend on what peers send."""

from itertools import product

from tests.unit.outputs.scripted import ScriptedLive, samples, series
from tests.unit.store.sample import NOW, call, event, finding, node_event, pod, relist, step, sync_pass
from tracer.findings.rules import rules
from tracer.outputs import labels
from tracer.outputs.prometheus import EVENT_TYPES, FINDING_KINDS, NODE_EVENTS, RELIST_KINDS, START_STAGES
from tracer.rows import rfc3339
from tracer.store import Store

MOST = 1990  # of 2,000
SERVICES = [None, "runtime.v1.RuntimeService", "containerd.services.tasks.v1.Tasks", "evil"]


def client(n):
    return {"pid": n, "comm": f"crictl-{n}", "role": ("kubelet", "other", f"crictl-{n}")[n % 3]}


def test_ten_thousand_clients_and_five_thousand_pods_make_no_series(metrics, registry):
    metrics.feed(call(f"c{n}-1", client=client(n)) for n in range(3))
    before = series(registry)
    metrics.feed(
        call(f"d{n}-1", client=client(n), connection=f"d{n}", pod=pod(f"web-{n % 5000}", uid=f"u{n % 5000}"))
        for n in range(10_000)
    )
    assert series(registry) == before
    assert {labels[0] for labels in samples(registry, "criscope_cri_calls_total")} == {"kubelet", "other"}


def test_unknown_methods_statuses_and_services_make_few_series(metrics, registry):
    def feed(numbers):
        metrics.feed(
            call(f"c1-{n}", service=service, method=f"Method{n}", status=f"STATUS{n}", error=f"{n}")
            for n in numbers
            for service in SERVICES
        )

    feed(range(1))
    before = series(registry)
    feed(range(1, 2000))
    assert series(registry) == before


def everything(live):
    """Every label value that is known, in every combination, and as many that are not."""
    methods = [*labels.CRI_METHODS, "Unheard", None]
    statuses = [*labels.STATUSES, None, "?"]
    ends = ["server", "client_cancel", "deadline", "connection", "unknown"]
    roles = ["kubelet", "other"]
    for n, (service, method, status, ended_by, role) in enumerate(product(SERVICES, methods, statuses, ends, roles)):
        yield call(
            f"c1-{n}", service=service, method=method, status=status, ended_by=ended_by, streaming=False,
            client={"pid": 1, "comm": "x", "role": role},
        )  # fmt: skip
    for kind, outcome in product(RELIST_KINDS, ("ok", "failed")):
        yield relist(f"{kind}{outcome}", kind=kind, outcome=outcome)
    yield from (event(kind, type=kind) for kind in EVENT_TYPES)
    for kind in (
        "create", "start_container", "restart", "kill_container", "recreate_sandbox", "resize", "terminate", "new",
        "newer", "newest",
    ):  # fmt: skip
        yield sync_pass(kind, kind=kind)
    stages = [
        {"name": name, "start": rfc3339(NOW), "duration_seconds": 1.0, "calls": []}
        for name in (*START_STAGES, "check", "unheard")
    ]
    yield sync_pass("stages", config_seen=rfc3339(NOW), stages=stages)
    for n in range(200):
        yield step(f"t{n}", kind=("shim", "runc", "cni", "exec")[n % 4], name=f"name{n}")
        yield finding(f"f{n}", kind=f"kind{n}")
    yield from (node_event(kind, kind=kind) for kind in NODE_EVENTS)
    live.calls = [(method or "unknown", role, 1.0) for method, role in product(methods, roles)]
    live.calls += [(f"Method{n}", f"role{n}", 1.0) for n in range(1000)]


def test_all_values_of_all_labels_together_stay_below_their_share_of_two_thousand_series(metrics, registry):
    live = ScriptedLive()
    live.health_["probes"] = [{"program": f"program_{n}", "attached": True} for n in range(12)]
    live.counters_ |= {f"stage.counter_{n}": n for n in range(60)} | {"pipeline.busy_ns": 1}
    with Store(None) as store:
        metrics.watch(live, store.status)
        rows = list(everything(live))
        metrics.feed(rows)
        found = series(registry)
        assert found < MOST
        metrics.feed(call(f"x{n}", method="Status", client=client(n)) for n in range(100))
        assert series(registry) == found
    calls = sum(row.kind == "call" for row in rows) + 100
    assert sum(samples(registry, "criscope_cri_calls_total").values()) == calls


def test_every_kind_of_finding_has_series_of_its_own():
    kinds = {kind for rule in rules() for kind in ([rule.kind] if hasattr(rule, "kind") else rule.kinds)}
    assert len(kinds) <= FINDING_KINDS
