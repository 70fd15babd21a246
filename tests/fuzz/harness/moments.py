"""API moments: any text is a time within the store's range or a ValueError, never anything else."""

from collections.abc import Iterator

from tests.fuzz.taps import Taps
from tracer.api.moments import EARLIEST, LATEST, moment


def run(data: bytes) -> None:
    taps = Taps(data)
    now = taps.number(8) >> 1
    text = taps.rest().decode("utf-8", "replace")
    try:
        found = moment(text, now)
    except ValueError:
        return
    assert type(found) is int
    assert EARLIEST <= found <= LATEST
    later = min(now + 10**9, LATEST)
    assert 0 <= moment(text, later) - found <= later - now, "neither a time nor how long ago"


def seeds() -> Iterator[bytes]:
    now = (1_796_069_927_930_080_560 << 1).to_bytes(8, "little")
    for text in (
        "90s", "10m", "1h30m", "1d2h3m4.5s", "1767225600", "1767225600.25", "2026-01-31T12:00:00Z", "0s",
        "2026-01-31t12:00:00.123456789+02:00", "2026-01-31 12:00:00-14:00", "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59", "999999d999999h99999999m9999999999.999999999s", "9999999999.999999999", "", "1w",
    ):  # fmt: skip
        yield now + text.encode()
