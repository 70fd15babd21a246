"""What the driver did, written down by the driver itself: one JSON object a line.

| `kind` | fields |
|---|---|
| `call` | `n, service, method, start, end, status, ended (ok/error/cancelled/deadline/connection/unsent), error, deadline_seconds, request_bytes, response_bytes, activity, activity_id, pod{namespace,name,uid}, sandbox_id, container_id, container, attempt, image` |
| `relist` | `id, scope (generic/pod), start, listed, end, outcome, sandboxes, containers, calls[n]` |
| `pleg_event` | `time, type, pod, pod_uid, id, relist` |
| `sync_pass` | `id, pod, pass, start, end, outcome, calls[n]` |

Times are CLOCK_MONOTONIC ns, as in the tracer's records. A call's line is written when it ended; fields that do not
apply are null.
"""  # noqa: E501

import itertools
import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Scope:
    """The work that calls are made for: an activity of the design's list, and the numbers of its calls so far."""

    activity: str
    id: int | None = None
    calls: list[int] = field(default_factory=list)


class Oracle:
    """The file; may be used from any thread."""

    def __init__(self, path: Path) -> None:
        # Line by line, so that a reader sees all there is and a killed driver loses nothing.
        self._file = path.open("w", buffering=1)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A number that no other call, relist or pass of this run has."""
        return next(self._numbers)

    def write(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **fields})
        with self._lock:
            self._file.write(f"{line}\n")


def read(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """All entries of one kind (or of all) in the order they were written; a line that is just written is left out."""
    entries = [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
    return [entry for entry in entries if kind in (None, entry["kind"])]
