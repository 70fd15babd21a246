"""OTLP collectors over gRPC and over HTTP, made of OpenTelemetry's own schema; they keep what they get."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass
class Collector:
    """`refuse`: exports that are still refused; `wait`: seconds each takes to answer."""

    url: str = ""
    traces: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    refuse: int = 0
    slow: threading.Event | None = None

    def take(self, into: list[Any], request: Any) -> bool:
        if self.slow is not None:
            self.slow.wait(20)
        if self.refuse:
            self.refuse -= 1
            return False
        into.append(request)
        return True

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resources(self) -> list[dict[str, Any]]:
        return [plain(resource.resource.attributes) for request in self.traces for resource in request.resource_spans]

    def families(self) -> dict[str, Any]:
        """Metrics of the last export by name."""
        return {
            metric.name: metric
            for resource in self.metrics[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextlib.contextmanager
def grpc_collector(port: int = 0) -> Iterator[Collector]:
    collector = Collector()

    def answer(into, request, context, kind):
        if not collector.take(into, request):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not today")
        return kind()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):
            return answer(collector.traces, request, context, trace_service_pb2.ExportTraceServiceResponse)

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request, context):
            return answer(collector.metrics, request, context, metrics_service_pb2.ExportMetricsServiceResponse)

    server = grpc.server(futures.ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    collector.url = f"grpc://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def http_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                kind, into = trace_service_pb2.ExportTraceServiceRequest, collector.traces
            else:
                assert self.path == "/v1/metrics"
                kind, into = metrics_service_pb2.ExportMetricsServiceRequest, collector.metrics
            self.send_response(200 if collector.take(into, kind.FromString(body)) else 400)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
