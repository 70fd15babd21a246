"""The web page's files: read once, served from memory with an ETag, under a policy that allows nothing else."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tracer.api.problem import Problem

DIRECTORY: Final = Path(__file__).parent / "web"

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Also the kinds of files that are served; anything else in the directory is not."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: its own files and routes, nothing inline, no other host."""


@dataclass(frozen=True, slots=True)
class _Asset:
    body: bytes
    media_type: str
    etag: str


class Pages:
    """All files of `directory` by name; no path is ever built from a request."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._assets = {
            path.name: _asset(path) for path in sorted(directory.iterdir()) if path.is_file() and path.suffix in _TYPES
        }

    @property
    def names(self) -> list[str]:
        return list(self._assets)

    def answer(self, name: str, request: Request) -> Response:
        """The file, or 304 where the browser's copy is this version's. Raises Problem when there is no such file."""
        asset = self._assets.get(name)
        if asset is None:
            raise Problem(404, "no such file of the page; it begins at /")
        headers = {
            # Kept, but asked about each time: after an update no page runs with modules of two versions.
            "Cache-Control": "no-cache",
            "Content-Security-Policy": POLICY,
            "ETag": asset.etag,
        }
        if asset.etag in (
            each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")
        ):
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.media_type, headers=headers)


def _asset(path: Path) -> _Asset:
    body = path.read_bytes()
    return _Asset(body, _TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
