"""Rows: what the pipeline hands to every output (store, metrics, REST, replay JSON), in the words shown outside.

A thing that lasts is handed out again each time it changed: first while `end` is None (open), for the last time with
its `end`. Rows of one `kind` and `id` replace each other.
"""

import datetime as dt
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

Kind = Literal["call", "relist", "pleg_event", "sync_pass", "step", "finding", "node_event", "exit"]


@dataclass(slots=True)
class Row:
    """`fields` is the object exactly as REST and replay JSON show it (docs/rest.md); `start`, `end` are Unix ns."""

    kind: Kind
    id: str
    start: int
    end: int | None
    fields: dict[str, Any]


class Live(Protocol):
    """The running (or replayed) tracer as the API and the metrics see it; any thread may call any method."""

    def now(self) -> int:
        """Unix ns: the wall clock, or the end of the capture when it is a replay."""
        ...

    def pleg(self) -> dict[str, Any]:
        """PLEG health now, the fields of `GET /api/v1/pleg`."""
        ...

    def findings(self) -> list[dict[str, Any]]:
        """Findings that hold now, the fields of `GET /api/v1/findings/{id}`."""
        ...

    def open_calls(self) -> list[tuple[str | None, str, str, int]]:
        """(service, method or "unknown", client role, start in Unix ns) of every call that has not ended."""
        ...

    def health(self) -> dict[str, Any]:
        """What is traced, what attached, what was lost: the fields of `GET /healthz`."""
        ...

    def counters(self) -> dict[str, int]:
        """Every stage's counters by name, e.g. {"streams.gaps": 0, "kernel.lost": 0}; only ever growing."""
        ...


def rfc3339(unix_ns: int) -> str:
    """RFC 3339 with nanoseconds in UTC: `1796069927930080560` -> `2026-11-30T21:58:47.930080560Z`."""
    seconds, ns = divmod(unix_ns, 1_000_000_000)
    return f"{_second(seconds)}.{ns:09d}Z"


def unix_ns(text: str) -> int:
    """Unix ns of RFC 3339 with any zone and up to nine digits of a second. Raises ValueError."""
    whole, dot, rest = text.partition(".")
    digits = rest[: next((at for at, char in enumerate(rest) if not char.isdigit()), len(rest))]
    moment = dt.datetime.fromisoformat(whole + rest[len(digits) :] if dot else text)
    if moment.tzinfo is None:
        raise ValueError(f"{text}: no zone")
    return int(moment.timestamp()) * 1_000_000_000 + int(digits[:9].ljust(9, "0"))


@lru_cache(maxsize=256)
def _second(unix: int) -> str:
    return f"{dt.datetime.fromtimestamp(unix, dt.UTC):%Y-%m-%dT%H:%M:%S}"
