"""Secrets in header fields: errors that repeat a command, metadata that nobody knows."""

import pytest
from cri_api.v1 import api_pb2 as v1

from tests.unit.conversation import Conversation
from tests.unit.decode import calls as decoded
from tracer.redact import Redactor

EXEC = "/runtime.v1.RuntimeService/ExecSync"
STOP = "/runtime.v1.RuntimeService/StopContainer"


def recorded(talk):
    redactor = Redactor()
    out = [safe for record in talk.records for safe in redactor.feed(record)]
    return out + redactor.flush()


def failed(method, text, message=b""):
    talk = Conversation().open()
    talk.fail(talk.request(method, message), 2, text)
    (call,) = decoded(recorded(talk))
    return call


def test_an_execs_error_is_overwritten_and_its_status_stays():
    request = v1.ExecSyncRequest(container_id="c", cmd=["sh", "hunter2"]).SerializeToString()
    call = failed(EXEC, "command sh hunter2 failed", request)
    assert (call.path, call.status) == (EXEC, "UNKNOWN")
    assert set(call.error) == {"X"}


@pytest.mark.parametrize("text", ["name is reserved for 3a7e", "context deadline exceeded"])
def test_an_error_without_a_secret_stays(text):
    assert failed(STOP, text).error == text


@pytest.mark.parametrize(
    "text", ["pull https://user:hunter2@registry/x: 401", "bad token=hunter2", 'exec: "/bin/hunter2": not found']
)
def test_an_error_with_a_secret_is_overwritten(text):
    error = failed(STOP, text).error
    assert "hunter2" not in error
    assert set(error) <= {"X", "x"}


def test_metadata_that_is_not_grpcs_is_overwritten():
    talk = Conversation().open()
    talk.call(STOP, authorization="Bearer hunter2", traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    talk.call(STOP)
    first, second = decoded(recorded(talk))
    assert (first.path, first.trace, second.path) == (STOP, "a" * 32, STOP)
    assert not any(b"hunter2" in record.data for record in recorded(talk))


def test_what_was_overwritten_once_stays_so_when_it_is_referred_to():
    talk = Conversation().open()
    request = v1.ExecSyncRequest(container_id="c", cmd=["hunter2"]).SerializeToString()
    for _ in range(3):
        talk.fail(talk.request(EXEC, request), 2, "hunter2 failed")
    assert {frozenset(call.error) for call in decoded(recorded(talk))} == {frozenset("X")}
