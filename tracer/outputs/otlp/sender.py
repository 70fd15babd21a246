"""The sender: spans and metrics through OpenTelemetry's own exporters.

Only this module and numbers.py know that library. It takes 20 MB: both are imported only where an endpoint is given.
"""

import logging
import os
import socket
from collections.abc import Iterable
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData, ResourceMetrics
from opentelemetry.sdk.metrics.export import ScopeMetrics as OfScope
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from prometheus_client.core import Metric

from tracer.outputs.otlp.endpoint import Endpoint
from tracer.outputs.otlp.numbers import metrics
from tracer.outputs.otlp.spans import Span

EXPORT_SECONDS = 5.0
"""Of one export with the exporter's own retries: a collector is near, and what waits meanwhile is bounded."""

_KINDS = {"client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_LIBRARY = "opentelemetry"


class Refused(Exception):  # noqa: N818
    """The collector did not take it; the text says why."""


class Sender:
    """For one thread at a time, but for `close`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._heard = _Heard()
        self._spans: SpanExporter
        self._metrics: MetricExporter
        if endpoint.grpc:
            insecure = not endpoint.secure
            self._spans = GrpcSpans(endpoint.address, insecure=insecure, timeout=EXPORT_SECONDS)
            self._metrics = GrpcMetrics(endpoint.address, insecure=insecure, timeout=EXPORT_SECONDS)
        else:
            self._spans = HttpSpans(f"{endpoint.address}/v1/traces", timeout=EXPORT_SECONDS)
            self._metrics = HttpMetrics(f"{endpoint.address}/v1/metrics", timeout=EXPORT_SECONDS)
        self._resource = _resource()
        self._scope = InstrumentationScope("criscope", version("criscope"))

    def send_spans(self, spans: Iterable[Span]) -> None:
        """Raises Refused."""
        result = self._spans.export([self._span(span) for span in spans])
        if result is not SpanExportResult.SUCCESS:
            raise Refused(self._heard.last)

    def send_metrics(self, families: Iterable[Metric], start: int, now: int) -> None:
        """`start`: when counting began, Unix ns. Raises Refused."""
        scope = OfScope(self._scope, metrics(families, start, now), "")
        result = self._metrics.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))
        if result is not MetricExportResult.SUCCESS:
            raise Refused(self._heard.last)

    def close(self) -> None:
        """Ends an export that is under way, too."""
        self._spans.shutdown()
        self._metrics.shutdown()
        self._heard.close()

    def _span(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=SpanContext(span.trace, span.ident, is_remote=False, trace_flags=_SAMPLED),
            parent=None if span.parent is None else SpanContext(span.trace, span.parent, is_remote=span.remote),
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(event.name, event.attributes, event.time) for event in span.events],
            links=[Link(SpanContext(link.trace, link.span, is_remote=True)) for link in span.links],
            kind=_KINDS[span.kind],
            instrumentation_scope=self._scope,
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error or None),
            start_time=span.start,
            end_time=span.end,
        )


class _Heard(logging.Handler):
    """Why the exporters failed is only in what they log. We say it ourselves, once; they would repeat it for hours."""

    def __init__(self) -> None:
        super().__init__()
        self.last = "no reason told"
        self._logger = logging.getLogger(_LIBRARY)
        self._propagated = self._logger.propagate
        self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated
        super().close()


def _resource() -> Resource:
    """OTEL_RESOURCE_ATTRIBUTES adds to it, the cluster's name for instance."""
    attributes = {
        "service.name": "criscope",
        "service.version": version("criscope"),
        "host.name": socket.gethostname(),
    }
    if node := os.environ.get("NODE_NAME"):  # set by the DaemonSet
        attributes["k8s.node.name"] = node
    return Resource.create(attributes)
