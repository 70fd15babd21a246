"""The demonstration's view of a node, drawn from nothing but the tracer's REST answers."""

import json
import socket
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

REQUEST_SECONDS = 5.0

RELISTS = 3
PODS = 5
CALLS = 4
"""Rows of each table: with headlines and addresses they fill a terminal of 24 lines."""

VERDICT_LINES = 2

PASSES = 50
LATEST = 100
"""So many of the newest are asked for, to choose from."""

SLOW_SECONDS = 0.02
"""Of the calls, those that took longer than this; the answers that come from memory take 1 to 3 ms."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the tracer says now; newest first."""

    pleg: dict[str, Any]
    relists: list[dict[str, Any]]
    passes: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    verdict: dict[str, Any] | None = None
    """`/api/v1/why`, where it was asked for"""


class Rest:
    """The tracer's REST interface at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **query: str | float) -> Any:
        """The JSON body. Raises OSError (urllib's URLError) when there is no good answer."""
        target = f"{self.url}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        with urllib.request.urlopen(target, timeout=REQUEST_SECONDS) as answer:
            return json.load(answer)

    def is_served(self) -> bool:
        """Whether anybody listens there."""
        target = urllib.parse.urlsplit(self.url)
        assert target.hostname is not None
        try:
            with socket.create_connection((target.hostname, target.port or 80), REQUEST_SECONDS):
                return True
        except OSError:
            return False

    def snapshot(self, *, verdict: bool = False) -> Snapshot:
        return Snapshot(
            verdict=self.get("/api/v1/why", since="1m") if verdict else None,
            pleg=self.get("/api/v1/pleg"),
            relists=self._items("/api/v1/relists", limit=LATEST),
            passes=self._items("/api/v1/sync-passes", limit=PASSES),
            calls=self._items("/api/v1/calls", min_duration=SLOW_SECONDS, since="60s", limit=LATEST),
        )

    def _items(self, path: str, **query: str | float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(path, **query)["items"]
        return found


def addresses(now: Snapshot, url: str) -> list[str]:
    """What to ask the tracer oneself, while it runs."""
    pod = next((f"/api/v1/pods/{_pod(sync)}/timeline" for sync in now.passes), "/api/v1/pods")
    return [f"curl '{url}{path}'" for path in ("/api/v1/relists?limit=5", pod, "/api/v1/calls?method=RunPodSandbox")]


def screen(now: Snapshot, url: str, trouble: str | None = None) -> RenderableType:
    """A picture of 24 lines by 80 columns. Where trouble is made, that and the verdict stand instead of addresses."""
    title = Text(f"criscope  {url}  (all addresses: {url}/docs)", style="bold")
    rows = [Text(text, style="dim", no_wrap=True, overflow="ellipsis") for text in addresses(now, url)]
    if trouble is not None:
        rows = [
            Text(trouble, style="magenta", no_wrap=True, overflow="ellipsis"),
            _Beginning(Text(verdict_line(now), style="bold")),
        ]
    return Group(title, health(now), _relists(now), "", _pods(now), "", _calls(now), "", *rows)


def verdict_line(now: Snapshot) -> str:
    return f"criscope says: {now.verdict['sentence'] if now.verdict else 'nothing yet'}"


@dataclass(frozen=True, slots=True)
class _Beginning:
    """As much of a text as fits VERDICT_LINES."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.text.wrap(console, options.max_width)[:VERDICT_LINES]


def health(now: Snapshot) -> Text:
    """The PLEG's state in one line."""
    left = now.pleg["seconds_until_unhealthy"]
    if left is None:
        return Text("PLEG: no relist seen yet", style="yellow")
    healthy = left > 0
    text = f"PLEG {'healthy' if healthy else 'NOT healthy'}: last relist began {now.pleg['age_seconds']:.1f} s ago"
    text += f", {left:.0f} s until unhealthy; now {now.pleg['stage']}"
    if waits := now.pleg["waiting_for"]:
        text += f", waits {waits['age_seconds']:.1f} s for {waits['method']} {_of(waits)}"
    return Text(text, style="green" if healthy else "bold red", no_wrap=True, overflow="ellipsis")


def relist_line(relist: dict[str, Any]) -> str:
    """One relist with its parts."""
    return (
        f"{_clock(relist)} {relist['kind']} relist {_seconds(relist['duration_seconds'])} = sandboxes "
        f"{_seconds(relist['list_sandboxes_seconds'])} + containers {_seconds(relist['list_containers_seconds'])} + "
        f"inspection {_seconds(relist['inspect_seconds'])}, events: {_events(relist) or 'none'}"
    )


def pass_line(sync: dict[str, Any]) -> str:
    """One sync pass with its stages."""
    return f"{_clock(sync)} {_pod(sync)} {sync['kind']} {_seconds(sync['duration_seconds'])}: {_stages(sync)}"


def _relists(now: Snapshot) -> Table:
    table = _table("relist", "total", "sandboxes", "containers", "inspect", "events")
    for relist in now.relists[:RELISTS]:
        parts = ("duration_seconds", "list_sandboxes_seconds", "list_containers_seconds", "inspect_seconds")
        table.add_row(
            f"{_clock(relist)} {relist['kind']}", *(_seconds(relist[part]) for part in parts), _events(relist)
        )
    return table


def _pods(now: Snapshot) -> Table:
    table = _table("pod", "last sync pass", "took", "stages")
    newest = {_pod(sync): sync for sync in reversed(now.passes)}
    for name, sync in sorted(newest.items(), key=lambda entry: entry[1]["start"], reverse=True)[:PODS]:
        table.add_row(name, sync["kind"], _seconds(sync["duration_seconds"]), _stages(sync))
    return table


def _calls(now: Snapshot) -> Table:
    """Open calls first, then the slowest of the latest."""
    table = _table("call", "took", "status", "of")
    ordered = sorted(now.calls, key=lambda call: -(call["duration_seconds"] or float("inf")))
    for call in ordered[:CALLS]:
        status = "open" if call["ended_by"] is None else call["status"] or call["ended_by"]
        table.add_row(call["method"] or "unknown", _seconds(call["duration_seconds"]), status, _of(call))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold cyan", expand=True)
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=3 if column == columns[-1] else None)
    return table


def _clock(item: dict[str, Any]) -> str:
    start: str = item["start"]
    return start[11:19]


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def _pod(item: dict[str, Any]) -> str:
    return f"{item['pod']['namespace']}/{item['pod']['name']}" if item["pod"] else "-"


def _of(call: dict[str, Any]) -> str:
    name = call["container"] and call["container"]["name"]
    return f"{_pod(call)} {name}" if name else _pod(call)


def _stages(sync: dict[str, Any]) -> str:
    return ", ".join(f"{stage['name']} {_seconds(stage['duration_seconds'])}" for stage in sync["stages"])


def _events(relist: dict[str, Any]) -> str:
    return ", ".join(f"{event['type']} {_pod(event)}" for event in relist["events"])
