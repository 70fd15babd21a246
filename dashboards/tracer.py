"""criscope itself: whether it sees everything, and what it costs."""

from dashboards import shared
from dashboards.grafana import Dashboard, Panel, Query, Row
from dashboards.node import RATE
from dashboards.overview import ANY_STEPS
from dashboards.shared import GREEN, RED, stat

SIGHT = Row(
    "What it sees",
    (
        stat("Tracing", "short", "Tracers that read and decode.", "sum(criscope_tracing)"),
        stat(
            "Programs refused",
            "short",
            "BPF programs that a kernel did not take; `criscope doctor` says why.",
            "count(criscope_probe_attached == 0) or vector(0)",
            ANY_STEPS,
        ),
        stat(
            "Records lost, last hour",
            "short",
            "Records that the kernel side could not hand over.",
            "sum(increase(criscope_lost_records_total[1h]))",
            ANY_STEPS,
        ),
        stat(
            "Names known",
            "percentunit",
            "Share of calls whose method is known, by header or by proof.",
            f'sum(rate(criscope_calls_by_method_source_total{{source!="unknown"}}{RATE})) / sum(rate(criscope_calls_by_method_source_total{RATE}))',
            ((None, RED), (0.99, GREEN)),
        ),
        stat("Connections", "short", "Connections followed.", "sum(criscope_connections)"),
        stat(
            "Stores in trouble",
            "short",
            "Stores whose state is not ok.",
            'count(criscope_store_state{state="ok"} == 0) or vector(0)',
            ANY_STEPS,
        ),
        Panel(
            "Records lost",
            "ops",
            "By program. Lost records are gaps, and calls with complete: false.",
            (
                Query(
                    f"sum by (instance, program) (rate(criscope_lost_records_total{RATE}))", "{{instance}} {{program}}"
                ),
            ),
        ),
        Panel(
            "Gaps",
            "ops",
            "Holes in what connections carried.",
            (Query(f"sum by (instance) (rate(criscope_stream_gaps_total{RATE}))", "{{instance}}"),),
        ),
        Panel(
            "How methods are known",
            "ops",
            "header: on the wire. inferred: proven on a connection older than the tracer. unknown: not proven.",
            (Query(f"sum by (source) (rate(criscope_calls_by_method_source_total{RATE}))", "{{source}}"),),
            stacked=True,
        ),
        Panel(
            "Versions",
            "short",
            "Tracers by version.",
            (Query("count by (version) (criscope_build_info)", "{{version}}"),),
            stacked=True,
        ),
    ),
)

COST = Row(
    "What it costs",
    (
        Panel(
            "CPU",
            "percentunit",
            "Of one core: the process, with HTTP and the store.",
            (Query(f"rate(criscope_process_cpu_seconds_total{RATE})", "{{instance}}"),),
        ),
        Panel(
            "CPU for decoding",
            "percentunit",
            "Of one core.",
            (Query(f"rate(criscope_pipeline_busy_seconds_total{RATE})", "{{instance}}"),),
        ),
        Panel(
            "Memory",
            "bytes",
            "Resident. The ring buffer's data is mapped twice: a ring of 16 MiB counts as 32.",
            (Query("criscope_process_resident_memory_bytes", "{{instance}}"),),
        ),
        Panel(
            "Open files",
            "short",
            "File descriptors of the process.",
            (Query("criscope_process_open_fds", "{{instance}}"),),
        ),
    ),
)

STORE = Row(
    "Store",
    (
        Panel("Size", "bytes", "Of the store's files.", (Query("criscope_store_bytes", "{{instance}}"),)),
        Panel("Rows", "short", "In the store.", (Query("criscope_store_rows", "{{instance}}"),)),
        Panel(
            "Rows by result",
            "ops",
            "written; rejected as too large; dropped: the disk did not keep up; deleted for age or room.",
            (Query(f"sum by (result) (rate(criscope_store_handled_rows_total{RATE}))", "{{result}}"),),
            stacked=True,
        ),
        Panel(
            "Rows that wait, and refusals",
            "short",
            "Rows queued for the disk; times the disk refused, in five minutes.",
            (
                Query("criscope_store_queued_rows", "{{instance}} queued"),
                Query("increase(criscope_store_failures_total[5m])", "{{instance}} refused"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="criscope-tracer",
    title="criscope / Itself",
    description="Whether the tracers see everything, and what they cost.",
    selector=shared.NODE,
    variables=(shared.CLUSTERS, shared.NODES, shared.RUNBOOKS),
    rows=(SIGHT, COST, STORE),
    annotations=(shared.EVENTS,),
    links=(shared.RUNBOOK_LINK,),
)
