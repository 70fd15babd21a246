"""The flight recorder over REST: list, freeze, download."""

import contextlib
import time

import pytest
from starlette.testclient import TestClient

from tests.unit.replayed import DATA, replayed
from tracer.agent import Replayed
from tracer.api import models
from tracer.api.app import create_app
from tracer.capture import CaptureFile
from tracer.flight import FlightRecorder
from tracer.outputs.hub import Hub
from tracer.outputs.usage import Usage
from tracer.pipeline import Pipeline
from tracer.replay import Result, replay
from tracer.store import Store


@pytest.fixture
def client(tmp_path):
    with Store(None) as store, contextlib.ExitStack() as stack:
        recorder = FlightRecorder(tmp_path / "flight", lambda: 0)
        stack.callback(recorder.close)
        with contextlib.closing(CaptureFile(DATA / "k120.jsonl.gz")) as capture:
            recorder.feed(list(capture.records()))
        app = create_app(
            store, Replayed(Pipeline(0), "k120"), lambda _: (b"", ""), Usage(), Hub(), recorder, version="1",
            hosts=frozenset(),
        )  # fmt: skip
        yield stack.enter_context(TestClient(app, raise_server_exceptions=False))


def test_what_is_frozen_is_listed_and_downloads_as_one_capture(client, tmp_path):
    assert client.get("/api/v1/recordings").json() == {"items": []}
    made = client.post("/api/v1/recordings", json={"reason": "a look"})
    assert made.status_code == 202
    models.Recording.model_validate(made.json())
    due = time.monotonic() + 20
    while not (kept := client.get("/api/v1/recordings").json()["items"]):  # the recorder's own thread makes it
        assert time.monotonic() < due
        time.sleep(0.05)
    (listed,) = kept
    assert (listed["id"], listed["reasons"]) == (made.json()["id"], ["a look"])
    answer = client.get(f"/api/v1/recordings/{listed['id']}")
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    file = tmp_path / "got.jsonl.gz"
    file.write_bytes(answer.content)
    result = Result()
    pipeline, damage = replay(CaptureFile(file), result.feed, lambda _: None)
    assert damage is None
    seen = result.object("got", pipeline)
    assert [call["id"] for call in seen["calls"]] == [call["id"] for call in replayed("k120")["calls"]]


@pytest.mark.parametrize("name", ["none", "..%2f..%2fetc%2fpasswd", "20260101T000000.000Z"])
def test_a_recording_that_is_not_there_is_a_404_whatever_its_name(client, name):
    assert client.get(f"/api/v1/recordings/{name}").status_code == 404


def test_another_sites_page_cannot_freeze(client):
    """Without preflight a page can only send text, forms and multipart: none of them is JSON."""
    answer = client.post("/api/v1/recordings", content='{"reason": "x"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert client.get("/api/v1/recordings").json() == {"items": []}


def test_without_a_recorder_it_says_why(served):
    answer = served[0].get("/api/v1/recordings")
    assert answer.status_code == 404
    assert "--no-flight" in answer.json()["detail"]
