"""The HTTP server around the REST interface: takes its address first, serves last, gives it back in between."""

import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import uvicorn
from prometheus_client import CollectorRegistry

from tracer.api.app import create_app
from tracer.errors import TracerError
from tracer.flight import FlightRecorder
from tracer.outputs.hub import Hub
from tracer.outputs.prometheus import Metrics, exposition
from tracer.outputs.usage import Usage
from tracer.rows import Live, Row
from tracer.store import Store

log = logging.getLogger(__name__)

CONNECTIONS = 64
"""Requests under way at once; more get 503 at once. A page and a scraper need two or three."""

IDLE_SECONDS = 5
GRACE_SECONDS = 3
"""How long a request may still run when the server ends."""


class _Quiet(uvicorn.Server):
    """Ends on a signal without raising it again: what comes after serving must still be done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Server:
    """Binds `listen` ("ADDR:PORT") when made. Raises TracerError when that cannot be."""

    def __init__(self, listen: str) -> None:
        self._socket = _bind(listen)
        self.registry = CollectorRegistry()
        self._metrics = Metrics(self.registry)
        self._usage = Usage()
        self._hub = Hub()

    @property
    def url(self) -> str:
        address, port = self._socket.getsockname()[:2]
        return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"

    def feed(self, rows: Iterable[Row]) -> None:
        """Rows for the metrics, the usage, and whoever listens."""
        self._metrics.feed(rows)
        self._usage.feed(rows)
        self._hub.feed(rows)

    def serve(self, store: Store, live: Live, what: str, recorder: FlightRecorder | None = None) -> None:
        """Answer until SIGINT or SIGTERM."""
        self._metrics.watch(live, store.status)
        app = create_app(
            store,
            live,
            lambda accept: exposition(self.registry, accept),
            self._usage,
            self._hub,
            recorder,
            version=version("criscope"),
            hosts=self._hosts(),
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        log.info("%s; REST at %s", what, self.url)
        _Quiet(config).run(sockets=[self._socket])

    def close(self) -> None:
        self._socket.close()

    def _hosts(self) -> frozenset[str]:
        port = self._socket.getsockname()[1]
        names = ("localhost", "127.0.0.1", "[::1]", self._socket.getsockname()[0])
        return frozenset({*names, *(f"{name}:{port}" for name in names)})


def _bind(listen: str) -> socket.socket:
    address, colon, port = listen.rpartition(":")
    address = address.strip("[]") or "127.0.0.1"
    if not colon or not port.isdigit() or int(port) > 65535:
        raise TracerError(f"--listen {listen}: give ADDR:PORT, e.g. 127.0.0.1:9559")
    try:
        ip = ipaddress.ip_address("127.0.0.1" if address == "localhost" else address)
    except ValueError:
        raise TracerError(f"--listen {listen}: {address} is no IP address") from None
    if not ip.is_loopback:
        raise TracerError(
            f"--listen {listen}: only loopback addresses are served, as this version has neither TLS nor "
            "authentication; use 127.0.0.1 and a port forward"
        )
    taken = socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((str(ip), int(port)))
    except OSError as error:
        taken.close()
        raise TracerError(
            f"--listen {listen}: {error.strerror}; is another criscope running? Choose another port with --listen"
        ) from None
    return taken
