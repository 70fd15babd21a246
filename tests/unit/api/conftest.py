"""The interface over the rows of a real capture."""

import contextlib

import pytest
from starlette.testclient import TestClient

from tests.unit.replayed import DATA
from tracer.agent import Replayed
from tracer.api.app import create_app
from tracer.capture import CaptureFile
from tracer.outputs.hub import Hub
from tracer.outputs.usage import Usage
from tracer.replay import replay
from tracer.store import Store


@pytest.fixture(scope="session")
def served():
    """(client, live) over `truth`."""
    with Store(None) as store, contextlib.ExitStack() as stack:
        usage = Usage()

        def feed(rows):
            store.feed(rows)
            usage.feed(rows)

        pipeline, _ = replay(CaptureFile(DATA / "truth.jsonl.gz"), feed, lambda _: None)
        assert store.flush()
        live = Replayed(pipeline, "truth")
        app = create_app(
            store,
            live,
            lambda _: (b"x 1\n", "text/plain"),
            usage,
            Hub(),
            None,
            version="1.2.3",
            hosts=frozenset({"testserver"}),
        )
        client = stack.enter_context(TestClient(app, raise_server_exceptions=False))
        yield client, live, app


@pytest.fixture
def get(served):
    """GET a path; the JSON, and the answer for more."""
    client = served[0]

    def fetch(path, expect=200, **query):
        answer = client.get(path, params=query)
        assert answer.status_code == expect, answer.text
        return answer.json()

    return fetch
