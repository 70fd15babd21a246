"""Bad input is a problem (RFC 9457) that says what to do, and never an error of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.api.moments import NS, moment


@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/api/v1/calls", {"limit": "0"}, 400, "limit"),
        ("/api/v1/calls", {"limit": "1001"}, 400, "limit"),
        ("/api/v1/calls", {"limit": "ten"}, 400, "limit"),
        ("/api/v1/calls", {"since": "yesterday"}, 400, "RFC 3339"),
        ("/api/v1/calls", {"since": "2026-13-01T00:00:00Z"}, 400, "RFC 3339"),
        ("/api/v1/calls", {"since": "1m", "until": "2m"}, 400, "later than until"),
        ("/api/v1/calls", {"min_duration": "-1"}, 400, "min_duration"),
        ("/api/v1/calls", {"min_duration": "nan"}, 400, "min_duration"),
        ("/api/v1/calls", {"colour": "red"}, 400, "colour: no such parameter"),
        ("/api/v1/calls", {"cursor": "nonsense"}, 400, "cursor"),
        ("/api/v1/relists", {"method": "Status"}, 400, "method: no such parameter"),
        ("/api/v1/pods", {"since": "1m"}, 400, "since: no such parameter"),
        ("/api/v1/calls/none", {}, 404, "no call has this id"),
        ("/api/v1/pods/default/none/timeline", {}, 404, "no pod default/none"),
        ("/api/v2/calls", {}, 404, "no such route"),
        ("/api/v1/../../etc/passwd", {}, 404, "no such route"),
    ],
)
def test_a_bad_request_is_explained(served, path, query, status, says):
    answer = served[0].get(path, params=query)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert says in body["detail"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(served, method):
    answer = served[0].request(method, "/api/v1/calls")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"
    assert "use GET" in answer.json()["detail"]


def test_a_cursor_of_other_filters_is_refused(served):
    cursor = served[0].get("/api/v1/calls", params={"limit": 1}).json()["next"]
    answer = served[0].get("/api/v1/calls", params={"limit": 1, "cursor": cursor, "method": "Status"})
    assert answer.status_code == 400
    assert "other filters" in answer.json()["detail"]


def test_a_foreign_host_is_refused(served):
    answer = served[0].get("/api/v1/calls", headers={"host": "evil.example:9559"})
    assert answer.status_code == 421
    assert "evil" not in answer.text


@pytest.mark.parametrize("path", ["/api/v1/calls", "/nowhere", "/docs", "/", "/assets/main.js", "/assets/none.js"])
def test_every_answer_forbids_what_it_does_not_need(served, path):
    headers = served[0].get(path).headers
    # Only the page's own files hold no word of the node, and may be kept while they are this version's.
    kept = path in {"/", "/assets/main.js"}
    assert headers["cache-control"] == ("no-cache" if kept else "no-store")
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


def test_an_error_of_ours_says_nothing_of_the_inside(served, monkeypatch):
    client, live, _ = served
    monkeypatch.setattr(live, "pleg", lambda: 1 / 0)
    answer = client.get("/api/v1/pleg")
    assert answer.status_code == 500
    assert answer.json()["detail"] == "criscope failed to answer; see its log"


NOW = 1_800_000_000 * NS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", NOW - 600 * NS),
        ("1h30m", NOW - 5400 * NS),
        ("1d", NOW - 86400 * NS),
        ("0.5s", NOW - NS // 2),
        ("1767225600", 1767225600 * NS),
        ("1767225600.25", 1767225600 * NS + NS // 4),
        ("2026-01-01T00:00:00Z", 1767225600 * NS),
        ("2026-01-01T00:00:00.000000001Z", 1767225600 * NS + 1),
        ("2026-01-01T01:00:00+01:00", 1767225600 * NS),
    ],
)
def test_times_are_read_to_the_nanosecond(text, expected):
    assert moment(text, NOW) == expected


@given(st.text(max_size=40))
def test_any_other_text_is_refused_and_never_fails(text):
    try:
        assert isinstance(moment(text, NOW), int)
    except ValueError as error:
        assert "a time" in str(error)
