"""Times in a query that no row can have."""

import pytest

from tracer.api.moments import EARLIEST, LATEST, moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9999999999", LATEST),
        ("2300-01-01T00:00:00Z", LATEST),
        ("9999-12-31T23:59:59-23:59", LATEST),
        ("999999d", EARLIEST),
        ("0001-01-01T00:00:00+23:59", EARLIEST),
    ],
)
def test_a_time_beyond_what_rows_can_have_is_the_nearest_they_can(text, expected):
    assert moment(text, 10**18) == expected


def test_a_far_future_is_a_window_like_any_other(get):
    everything = get("/api/v1/calls", limit=1000)["items"]
    assert get("/api/v1/calls", since="9999999999") == {"items": [], "next": None}
    assert get("/api/v1/calls", until="2300-01-01T00:00:00Z", limit=1000)["items"] == everything
