"""Where to export to: the URL that `--otlp` takes."""

import urllib.parse
from dataclasses import dataclass

from tracer.errors import TracerError

DEFAULT_PORTS = {"grpc": 4317, "grpcs": 4317, "http": 4318, "https": 4318}
"""As collectors listen (OTLP specification, "OTLP/gRPC Default Port" and "OTLP/HTTP Default Port")."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`address`: of OTLP over gRPC "HOST:PORT"; over HTTP the base URL, below which `/v1/traces` lies."""

    url: str
    grpc: bool
    secure: bool
    address: str


def endpoint(url: str) -> Endpoint:
    """Raises TracerError when `url` is none that can be exported to."""
    if "@" in url:
        raise TracerError("--otlp: no password in the URL; OTEL_EXPORTER_OTLP_HEADERS takes it (docs/otlp.md)")
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urllib.parse.SplitResult("", "", "", "", ""), None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
        raise TracerError(f"--otlp {url}: give grpc://HOST:4317, grpcs://, http://HOST:4318 or https:// of a collector")
    grpc = parts.scheme.startswith("grpc")
    if grpc and parts.path.strip("/"):
        raise TracerError(f"--otlp {url}: over gRPC there is no path; give {parts.scheme}://{parts.netloc}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = f"{host}:{port or DEFAULT_PORTS[parts.scheme]}"
    if not grpc:
        address = f"{parts.scheme}://{address}{parts.path.rstrip('/')}"
    return Endpoint(url, grpc, parts.scheme in ("grpcs", "https"), address)
