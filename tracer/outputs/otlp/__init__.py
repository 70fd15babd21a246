"""OTLP: relists, passes, calls and steps as spans, and the metrics, to an OpenTelemetry collector (docs/otlp.md)."""
