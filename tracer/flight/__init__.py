"""Flight recorder: the last minutes of redacted records on disk, kept for good when something goes wrong."""

from tracer.flight.recorder import FlightRecorder
from tracer.flight.recordings import Download, Frozen

__all__ = ["Download", "FlightRecorder", "Frozen"]
