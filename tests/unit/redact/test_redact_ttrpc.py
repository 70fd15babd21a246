"""Shims' and event sockets: ids, process ids, exit codes and times stay; paths, specs and texts go."""

import dataclasses
import random
import struct

import pytest
from cri_api.v1 import api_pb2 as v1
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.conversation import Conversation
from tests.unit.redact.canary import CONTAINER, SECRETS, leaks, redacted
from tests.unit.redact.test_redact_content import field
from tracer.paths import is_ttrpc
from tracer.records import Data

EXEC_ID = "e8" * 32
SHIM = "/run/containerd/s/" + "0f" * 32
SPEC = b'{"env":["TOKEN=' + SECRETS["env"].encode() + b'"],"args":["' + SECRETS["args"].encode() + b'"]}'


def ttrpc(stream, kind, body, flags=0):
    return struct.pack(">IIBB", len(body), stream, kind, flags) + body


def ask(stream, method, payload, service=b"containerd.task.v2.Task"):
    namespace = field(5, field(1, b"containerd-namespace-ttrpc") + field(2, b"k8s.io"))
    return ttrpc(stream, 1, field(1, service) + field(2, method) + field(3, payload) + b"\x20\x80\x01" + namespace)


EXEC = (
    field(1, CONTAINER.encode())
    + field(2, EXEC_ID.encode())
    + field(5, b"/run/" + SECRETS["stdout"].encode())
    + field(8, field(1, b"types.containerd.io/opencontainers/runtime-spec/1/Process") + field(2, SPEC))
)
EXITED = field(1, CONTAINER.encode()) + field(2, EXEC_ID.encode()) + b"\x18\x2a\x20\x89\x01" + field(5, b"\x08\x96\x01")
EVENT = field(
    1,
    field(1, b"\x08\x98\xc3\xb7\xd8\x06")
    + field(2, b"k8s.io")
    + field(3, b"/tasks/exit")
    + field(4, field(1, b"containerd.events.TaskExit") + field(2, EXITED)),
)


def conversation(path=SHIM):
    talk = Conversation(path=path)
    talk.write("client", ask(1, b"Exec", EXEC))
    talk.write("server", ttrpc(1, 2, b""))
    talk.write("client", ask(3, b"Wait", field(1, CONTAINER.encode())) + ask(5, b"State", field(1, CONTAINER.encode())))
    state = field(1, CONTAINER.encode()) + field(2, b"/run/" + SECRETS["cmd"].encode()) + b"\x18\x2a\x20\x02"
    talk.write("server", ttrpc(5, 2, field(2, state)))
    talk.write("server", ttrpc(3, 2, field(2, b"\x08\x89\x01" + field(2, b"\x08\x96\x01"))))
    failed = field(1, b"\x08\x02" + field(2, b"exec failed: " + SECRETS["message"].encode()))
    talk.write("server", ttrpc(7, 2, failed))
    talk.write("client", ask(9, b"Forward", EVENT, b"containerd.services.events.ttrpc.v1.Events"))
    talk.write("client", ttrpc(9, 3, field(1, SECRETS["stderr"].encode()), 1))
    return talk


def sent(records, side="client"):
    return b"".join(r.data for r in records if r.direction == "send" and r.side == side)


@pytest.mark.parametrize(
    ("path", "spoken"),
    [
        (SHIM, True),
        ("/run/containerd/containerd.sock.ttrpc", True),
        ("/run/k3s/containerd/s/abc", True),
        ("@/containerd-shim/k8s.io/1/shim.sock", True),
        ("/run/containerd/containerd.sock", False),
        ("/var/run/crio/crio.sock", False),
        ("", False),
    ],
)
def test_the_path_says_where_ttrpc_is_spoken(path, spoken):
    assert is_ttrpc(path) is spoken


def test_no_secret_of_a_shim_is_written():
    assert set(leaks(conversation().records)) >= {SECRETS[name] for name in ("env", "args", "cmd", "message", "stderr")}
    assert not leaks(redacted(conversation().records))


def test_what_a_step_is_made_of_stays():
    found = redacted(conversation().records)
    asked, answered = sent(found), sent(found, "server")
    for text in (b"containerd.task.v2.Task", b"Exec", b"Forward", b"containerd.events.TaskExit", EXEC_ID.encode()):
        assert text in asked
    assert EXITED in asked
    assert b"\x18\x2a\x20\x02" in answered
    assert b"\x08\x89\x01\x12\x03\x08\x96\x01" in answered
    assert CONTAINER.encode() in answered
    assert b"\x08\x02\x12" in answered


def test_heads_and_lengths_stay():
    for before, after in zip(conversation().records, redacted(conversation().records), strict=True):
        if before.direction == "send":
            assert len(after.data) == len(before.data)
            assert after.data[:10] == before.data[:10]


def cut(records, sizes):
    out = []
    for record in records:
        at = 0
        while at < record.length:
            size = min(next(sizes, 1 << 20), record.length - at)
            out.append(
                dataclasses.replace(record, offset=record.offset + at, length=size, data=record.data[at : at + size])
            )
            at += size
    return out


@given(st.lists(st.integers(1, 90), max_size=200))
def test_any_split_gives_the_same(sizes):
    records = [r for r in conversation().records if r.direction == "send"]
    found = redacted(cut(records, iter(sizes)))
    assert sent(found) == sent(redacted(records))
    assert sent(found, "server") == sent(redacted(records), "server")


@settings(deadline=None)
@given(st.integers(0, 1 << 32))
def test_no_loss_or_late_start_shows_a_secret(seed):
    chance = random.Random(seed)
    records = cut(conversation().records * 3, iter(lambda: chance.choice([3, 20, 200, 9000]), 0))
    offsets: dict[tuple[str, str], int] = {}
    for number, record in enumerate(records):
        key = (record.side, record.direction)
        record.offset = offsets.get(key, 0)
        offsets[key] = record.offset + record.length
        record.time = number
    kept = [r for r in records[chance.randrange(20) :] if chance.random() > 0.15]
    found = redacted(kept)
    assert not leaks(found)
    assert len(found) == len(kept)


def test_after_a_gap_the_next_write_is_understood_again():
    talk = conversation()
    talk.records[0].data = talk.records[0].data[:30]
    del talk.records[1]
    found = redacted(talk.records)
    assert found[0].data == talk.records[0].data[:10] + b"x" * 20
    assert b"containerd.events.TaskExit" in sent(found)
    assert not leaks(found)


def test_a_socket_of_ttrpc_that_carries_something_else_is_overwritten():
    talk = Conversation(path=SHIM)
    for text in (b"plain text\n", bytes(40), SPEC, v1.VersionRequest(version=SECRETS["info"]).SerializeToString()):
        talk.write("client", text)
    found = redacted(talk.records)
    assert {bytes(set(r.data)) for r in found if isinstance(r, Data) and r.direction == "send"} <= {b"x", b""}


def test_a_head_that_cannot_be_one_is_not_believed():
    talk = Conversation(path=SHIM)
    talk.write("client", struct.pack(">IIBB", 5 << 20, 1, 1, 0) + SPEC)
    talk.write("client", struct.pack(">IIBB", 10, 1, 2, 0) + SPEC)
    talk.write("client", struct.pack(">IIBB", 10, 0, 1, 0) + SPEC)
    talk.write("client", struct.pack(">IIBB", 10, 1, 1, 8) + SPEC)
    talk.write("client", ask(1, b"Exec", EXEC))
    found = redacted(talk.records)
    assert all(set(r.data) == {ord("x")} for r in found[:8:2])
    assert CONTAINER.encode() in found[8].data


def test_a_gap_longer_than_its_message_ends_with_the_next_write():
    talk = conversation()
    kept = [talk.records[0], *talk.records[4:]]
    kept[0].data = kept[0].data[:30]
    found = redacted(kept)
    assert found[0].data[10:] == b"x" * 20
    assert b"containerd.events.TaskExit" in sent(found)
    assert not leaks(found)


def test_the_topic_of_an_event_stays_and_only_that_of_one():
    for topic, kept in ((b"/tasks/exit", True), (b"/tasks/exit-" + SECRETS["env"].encode(), False), (b"token", False)):
        talk = Conversation(path=SHIM)
        event = field(1, b"\x08\x98\xc3\xb7\xd8\x06") + field(2, b"k8s.io") + field(3, topic)
        talk.write("client", ask(9, b"Forward", field(1, event), b"containerd.services.events.ttrpc.v1.Events"))
        assert (topic in sent(redacted(talk.records))) is kept


def test_of_a_read_the_head_stays_by_which_its_reader_is_placed():
    talk = Conversation(path=SHIM)
    message = ask(1, b"Exec", EXEC)
    talk.write("client", message)
    (read,) = [each for each in redacted(talk.records) if isinstance(each, Data) and each.direction == "recv"]
    assert read.data == message[:10] + b"x" * (len(message) - 10)


def test_of_a_read_that_begins_with_no_head_that_was_sent_nothing_stays():
    talk = Conversation(path=SHIM)
    message = ask(1, b"Exec", EXEC)
    talk.write("client", message, read=False)
    talk.read("server", message[:20])
    talk.read("server", message[20:])
    reads = [each.data for each in redacted(talk.records) if isinstance(each, Data) and each.direction == "recv"]
    assert reads == [message[:10] + b"x" * 10, b""]
