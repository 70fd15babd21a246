"""Redaction: a recording holds the shape of every message, and none of the secrets in it (docs/capture-format.md)."""

from tracer.redact.redactor import Redactor, RedactStats

__all__ = ["RedactStats", "Redactor"]
