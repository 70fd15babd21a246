"""Asking a running criscope over its REST interface."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from tracer.errors import TracerError

ANSWER_SECONDS = 10

PIECE_BYTES = 1 << 16


def ask(url: str, path: str, **query: str) -> Any:
    """The JSON that `url` answers for `path`. Raises TracerError in a line that says what to do."""
    return json.loads(b"".join(download(url, path, **query)))


def download(url: str, path: str, **query: str) -> Iterator[bytes]:
    """The answer in pieces. Raises TracerError."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise TracerError(f"--url {url}: give http://ADDR:PORT of a running criscope")
    parameters = f"?{urllib.parse.urlencode(query)}" if query else ""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}{path}{parameters}", timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            while piece := answer.read(PIECE_BYTES):
                yield piece
    except urllib.error.HTTPError as error:
        raise TracerError(f"{url} answered {error.code}: {_detail(error)}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise TracerError(
            f"no criscope answers at {url} ({reason}); start `criscope run`, or name another with --url, --store or a "
            "capture"
        ) from error


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error).get("detail", error.reason))
    except (OSError, ValueError, AttributeError):
        return str(error.reason)
