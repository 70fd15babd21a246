"""Usage: who calls the runtime, and what it costs: calls, time and bytes by client, activity, pod and method."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Literal

from tracer.outputs.recent import Recent
from tracer.rows import Row

By = Literal["client", "activity", "pod", "method"]

MINUTE_NS = 60_000_000_000

MINUTES = 60
"""How far back it is known."""

MAX_NAMES = 512
"""Clients, pods and methods told apart in a minute; a node has 110 pods, and what is beyond is `other`."""

OTHER = "other"


class _Cost:
    """`seconds`: time the calls were open, streams left out; `service`: of that what the server worked."""

    __slots__ = ("bytes", "calls", "failed", "seconds", "service")

    def __init__(self) -> None:
        self.calls = 0
        self.failed = 0
        self.seconds = 0.0
        self.service = 0.0
        self.bytes = 0


class Usage:
    """Tallies by minute. `feed` is for one thread; `shares` may be asked by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent = Recent()
        self._minutes: OrderedDict[int, dict[tuple[By, str], _Cost]] = OrderedDict()

    def feed(self, rows: Iterable[Row]) -> None:
        """Count the calls among `rows` that ended and were not counted yet, in the minute they ended."""
        with self._lock:
            for row in rows:
                if row.kind == "call" and row.end is not None and self._recent.add(row.id):
                    self._count(row.end // MINUTE_NS, row.fields)

    def _count(self, number: int, fields: dict[str, Any]) -> None:
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = {}
            while len(self._minutes) > MINUTES:
                self._minutes.popitem(last=False)
        client, pod = fields["client"], fields["pod"]
        names: tuple[tuple[By, str], ...] = (
            ("client", f"{client['comm'] or 'unknown'} ({client['pid']})"),
            ("activity", fields["activity"]["kind"]),
            ("pod", f"{pod['namespace']}/{pod['name']}" if pod else "no pod"),
            ("method", fields["method"] or "unknown"),
        )
        for key in names:
            cost = minute.get(key)
            if cost is None:
                if len(minute) >= MAX_NAMES:
                    key = (key[0], OTHER)  # noqa: PLW2901
                cost = minute.setdefault(key, _Cost())
            cost.calls += 1
            cost.failed += fields["status"] != "OK"
            cost.bytes += fields["request_bytes"] + fields["response_bytes"]
            if not fields["streaming"]:
                cost.seconds += fields["duration_seconds"] or 0.0
                cost.service += fields["service_seconds"] or 0.0

    def shares(self, by: By, since: int, until: int) -> list[dict[str, Any]]:
        """Items `{name, calls, failed, seconds, service_seconds, bytes, calls_share, ...}`, the costliest first.

        Of calls that ended in the minutes that `since` to `until` (Unix ns) touch; a share is 0 to 1 of all calls.
        """
        total, found = _Cost(), dict[str, _Cost]()
        with self._lock:
            for number, minute in self._minutes.items():
                if since // MINUTE_NS <= number <= until // MINUTE_NS:
                    for (kind, name), cost in minute.items():
                        if kind == by:
                            _add(found.setdefault(name, _Cost()), cost)
                            _add(total, cost)
        items = [
            {
                "name": name,
                "calls": cost.calls,
                "failed": cost.failed,
                "seconds": round(cost.seconds, 9),
                "service_seconds": round(cost.service, 9),
                "bytes": cost.bytes,
                "calls_share": _share(cost.calls, total.calls),
                "service_share": _share(cost.service, total.service),
                "bytes_share": _share(cost.bytes, total.bytes),
            }
            for name, cost in found.items()
        ]
        return sorted(items, key=lambda item: (-item["service_seconds"], -item["calls"], item["name"]))


def _add(into: _Cost, cost: _Cost) -> None:
    into.calls += cost.calls
    into.failed += cost.failed
    into.seconds += cost.seconds
    into.service += cost.service
    into.bytes += cost.bytes


def _share(part: float, whole: float) -> float:
    return round(part / whole, 6) if whole else 0.0
