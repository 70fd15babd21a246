"""On an old connection a method is only an entry of the header table: what its answers prove holds for its requests."""

from cri_api.v1 import api_pb2 as v1

from tests.unit.conversation import Conversation
from tests.unit.decode import calls as decoded
from tests.unit.redact.canary import CONTAINER, IMAGE, LABELS, RUNTIME, SANDBOX, SECRETS, joined, leaks, redacted
from tracer.records import Data

IMAGES = [v1.Image(id=f"sha256:{number:064x}", size=7, repo_tags=[f"app:{number}"]) for number in (1, 2)]
STATUS = IMAGE + "ImageStatus"
ASK = v1.ImageStatusRequest(image=v1.ImageSpec(image="registry/app:1")).SerializeToString()
TELL = v1.ImageStatusResponse(image=IMAGES[0], info={"a": SECRETS["info"]}).SerializeToString()
TELL_ONE = v1.ImageStatusResponse(image=IMAGES[0]).SerializeToString()
EXEC = v1.ExecSyncRequest(container_id=CONTAINER, cmd=[SECRETS["cmd"]]).SerializeToString()
LIST = v1.ListContainersResponse(
    containers=[
        v1.Container(
            id=CONTAINER,
            pod_sandbox_id=SANDBOX,
            metadata=v1.ContainerMetadata(name="app"),
            labels={**LABELS, "io.kubernetes.container.name": "app"},
        )
    ]
).SerializeToString()


def late(*paths: str) -> tuple[Conversation, int]:
    """A conversation that has named its methods already."""
    talk = Conversation().open()
    for path in paths:
        talk.call(path)
    return talk, len(talk.records)


def asked(records) -> list[bytes]:
    return [r.data for r in records if isinstance(r, Data) and r.side == "client" and r.direction == "send"]


def test_a_request_follows_what_the_answers_before_it_proved():
    talk, since = late(STATUS)
    for _ in range(3):
        talk.call(STATUS, ASK, TELL)
    first, second, third = asked(redacted(joined(talk.records, since)))
    assert b"registry/app:1" not in first
    assert b"registry/app:1" in second
    assert b"registry/app:1" in third
    assert not leaks(redacted(joined(talk.records, since)))
    assert {call.path for call in decoded(joined(talk.records, since))} == {None}


def test_an_answer_that_may_be_another_proves_nothing_for_requests():
    """An image's status is on the wire what a list of one image is."""
    talk, since = late(STATUS)
    for _ in range(3):
        talk.call(STATUS, ASK, TELL_ONE)
    assert not any(b"registry" in data for data in asked(redacted(joined(talk.records, since))))


def test_a_request_that_does_not_fit_takes_the_name_back():
    """Were an entry taken for another method's, a command line would be shown by the wrong schema."""
    talk, since = late(STATUS)
    talk.call(STATUS, ASK, TELL)
    talk.call(STATUS, EXEC, TELL_ONE)
    talk.call(STATUS, ASK, TELL_ONE)
    out = redacted(joined(talk.records, since))
    assert not leaks(out)
    assert b"registry" not in asked(out)[2]


def test_entries_of_the_same_place_that_prove_two_methods_are_no_names():
    """A client that writes :authority before :path has one entry there for all methods."""
    talk = Conversation().open()

    def call(path: str, message: bytes, answer: bytes) -> None:
        talk.stream += 2
        fields = talk.request_fields(path)
        fields[2], fields[3] = fields[3], fields[2]
        block = talk.headers(talk.stream, talk.client.encode(fields))
        talk.write(
            "client", block + talk.data(talk.stream, b"\x00" + len(message).to_bytes(4, "big") + message, end=True)
        )
        talk.respond(talk.stream, answer)

    listed = RUNTIME + "ListContainers"
    call(STATUS, b"", b"")
    call(listed, b"", b"")
    since = len(talk.records)
    call(STATUS, ASK, TELL)
    call(listed, b"", LIST)
    call(STATUS, ASK, TELL)
    out = asked(redacted(joined(talk.records, since)))
    assert not any(b"registry" in data for data in out)


def test_names_of_another_connection_mean_nothing_here():
    first, since = late(STATUS)
    first.call(STATUS, ASK, TELL)
    first.call(STATUS, ASK, TELL)
    other = Conversation(connection="c2", time=first.time).open()
    other.call(STATUS)
    begin = len(other.records)
    other.call(STATUS, ASK, TELL)
    out = redacted(joined(first.records, since) + joined(other.records, begin))
    assert [b"registry" in data for data in asked(out)] == [False, True, False]
