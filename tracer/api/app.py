"""The routes."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal, Protocol, get_args

from fastapi import FastAPI, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json
from starlette.responses import Response, StreamingResponse

from tracer.api import models, problem, reference
from tracer.api.guard import Guard
from tracer.api.moments import EXPECTED, moment
from tracer.api.pages import Pages
from tracer.api.problem import Problem
from tracer.errors import FlightError
from tracer.outputs.hub import MAX_LISTENERS, Busy, Hub
from tracer.outputs.perfetto import trace
from tracer.outputs.usage import By, Usage
from tracer.outputs.waterfall import MAX_ROWS, waterfall
from tracer.outputs.why import why
from tracer.rows import Kind, Live, rfc3339
from tracer.store import LIMIT, LIMIT_MOST, OVERVIEW, OVERVIEW_MOST, Filter, Page, Status, Store, Window

NAME = 253
"""Characters of a Kubernetes name (RFC 1123 subdomain)."""


def _time(text: str) -> str:
    moment(text, 0)
    return text


Moment = Annotated[str, AfterValidator(_time), Field(max_length=64, description=f"As {EXPECTED}.")]
Name = Annotated[str, Field(min_length=1, max_length=NAME)]


class PageQuery(BaseModel):
    """What every list takes."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(LIMIT, ge=1, le=LIMIT_MOST, description="Items of a page at most; large ones make it shorter.")
    cursor: str | None = Field(None, max_length=128, description="`next` of the page before, with the same filters.")


class TimeQuery(PageQuery):
    """A list over a window of time."""

    since: Moment | None = Field(None, description=f"Starts at or after this: {EXPECTED}.")
    until: Moment | None = Field(None, description=f"Starts before this: {EXPECTED}.")


class ListQuery(TimeQuery):
    """A list of rows."""

    pod: Name | None = Field(None, description="Name of the pod.")
    namespace: Name | None = Field(None, description="Of the pod.")
    min_duration: float | None = Field(
        None, ge=0, le=1e9, allow_inf_nan=False, description="Seconds at least; what is open has lasted till now."
    )


class PodsQuery(PageQuery):
    """A list of pods."""

    namespace: Name | None = None


class CallQuery(ListQuery):
    """A list of calls."""

    method: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(None, examples=["RunPodSandbox"])
    status: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None,
        description="gRPC status, e.g. NOT_FOUND; or open, cancelled_by_client, deadline, connection_lost, unknown.",
    )
    activity: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(None, examples=["relist", "sync"])


class OutcomeQuery(ListQuery):
    """A list of relists or sync passes."""

    status: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="The outcome: ok, failed, open or unknown."
    )
    activity: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="relist or pod_relist; sync or terminate."
    )


class EventQuery(ListQuery):
    """A list of PLEG events."""

    status: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="The type, e.g. ContainerDied."
    )


class StepQuery(ListQuery):
    """A list of steps."""

    kind: Literal["shim", "runc", "cni", "exec"] | None = Field(None, description="Of the step.")
    name: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(None, examples=["Start", "create"])
    status: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="gRPC status of a shim's answer; of a process open, ok, failed or unknown."
    )


class FindingQuery(ListQuery):
    """A list of findings."""

    kind: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(None, examples=["shim_hung"])
    severity: Literal["info", "warning", "critical"] | None = Field(None, description="Of the finding.")
    state: Literal["active", "ended"] | None = Field(None, description="Whether it still holds.")


class ExitQuery(ListQuery):
    """A list of exits."""

    status: Literal["restarted", "acted", "seen", "unseen"] | None = Field(
        None, description="The last link: the pod's worker acted, the PLEG saw it, or it did not."
    )


class NodeEventQuery(ListQuery):
    """A list of node events."""

    kind: Literal["kubelet_started", "runtime_stopped", "runtime_started", "oom_kill", "clock_step"] | None = Field(
        None, description="What happened."
    )


class WindowQuery(BaseModel):
    """A window."""

    model_config = ConfigDict(extra="forbid")

    since: Moment = Field("10m", description=f"Things that last until this or longer: {EXPECTED}.")
    until: Moment | None = Field(None, description=f"Starts before this: {EXPECTED}.")


class OverviewQuery(WindowQuery):
    """A window to draw."""

    pod: Name | None = Field(None, description="Name of the pod.")
    namespace: Name | None = Field(None, description="Of the pod.")
    limit: int = Field(OVERVIEW, ge=1, le=OVERVIEW_MOST, description="Lines at most.")


class StreamQuery(BaseModel):
    """What to listen to."""

    model_config = ConfigDict(extra="forbid")

    kind: list[Kind] = Field(default_factory=list, max_length=16, description="Repeat for several. Default: all.")


class WhyQuery(BaseModel):
    """The verdict's window."""

    model_config = ConfigDict(extra="forbid")

    since: Moment = Field("10m", description=f"Findings that began at or after this count: {EXPECTED}.")


class UsageQuery(BaseModel):
    """Whose cost, since when."""

    model_config = ConfigDict(extra="forbid")

    by: By = Field("client", description="Whose share: of each client process, activity, pod or method.")
    since: Moment = Field("10m", description=f"Whole minutes: {EXPECTED}.")


class Recorder(Protocol):
    """The flight recorder, as far as it is asked."""

    def recordings(self) -> list[Any]: ...
    def freeze(self, reason: str) -> Any: ...
    def open(self, id_: str) -> Any: ...


Exposition = Callable[[str], tuple[bytes, str]]
"""Metrics as text and their media type, for the client's Accept header."""


def create_app(
    store: Store,
    live: Live,
    exposition: Exposition,
    usage: Usage,
    hub: Hub,
    recorder: Recorder | None,
    *,
    version: str,
    hosts: frozenset[str],
) -> FastAPI:
    """The application; `hosts` are the values a Host header may have (DNS rebinding), empty for any."""
    app = FastAPI(
        title="criscope",
        version=version,
        summary="What the kubelet does, what it waits for, and how long each CRI call takes.",
        docs_url=None,  # its pages load scripts from another host
        redoc_url=None,
        responses={"4XX": {"model": models.Problem, "content": {problem.MEDIA_TYPE: {}}}},
    )
    app.add_middleware(Guard, hosts=hosts)
    problem.install(app)
    reads = _Reads(store, live)
    pages = Pages()

    @app.get("/api/v1/calls", response_model=models.Calls, tags=["rows"])
    def calls(query: Annotated[CallQuery, Query()]) -> Response:
        """Every gRPC call of the traced sockets."""
        return reads.page("call", query, method=query.method, status=query.status, activity=query.activity)

    @app.get("/api/v1/relists", response_model=models.Relists, tags=["rows"])
    def relists(query: Annotated[OutcomeQuery, Query()]) -> Response:
        """The PLEG's passes, with their parts, inspections and events."""
        return reads.page("relist", query, status=query.status, activity=query.activity)

    @app.get("/api/v1/pleg-events", response_model=models.PlegEvents, tags=["rows"])
    def pleg_events(query: Annotated[EventQuery, Query()]) -> Response:
        """What the relists told the SyncLoop."""
        return reads.page("pleg_event", query, status=query.status)

    @app.get("/api/v1/sync-passes", response_model=models.SyncPasses, tags=["rows"])
    def sync_passes(query: Annotated[OutcomeQuery, Query()]) -> Response:
        """What the pod workers did, as far as they made calls."""
        return reads.page("sync_pass", query, status=query.status, activity=query.activity)

    @app.get("/api/v1/steps", response_model=models.Steps, tags=["rows"])
    def steps(query: Annotated[StepQuery, Query()]) -> Response:
        """What the runtime did below the CRI: calls to shims, runc, CNI plugins, other processes."""
        return reads.page("step", query, method=query.name, status=query.status, activity=query.kind)

    @app.get("/api/v1/findings", response_model=models.Findings, tags=["rows"])
    def findings(query: Annotated[FindingQuery, Query()]) -> Response:
        """Verdicts: what is slow or broken, and whose fault it is. `pod` matches the first pod of a finding."""
        return reads.page("finding", query, method=query.kind, status=query.state, activity=query.severity)

    @app.get("/api/v1/node-events", response_model=models.NodeEvents, tags=["rows"])
    def node_events(query: Annotated[NodeEventQuery, Query()]) -> Response:
        """Starts of the kubelet, stops and starts of runtimes, processes killed for want of memory, clock steps."""
        return reads.page("node_event", query, method=query.kind)

    @app.get("/api/v1/exits", response_model=models.Exits, tags=["rows"])
    def exits(query: Annotated[ExitQuery, Query()]) -> Response:
        """Ends of containers, and how long it took until the runtime, the PLEG and the pod's worker knew."""
        return reads.page("exit", query, status=query.status)

    for path, kind, model in (
        ("calls", "call", models.Call),
        ("relists", "relist", models.Relist),
        ("pleg-events", "pleg_event", models.PlegEvent),
        ("sync-passes", "sync_pass", models.SyncPass),
        ("steps", "step", models.Step),
        ("findings", "finding", models.Finding),
        ("node-events", "node_event", models.NodeEvent),
        ("exits", "exit", models.Exit),
    ):
        app.get(f"/api/v1/{path}/{{id}}", response_model=model, tags=["rows"], operation_id=f"one_{kind}")(
            _one(reads, kind)  # type: ignore[arg-type]  # a tuple's item is no Literal for mypy
        )

    @app.get("/api/v1/pods", response_model=models.Pods, tags=["pods"])
    def pods(query: Annotated[PodsQuery, Query()]) -> Response:
        """The pods that something in the store names."""
        found, following = store.pods(namespace=query.namespace, limit=query.limit, cursor=query.cursor)
        items = [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "first_seen": rfc3339(pod.first),
                "last_seen": rfc3339(pod.last),
            }
            for pod in found
        ]
        return _json({"items": items, "next": following})

    @app.get("/api/v1/pods/{namespace}/{name}/timeline", response_model=models.Timeline, tags=["pods"])
    def timeline(
        namespace: Annotated[str, Path(max_length=NAME)],
        name: Annotated[str, Path(max_length=NAME)],
        query: Annotated[TimeQuery, Query()],
    ) -> Response:
        """Calls, PLEG events and sync passes of the pods of this name."""
        rows, following = store.timeline(
            namespace, name, reads.window(query.since, query.until), limit=query.limit, cursor=query.cursor
        )
        if not rows and query.cursor is None and not store.pods(namespace=namespace, name=name, limit=1)[0]:
            raise Problem(404, f"no pod {namespace}/{name} is known; /api/v1/pods lists those that are")
        head = to_json({"namespace": namespace, "name": name})[:-1]
        items = b",".join(
            b'{"uid":%b,"kind":"%b","item":%b}' % (to_json(row.uid), row.kind.encode(), row.fields.encode())
            for row in rows
        )
        return _raw(b'%b,"items":[%b],"next":%b}' % (head, items, to_json(following)))

    @app.get("/api/v1/pods/{namespace}/{name}/start", response_model=models.PodStarts, tags=["pods"])
    def start(
        namespace: Annotated[str, Path(max_length=NAME)], name: Annotated[str, Path(max_length=NAME)]
    ) -> Response:
        """The latest start of the pods of this name as a waterfall: volumes, sandbox, image, containers, sight."""
        rows, cursor = store.timeline(namespace, name, limit=LIMIT_MOST)
        while cursor is not None and len(rows) < MAX_ROWS:
            more, cursor = store.timeline(namespace, name, limit=LIMIT_MOST, cursor=cursor)
            rows += more
        pods: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for row in rows:
            pods.setdefault(row.uid, []).append((row.kind, from_json(row.fields)))
        items = [found for uid, mine in pods.items() if uid and (found := waterfall(uid, mine)) is not None]
        if not items:
            raise Problem(404, f"no start of a pod {namespace}/{name} is kept; its timeline may say more")
        return _json({"items": items})

    @app.get("/api/v1/timeline", response_model=models.Overview, tags=["rows"])
    def overview(query: Annotated[OverviewQuery, Query()]) -> Response:
        """Everything that touches a window, a line each, for drawing; thinned when there is more than `limit`.

        Kept first are findings, node events, what is open, relists, sync passes and PLEG events; then the longest.
        """
        window = reads.window(query.since, query.until)
        found = store.overview(window, pod=query.pod, namespace=query.namespace, limit=query.limit)
        pods: dict[tuple[str, str, str], int] = {}
        items = [
            (
                line.kind, line.id, line.start // 1000, None if line.end is None else (line.end - line.start) // 1000,
                line.name, line.status, line.activity,
                None if line.pod is None else pods.setdefault(line.pod, len(pods)),
            )
            for line in found.lines
        ]  # fmt: skip
        return _json(
            {
                "now": rfc3339(live.now()),
                "total": found.total,
                "thinned": found.total > len(items),
                "pods": [dict(zip(("namespace", "name", "uid"), pod, strict=True)) for pod in pods],
                "items": items,
            }
        )

    @app.get("/api/v1/stream", tags=["now"], response_class=StreamingResponse)
    async def stream(query: Annotated[StreamQuery, Query()]) -> Response:
        """Rows as they come, as server-sent events: `event` is the kind, `data` the row's fields.

        `lost` says how many rows were left out because this listener did not keep up. 503 when too many listen.
        """
        events = hub.listen(frozenset(query.kind) or frozenset(get_args(Kind)))
        try:
            first = await anext(events)
        except Busy:
            raise Problem(503, f"{MAX_LISTENERS} listen already; close one") from None

        async def whole() -> AsyncIterator[bytes]:
            yield first
            async for event in events:
                yield event

        return StreamingResponse(whole(), media_type="text/event-stream")

    @app.get("/api/v1/pleg", response_model=models.Pleg, tags=["now"])
    def pleg() -> Response:
        """PLEG health now: age, stage, what it waits for, seconds until the kubelet calls it unhealthy."""
        return _json(live.pleg())

    @app.get("/api/v1/export/perfetto", tags=["rows"], response_class=StreamingResponse)
    def export(query: Annotated[WindowQuery, Query()]) -> Response:
        """The window as a trace for ui.perfetto.dev, of its 20,000 newest things."""
        rows = store.rows(reads.window(query.since, query.until))
        headers = {"Content-Disposition": 'attachment; filename="criscope.perfetto-trace"'}
        return StreamingResponse(trace(rows), media_type="application/octet-stream", headers=headers)

    @app.get("/api/v1/recordings", response_model=models.Recordings, tags=["recordings"])
    def recordings() -> Response:
        """What the flight recorder keeps, the newest first: the minutes around critical findings, and when asked."""
        return _json({"items": [_recording(each) for each in _kept(recorder).recordings()]})

    @app.post("/api/v1/recordings", response_model=models.Recording, status_code=202, tags=["recordings"])
    def freeze(wish: models.Wish) -> Response:
        """Keep the last minutes and the next ten seconds as a recording. The body must be JSON."""
        return _json(_recording(_kept(recorder).freeze(wish.reason)), 202)

    @app.get("/api/v1/recordings/{id}", tags=["recordings"], response_class=StreamingResponse)
    def recording(id: Annotated[str, Path(max_length=64)]) -> Response:  # noqa: A002  (the name in the path)
        """One recording as a capture that `criscope replay` decodes."""
        try:
            download = _kept(recorder).open(id)
        except FlightError:
            raise Problem(404, "no recording has this id; /api/v1/recordings lists them") from None
        headers = {
            "Content-Disposition": f'attachment; filename="{download.filename}"',
            "Content-Length": str(download.size),
        }
        return StreamingResponse(download.chunks(), media_type="application/gzip", headers=headers)

    @app.get("/api/v1/why", response_model=models.Why, tags=["now"])
    def verdict(query: Annotated[WhyQuery, Query()]) -> Response:
        """The verdict: one sentence, the findings it rests on, what is not known, and what to try."""
        now = live.now()
        window = reads.window(query.since, None)
        ended = store.page("finding", window, Filter(status="ended"), limit=LIMIT, now=now).items
        active = live.findings()
        known = {each["id"] for each in active}
        past = [each for each in map(from_json, ended) if each["id"] not in known]
        clients = usage.shares("client", window.since or 0, now)
        return _json(why([*active, *past], live.pleg(), _reasons(live.health(), store.status()), clients))

    @app.get("/api/v1/usage", response_model=models.Usage, tags=["now"])
    def shares(query: Annotated[UsageQuery, Query()]) -> Response:
        """Who calls the runtime, and what it costs: of the minutes since then, at most an hour."""
        now = live.now()
        since = moment(query.since, now)
        items = usage.shares(query.by, since, now)
        return _json({"since": rfc3339(since), "until": rfc3339(now), "items": items})

    @app.get("/healthz", tags=["now"])
    def healthz() -> Response:
        """How criscope itself is. 200 while it traces; 503 when tracing has ended."""
        health = live.health()
        status = store.status()
        reasons = _reasons(health, status)
        word = "failed" if not health["tracing"] else "degraded" if reasons else "ok"
        stored = {
            name: getattr(status, name)
            for name in ("state", "rows", "bytes", "queued", "written", "rejected", "dropped", "deleted", "failures")
        }
        body = {"status": word, "version": version, "reasons": reasons, **health, "store": stored}
        return _json(body, 200 if health["tracing"] else 503)

    @app.get("/readyz", tags=["now"])
    def readyz() -> Response:
        """200 when programs are attached and rows can be asked for; 503 before and after."""
        ready = bool(live.health()["tracing"])
        return _json({"ready": ready}, 200 if ready else 503)

    @app.get("/metrics", tags=["now"], response_class=Response)
    def metrics(request: Request) -> Response:
        """Prometheus metrics (docs/metrics.md), as text or OpenMetrics by the Accept header."""
        body, media_type = exposition(request.headers.get("accept", ""))
        return Response(body, media_type=media_type)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return Response(reference.page(app.openapi()), media_type="text/html; charset=utf-8")

    @app.get("/", include_in_schema=False)
    def index(request: Request) -> Response:
        return pages.answer("index.html", request)

    @app.get("/assets/{name}", include_in_schema=False)
    def asset(name: Annotated[str, Path(max_length=64)], request: Request) -> Response:
        return pages.answer(name, request)

    return app


def _kept(recorder: Recorder | None) -> Recorder:
    if recorder is None:
        raise Problem(404, "there is no flight recorder: this is a replay, or it was started with --no-flight")
    return recorder


def _recording(frozen: Any) -> dict[str, Any]:
    return {
        "id": frozen.id,
        "time": rfc3339(frozen.frozen),
        "reasons": list(frozen.reasons),
        "begin": None if frozen.begin is None else rfc3339(frozen.begin),
        "end": None if frozen.end is None else rfc3339(frozen.end),
        "bytes": frozen.bytes,
    }


def _one(reads: "_Reads", kind: Kind) -> Callable[[str], Response]:
    def one(id: Annotated[str, Path(max_length=256)]) -> Response:  # noqa: A002  (the name in the path)
        return reads.one(kind, id)

    one.__doc__ = f"One {kind.replace('_', ' ')}."
    return one


class _Reads:
    """Pages and items of the store for a query."""

    def __init__(self, store: Store, live: Live) -> None:
        self._store = store
        self._live = live

    def window(self, since: str | None, until: str | None) -> Window:
        now = self._live.now()
        window = Window(
            since=None if since is None else moment(since, now),
            until=None if until is None else moment(until, now),
        )
        if window.since is not None and window.until is not None and window.since > window.until:
            raise Problem(400, "since: it is later than until")
        return window

    def page(self, kind: Kind, query: ListQuery, **words: str | None) -> Response:
        where = Filter(pod=query.pod, namespace=query.namespace, min_duration=query.min_duration, **words)
        window = self.window(query.since, query.until)
        page = self._store.page(kind, window, where, limit=query.limit, cursor=query.cursor, now=self._live.now())
        return _raw(_page(page))

    def one(self, kind: Kind, ident: str) -> Response:
        found = self._store.row(kind, ident)
        if found is None:
            raise Problem(404, f"no {kind.replace('_', ' ')} has this id, or it is older than the store keeps")
        return _raw(found.encode())


def _reasons(health: dict[str, Any], status: Status) -> list[str]:
    """What is not as it should be with the tracing itself."""
    reasons = [reason for reason in (health.get("failure"),) if reason]
    if health["lost_records"]:
        reasons.append(f"{health['lost_records']} records were lost")
    if health["gaps"]:
        reasons.append(f"{health['gaps']} gaps in the streams")
    if status.state != "ok":
        reasons.append(f"the store is {status.state}")
    return reasons


def _page(page: Page) -> bytes:
    return b'{"items":[%b],"next":%b}' % (",".join(page.items).encode(), to_json(page.next))


def _raw(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def _json(body: Any, status: int = 200) -> Response:
    return _raw(to_json(body), status)
