"""Secrets in header fields: errors that repeat a command, metadata that nobody knows."""

import pytest
from cri_api.v1 import api_pb2 as v1

from tests.unit.conversation import Conversation, HeadersFrame
from tests.unit.decode import calls as decoded
from tests.unit.redact.canary import joined
from tracer.headers import Headers, HeaderStats
from tracer.redact import Redactor

EXEC = "/runtime.v1.RuntimeService/ExecSync"
RUN = "/runtime.v1.RuntimeService/RunPodSandbox"
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


LATE = [
    pytest.param({"x_session": "hunter2-in-a-token"}, id="metadata"),
    pytest.param({"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}, id="trace"),
]


@pytest.mark.parametrize("extra", LATE)
def test_metadata_whose_name_is_an_older_entry_is_overwritten_unless_its_form_is_harmless(extra):
    """The name was sent before the recording began; a new value follows with each call."""
    talk = Conversation().open()
    talk.call(STOP, **dict.fromkeys(extra, "first"))
    since = len(talk.records)
    talk.call(STOP, timeout="7m", **extra)
    talk.records = joined(talk.records, since)
    (before,), (after,) = decoded(talk.records), decoded(recorded(talk))
    assert after.trace == before.trace
    assert (after.deadline_ns, after.status) == (before.deadline_ns, before.status)
    values = [value.encode() for value in extra.values()]
    shown = Headers(HeaderStats(), whole=False).decode(recorded(talk)[0].data[9 : 9 + recorded(talk)[0].data[2]])
    assert any(value in values for _, value in shown.fields) is ("traceparent" in extra)


@pytest.mark.parametrize(
    ("method", "text", "stays"),
    [(EXEC, "command sh hunter2 failed", False), (RUN, "failed to reserve name", True), (RUN, "token=hunter2", False)],
)
def test_an_error_on_an_old_connection_is_overwritten_when_it_may_be_an_execs(method, text, stays):
    """Its field's name is an older entry, its method too; a request can prove that it is no exec's."""
    labels = {f"io.kubernetes.pod.{name}": name for name in ("name", "namespace", "uid")}
    metadata = v1.PodSandboxMetadata(name="name", namespace="namespace", uid="uid")
    run = v1.RunPodSandboxRequest(config=v1.PodSandboxConfig(metadata=metadata, labels=labels))
    request = (run if method == RUN else v1.ExecSyncRequest(container_id="c", cmd=["hunter2"])).SerializeToString()
    talk = Conversation().open()
    talk.respond(talk.request(method, request), b"", 2, "the first error names the field")
    since = len(talk.records)
    talk.respond(talk.request(method, request), b"", 3, text)
    talk.records = joined(talk.records, since)
    (before,), (after,) = decoded(talk.records), decoded(recorded(talk))
    assert before.error == text
    assert (before.path, after.path, after.status) == (None, None, "INVALID_ARGUMENT")
    assert (after.error == text) is stays
    assert stays or set(after.error) == {"X"}


def test_a_block_that_begins_like_its_padding_is_overwritten_in_its_place():
    talk = Conversation().open()
    block = talk.client.encode([("authorization", "hunter2"), *talk.request_fields(STOP)])
    frame = HeadersFrame(1, data=block, pad_length=block[0], depends_on=0, stream_weight=15)
    frame.flags |= {"PADDED", "PRIORITY", "END_HEADERS", "END_STREAM"}
    talk.write("client", frame.serialize())
    talk.respond(1)
    (call,) = decoded(recorded(talk))
    assert call.path == STOP
    before, after = talk.records[6].data, recorded(talk)[6].data
    assert before != after
    assert before[:15] == after[:15]
