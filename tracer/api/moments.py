"""Times as a reader writes them in a query: RFC 3339, Unix seconds, or how long ago."""

import datetime as dt
import re

NS = 1_000_000_000

EARLIEST, LATEST = 0, (1 << 63) - 1
"""Unix ns in which rows are kept (1970 to 2262); a time beyond is as good as the nearest of them."""

_AGO = re.compile(r"(?=.)(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,8})m)?(?:(\d{1,10}(?:\.\d{1,9})?)s)?")
_UNIX = re.compile(r"(\d{9,10})(?:\.(\d{1,9}))?")
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")

EXPECTED = "a time: RFC 3339 (2026-01-31T12:00:00Z), Unix seconds (1767225600), or how long ago (90s, 10m, 1h30m)"


def moment(text: str, now: int) -> int:
    """Unix ns of `text`, from EARLIEST to LATEST; how long ago counts from `now` (Unix ns). Raises ValueError.

    "1h30m" with now=10**18 -> 10**18 - 5400 * 10**9
    """
    return min(max(_written(text, now), EARLIEST), LATEST)


def _written(text: str, now: int) -> int:
    if ago := _AGO.fullmatch(text):
        days, hours, minutes = (int(part or 0) for part in ago.groups()[:3])
        seconds = float(ago[4] or 0)
        return now - ((days * 24 + hours) * 60 + minutes) * 60 * NS - round(seconds * NS)
    if unix := _UNIX.fullmatch(text):
        return int(unix[1]) * NS + _fraction(unix[2])
    if written := _RFC3339.fullmatch(text):
        # "+" in a query is a space: 12:00:00 01:00 never matches, so it is refused rather than misread.
        zone = "+00:00" if written[3] in "Zz" else written[3]
        try:
            whole = dt.datetime.fromisoformat(f"{written[1].replace(' ', 'T').upper()}{zone}")
        except ValueError:
            raise ValueError(EXPECTED) from None
        return int(whole.timestamp()) * NS + _fraction(written[2])
    raise ValueError(EXPECTED)


def _fraction(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))
