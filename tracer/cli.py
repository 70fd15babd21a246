"""The command `criscope`."""

import contextlib
import json
import logging
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.errors import TracerError

if TYPE_CHECKING:
    from tracer.capture import CaptureWriter
    from tracer.records import Record

log = logging.getLogger("criscope")

app = typer.Typer(
    name="criscope",
    help="Watches the sockets between the kubelet and its container runtime and says what the kubelet waits for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEFAULT_LISTEN = "127.0.0.1:9559"
DEFAULT_URL = f"http://{DEFAULT_LISTEN}"
DEFAULT_STORE = Path("/var/lib/criscope/store.sqlite")

Sockets = Annotated[
    list[str] | None,
    typer.Option(
        "--socket",
        "-s",
        envvar="CRISCOPE_SOCKETS",
        help="Path a runtime's socket is bound at; a trailing * matches a beginning, @name is abstract. "
        "Repeat for several. Shims and the kubelet's plugins are traced as well. Default: the "
        "usual paths of containerd, CRI-O, k3s, RKE2, k0s, MicroK8s, cri-dockerd.",
        show_default=False,
    ),
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen", "-l", envvar="CRISCOPE_LISTEN", metavar="ADDR:PORT", help="Address of the REST interface."
    ),
]
Url = Annotated[str, typer.Option("--url", envvar="CRISCOPE_URL", help="Of a running criscope.", metavar="URL")]
OtherStore = Annotated[
    Path | None, typer.Option("--store", help="Look into this store instead, running or not.", show_default=False)
]
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp",
        envvar="CRISCOPE_OTLP",
        metavar="URL",
        help="Export traces and metrics to this OpenTelemetry collector: grpc://HOST:4317 or http://HOST:4318.",
        show_default=False,
    ),
]
StoreSize = Annotated[
    int,
    typer.Option("--store-size", envvar="CRISCOPE_STORE_SIZE", metavar="MIB", help="Largest size of the store, MiB."),
]


@app.callback()
def _common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more on standard error.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="criscope: %(message)s", stream=sys.stderr
    )
    for noisy in ("httpx", "asyncio", "hpack"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@app.command()
def run(
    sockets: Sockets = None,
    listen: Listen = DEFAULT_LISTEN,
    store: Annotated[
        Path, typer.Option(envvar="CRISCOPE_STORE", help="File that keeps the last day.", show_default=True)
    ] = DEFAULT_STORE,
    store_size: StoreSize = 512,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask/--no-ask",
            envvar="CRISCOPE_ASK",
            help="Ask each runtime once, at start, which pods and containers it has (three calls).",
        ),
    ] = True,
    flight: Annotated[
        bool,
        typer.Option(
            "--flight/--no-flight",
            envvar="CRISCOPE_FLIGHT",
            help="Keep the last minutes, without secrets, beside the store, for when something critical happens.",
        ),
    ] = True,
    otlp: Otlp = None,
    otlp_share: Annotated[
        float,
        typer.Option(
            envvar="CRISCOPE_OTLP_SHARE", min=0, max=1, help="Of the traces that are neither slow nor failed."
        ),
    ] = 0.01,
) -> None:
    """Trace this node: capture, store, REST interface. Needs root; ends with Ctrl-C or SIGTERM."""
    from tracer.agent import Agent, existing  # noqa: PLC0415  (each command imports what it uses)
    from tracer.kernel.blocked import BlockedTasks  # noqa: PLC0415
    from tracer.kernel.privileges import drop_privileges  # noqa: PLC0415
    from tracer.kernel.sockets import RUNTIME_SOCKETS, around  # noqa: PLC0415
    from tracer.kernel.source import KernelSource  # noqa: PLC0415
    from tracer.outputs.otlp.endpoint import endpoint  # noqa: PLC0415
    from tracer.proc import Watch  # noqa: PLC0415
    from tracer.store import Store  # noqa: PLC0415

    runtimes = sockets or list(RUNTIME_SOCKETS)
    with _clear_errors(), _server(listen) as server:
        collector = endpoint(otlp) if otlp else None
        source = KernelSource(around(runtimes))
        blocked = BlockedTasks()
        drop_privileges()  # before any thread starts; what is attached stays so
        with source, blocked, Store(store, max_bytes=store_size << 20) as rows, contextlib.ExitStack() as stack:
            found = existing(runtimes)
            recorder = _flight(stack, store, source) if flight else None
            agent = Agent(
                source,
                [rows.feed, server.feed, *([_otlp(stack, collector, otlp_share, server)] if collector else [])],
                inventories=found if ask else [],
                watch=Watch(blocked.stacks),
                flight=recorder,
                probes=(blocked.probe,),
            )
            if not found:
                log.info("no runtime socket exists yet (%s); waiting for one", ", ".join(runtimes))
            agent.start()
            try:
                server.serve(rows, agent, f"tracing {', '.join(found)}" if found else "ready", recorder)
            finally:
                agent.stop()
            if agent.failure:
                raise TracerError(f"tracing ended: {agent.failure}; please report this with the log above")


def _flight(stack: contextlib.ExitStack, store: Path, source: Any) -> Any:
    """The flight recorder in the directory beside the store; tracing goes on without one."""
    from tracer.errors import FlightError  # noqa: PLC0415
    from tracer.flight import FlightRecorder  # noqa: PLC0415

    try:
        recorder = FlightRecorder(store.with_name(f"{store.name}.flight"), lambda: source.realtime_offset_ns)
    except FlightError as error:
        log.warning("no flight recorder: %s", error)
        return None
    stack.callback(recorder.close)
    return recorder


def _otlp(stack: contextlib.ExitStack, collector: Any, share: float, server: Any) -> Any:
    """What takes rows for the collector, until the stack ends."""
    from tracer.outputs.otlp.output import Otlp  # noqa: PLC0415
    from tracer.outputs.otlp.sender import Sender  # noqa: PLC0415

    output = Otlp(Sender(collector), share, server.registry)
    output.start()
    stack.callback(output.close)
    return output.feed


@app.command()
def record(
    output: Annotated[Path, typer.Option("--output", "-o", help="Capture file to write (docs/capture-format.md).")],
    sockets: Sockets = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Stop by itself after so many seconds. Default: until Ctrl-C.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Record what the sockets carry into a capture; secrets in it are overwritten. Needs root."""
    from tracer.capture import CaptureWriter  # noqa: PLC0415
    from tracer.kernel.sockets import RUNTIME_SOCKETS, around  # noqa: PLC0415
    from tracer.kernel.source import DRAIN_SECONDS, WHOLE, KernelSource  # noqa: PLC0415
    from tracer.redact import Redactor  # noqa: PLC0415

    end = time.monotonic() + seconds if seconds else None
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with _clear_errors():
        source = KernelSource(around(sockets or RUNTIME_SOCKETS), receive_bytes=WHOLE)
        redactor = Redactor()
        with source, CaptureWriter(output, source.realtime_offset_ns, overwrite=force) as writer:
            log.info("recording to %s; Ctrl-C ends it", output)
            while not stopped.is_set() and (end is None or time.monotonic() < end):
                found = source.drain()
                _write(writer, [safe for each in found for safe in redactor.feed(each)])
                if not found:
                    _write(writer, redactor.expire(time.monotonic_ns()))
                    stopped.wait(DRAIN_SECONDS)
            _write(writer, [safe for each in source.drain() for safe in redactor.feed(each)])
            _write(writer, redactor.flush())
            lost = source.counters().get("lost_records", 0)
        log.info("%d records, %d lost, %d bytes in %s", writer.records, lost, output.stat().st_size, output)


def _write(writer: "CaptureWriter", records: "list[Record]") -> None:
    for record_ in records:
        writer.write(record_)
    writer.tick()


@app.command()
def replay(
    capture: Annotated[Path, typer.Argument(help="Capture file, of `criscope record` for instance.")],
    json_to: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write everything found as one JSON object; - prints it."),
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the REST interface over it until Ctrl-C.")] = False,
    listen: Listen = DEFAULT_LISTEN,
    store: Annotated[
        Path | None, typer.Option(help="Keep the rows in this store. Default: a temporary one.", show_default=False)
    ] = None,
) -> None:
    """Decode a capture. No root needed; what it shows is what `run` would have shown."""
    from pydantic_core import to_json  # noqa: PLC0415

    from tracer.agent import Replayed  # noqa: PLC0415
    from tracer.capture import CaptureFile  # noqa: PLC0415
    from tracer.store import Store  # noqa: PLC0415

    with _clear_errors(), contextlib.ExitStack() as stack:
        source = CaptureFile(capture)
        server = stack.enter_context(_server(listen)) if serve else None
        rows = stack.enter_context(Store(store, patient=True)) if serve or store else None
        result, pipeline, damage = _replayed(source, *(each.feed for each in (rows, server) if each))
        found = result.object(str(capture), pipeline)
        if json_to == "-":
            sys.stdout.buffer.write(to_json(found) + b"\n")
        elif json_to:
            Path(json_to).write_bytes(to_json(found) + b"\n")
        else:
            _summary(found)
        if damage:
            log.error("%s", damage)
        if rows and not rows.flush():
            raise TracerError(f"{rows.path}: the disk does not take the rows")
        if server and rows:
            server.serve(rows, Replayed(pipeline, str(capture)), f"serving {capture.name}")
        if damage:
            raise typer.Exit(2)


def _summary(found: dict[str, Any]) -> None:
    counts = ", ".join(
        f"{len(items)} {name.replace('_', ' ')}" for name, items in found.items() if isinstance(items, list)
    )
    sys.stdout.write(f"{found['capture']}: {counts}\n")


@app.command()
def why(
    capture: Annotated[
        Path | None, typer.Argument(help="Look into this capture instead of asking a running criscope.")
    ] = None,
    url: Url = DEFAULT_URL,
    store: OtherStore = None,
    since: Annotated[
        str, typer.Option("--since", help="Findings that began since: 90s, 10m, 1h30m ago, or a time.")
    ] = "10m",
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Say what the kubelet waits for and whose fault it is; exit code 1 while a finding is active."""
    from pydantic_core import to_json  # noqa: PLC0415

    from tracer.outputs.why import text  # noqa: PLC0415

    if capture and store:
        raise typer.BadParameter("give a capture or --store, not both")
    with _clear_errors():
        if capture:
            verdict = _why_of_capture(capture)
        elif store:
            verdict = _why_of_store(store, since)
        else:
            from tracer.asking import ask  # noqa: PLC0415

            verdict = ask(url, "/api/v1/why", since=since)
    if as_json:
        sys.stdout.buffer.write(to_json(verdict) + b"\n")
    else:
        sys.stdout.write(text(verdict))
    if verdict["state"] == "trouble":
        raise typer.Exit(1)


def _replayed(capture: Any, *outputs: Any) -> tuple[Any, Any, Any]:
    """(result, pipeline, damage or None) of an open capture, shown to the outputs as well."""
    from tracer.replay import Result  # noqa: PLC0415
    from tracer.replay import replay as run_replay  # noqa: PLC0415

    result = Result()

    def feed(rows: list[Any]) -> None:
        for output in (result.feed, *outputs):
            output(rows)

    with _progress(f"replaying {Path(capture.path).name}") as progress:
        pipeline, damage = run_replay(capture, feed, progress)
    return result, pipeline, damage


def _found(path: Path) -> tuple[Any, Any]:
    """(result, pipeline) of a capture; what it lacks by damage is only said."""
    from tracer.capture import CaptureFile  # noqa: PLC0415

    result, pipeline, damage = _replayed(CaptureFile(path))
    if damage:
        log.error("%s", damage)
    return result, pipeline


def _why_of_capture(path: Path) -> dict[str, Any]:
    from tracer.outputs.usage import Usage  # noqa: PLC0415
    from tracer.outputs.why import why as verdict  # noqa: PLC0415

    result, pipeline = _found(path)
    usage = Usage()
    usage.feed(result.rows())
    now = pipeline.now + pipeline.rows.offset
    counters = pipeline.counters()
    losses = [f"{counters['streams.gaps']} gaps in the streams"] if counters["streams.gaps"] else []
    findings = result.object(str(path), pipeline)["findings"]
    return verdict(findings, pipeline.pleg(), losses, usage.shares("client", 0, now))


def _why_of_store(path: Path, since: str) -> dict[str, Any]:
    from pydantic_core import from_json  # noqa: PLC0415

    from tracer.outputs.why import why as verdict  # noqa: PLC0415
    from tracer.store import LIMIT_MOST, Filter  # noqa: PLC0415
    from tracer.store.saved import Saved  # noqa: PLC0415

    with Saved(path) as saved:
        now = saved.last()
        page = saved.page("finding", _window(since, now), Filter(), limit=LIMIT_MOST, cursor=None, now=now)
    return verdict([from_json(each) for each in page.items], None, [])


@app.command()
def top(
    url: Url = DEFAULT_URL,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Look so many times, then end.")] = None,
) -> None:
    """Show what goes on now, again and again: PLEG, findings, open calls, who calls. Piped, it prints one look."""
    from tracer.outputs.top import screen  # noqa: PLC0415

    terminal = sys.stdout.isatty()
    looks = count or (None if terminal else 1)
    shown = 0
    with _clear_errors(), contextlib.suppress(KeyboardInterrupt):
        while looks is None or shown < looks:
            size = shutil.get_terminal_size((80, 24))
            lines = screen(_now(url), size.columns, size.lines - 1 if terminal else 1000)
            if terminal:  # home, each line to its end, the rest of the screen
                sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
            else:
                sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
            shown += 1
            if looks is None or shown < looks:
                time.sleep(interval)


def _now(url: str) -> dict[str, Any]:
    """What `top` shows, as a running criscope answers it."""
    from tracer.asking import ask  # noqa: PLC0415

    return {
        "health": ask(url, "/healthz"),
        "pleg": ask(url, "/api/v1/pleg"),
        "findings": ask(url, "/api/v1/findings", state="active")["items"],
        "open": ask(url, "/api/v1/calls", status="open", min_duration="0.5")["items"],
        "clients": ask(url, "/api/v1/usage", by="client")["items"],
        "activities": ask(url, "/api/v1/usage", by="activity")["items"],
        "pods": ask(url, "/api/v1/usage", by="pod")["items"],
    }


export_app = typer.Typer(help="Write what was found to a file for another program.", no_args_is_help=True)
app.add_typer(export_app, name="export")


@export_app.command()
def perfetto(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, e.g. node.perfetto-trace.")],
    capture: Annotated[Path | None, typer.Argument(help="Of this capture instead of a running criscope.")] = None,
    url: Url = DEFAULT_URL,
    store: OtherStore = None,
    since: Annotated[str, typer.Option("--since", help="How far back: 90s, 10m, 1h30m ago, or a time.")] = "10m",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a trace for ui.perfetto.dev: relists, passes, calls and steps on tracks."""
    from tracer.outputs.perfetto import trace  # noqa: PLC0415

    if capture and store:
        raise typer.BadParameter("give a capture or --store, not both")
    with _clear_errors():
        if capture:
            pieces = trace(_found(capture)[0].rows())
        elif store:
            pieces = trace(_stored_rows(store, since))
        else:
            from tracer.asking import download  # noqa: PLC0415

            pieces = download(url, "/api/v1/export/perfetto", since=since)
        _save(output, pieces, overwrite=force)
    log.info("%s: %d bytes; open it in https://ui.perfetto.dev", output, output.stat().st_size)


@export_app.command()
def otlp(
    url: Annotated[
        str,
        typer.Option(
            "--otlp",
            envvar="CRISCOPE_OTLP",
            metavar="URL",
            help="OpenTelemetry collector: grpc://HOST:4317 or http://HOST:4318.",
        ),
    ],
    capture: Annotated[Path | None, typer.Argument(help="Of this capture instead of the store.")] = None,
    store: Annotated[
        Path, typer.Option(envvar="CRISCOPE_STORE", help="Of this store, running or not.")
    ] = DEFAULT_STORE,
    since: Annotated[str, typer.Option("--since", help="How far back: 90s, 10m, 1h30m ago, or a time.")] = "10m",
    share: Annotated[
        float, typer.Option("--otlp-share", min=0, max=1, help="Of the traces that are neither slow nor failed.")
    ] = 1.0,
) -> None:
    """Send traces of a store or a capture to an OpenTelemetry collector: the same ids each time."""
    from tracer.outputs.otlp.endpoint import endpoint  # noqa: PLC0415

    with _clear_errors():
        collector = endpoint(url)
        rows = _found(capture)[0].rows() if capture else _stored_rows(store, since)
        from tracer.outputs.otlp.export import export  # noqa: PLC0415

        log.info("%d spans sent to %s", export(rows, collector, share), url)


@export_app.command()
def recording(
    output: Annotated[Path, typer.Option("--output", "-o", help="Capture file to write.")],
    ident: Annotated[
        str | None, typer.Option("--id", help="Of the recording. Default: the newest.", show_default=False)
    ] = None,
    url: Url = DEFAULT_URL,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a recording of the flight recorder as a capture."""
    from tracer.asking import ask, download  # noqa: PLC0415

    with _clear_errors():
        if ident is None:
            kept = ask(url, "/api/v1/recordings")["items"]
            if not kept:
                raise TracerError(f"{url} keeps no recording; POST /api/v1/recordings makes one (docs/rest.md)")
            ident = kept[0]["id"]
        _save(output, download(url, f"/api/v1/recordings/{ident}"), overwrite=force)
    log.info("%s: %d bytes; `criscope replay` decodes it", output, output.stat().st_size)


def _save(path: Path, pieces: Iterator[bytes], *, overwrite: bool) -> None:
    """Write a new file, once there is something to write: no empty one is left where nobody answers."""
    first = next(pieces, b"")
    try:
        file = path.open("wb" if overwrite else "xb")
    except FileExistsError:
        raise TracerError(f"{path} exists already; --force overwrites it") from None
    with file:
        file.write(first)
        file.writelines(pieces)


def _stored_rows(path: Path, since: str) -> list[Any]:
    from tracer.store.saved import Saved  # noqa: PLC0415

    with Saved(path) as saved:
        return saved.rows(_window(since, saved.last()), sys.maxsize)


def _window(since: str, now: int) -> Any:
    from tracer.api.moments import moment  # noqa: PLC0415
    from tracer.store import Window  # noqa: PLC0415

    try:
        return Window(since=moment(since, now))
    except ValueError as error:
        raise TracerError(f"--since {since}: give {error}") from None


@app.command()
def doctor(
    sockets: Sockets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Say what this node supports, what would be used, and what to do about the rest; exit code 2 if it cannot work."""
    from tracer.doctor import checks  # noqa: PLC0415
    from tracer.kernel.sockets import RUNTIME_SOCKETS  # noqa: PLC0415

    found = checks(sockets or RUNTIME_SOCKETS)
    if as_json:
        json.dump([{"name": c.name, "ok": c.ok, "text": c.text} for c in found], sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        for check in found:
            mark = {True: "ok", False: "NO", None: "--"}[check.ok]
            sys.stdout.write(f"{mark:3} {check.name:24} {check.text}\n")
    if any(check.ok is False for check in found if check.name != "runtime socket"):
        raise typer.Exit(2)


@contextlib.contextmanager
def _clear_errors() -> Iterator[None]:
    """One clear line and exit code 2 for what the user can mend."""
    try:
        yield
    except TracerError as error:
        typer.echo(f"criscope: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        typer.echo(f"criscope: {name}{error.strerror or error}", err=True)
        raise typer.Exit(2) from None


@contextlib.contextmanager
def _server(listen: str) -> Iterator[Any]:
    """The REST interface's server; its address is taken before anything else is done."""
    from tracer.serving import Server  # noqa: PLC0415

    server = Server(listen)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Any]:
    """A bar on standard error when it is a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  (3 MiB that only a terminal needs)
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def main() -> None:
    """Entry point of the command."""
    with contextlib.suppress(BrokenPipeError):
        app()
