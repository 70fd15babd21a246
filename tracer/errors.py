"""Errors of set-up and use. Bad input from the wire never raises: it becomes a counted `Gap` or `Malformed` item."""


class TracerError(Exception):
    """Base of every error this package raises; its text is one line that says what to do."""


class CaptureError(TracerError):
    """A capture file is not one, is damaged, or cannot be read; `path` names it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class KernelError(TracerError):
    """Loading or attaching a BPF program failed: `op` with `errno`; `log` is libbpf's and the verifier's text."""

    def __init__(self, op: str, errno: int, log: str = "") -> None:
        import os  # noqa: PLC0415  (only on the error path)

        reason = os.strerror(errno) if errno else "failed"
        tail = f": {log.strip().splitlines()[-1]}" if log.strip() else ""
        super().__init__(f"{op}: {reason}{tail}")
        self.op = op
        self.errno = errno
        self.log = log


class StoreError(TracerError):
    """The store cannot be opened or is of another program or a newer version."""


class FlightError(TracerError):
    """The flight recorder's directory cannot be had, or a recording asked for is not there."""
