"""No piece of a planted secret reaches a recording, whatever is lost, cut or not understood."""

import dataclasses
import gzip
import json
import random
from base64 import b64encode

import pytest
from cri_api.v1 import api_pb2 as v1
from cri_api.v1alpha2 import api_pb2 as v1alpha2
from google.protobuf import any_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.conversation import Conversation, grpc
from tests.unit.decode import calls as decoded
from tests.unit.decode import facts
from tests.unit.redact.canary import (
    CONTAINER,
    IMAGE,
    LABELS,
    RUNTIME,
    SECRETS,
    UID,
    calls,
    conversation,
    joined,
    leaks,
    redacted,
    secret,
    written,
)
from tracer.records import Data


def sent(records, side="client"):
    return b"".join(r.data for r in records if isinstance(r, Data) and r.side == side and r.direction == "send")


def test_the_search_finds_what_is_not_redacted():
    missing = {name for name, text in SECRETS.items() if text not in leaks(conversation().records)}
    assert missing == {"unknown"}


def test_no_secret_of_any_cri_call_is_written(tmp_path):
    found = written(conversation().records, tmp_path / "c")
    assert not leaks(found)
    text = gzip.decompress((tmp_path / "c").read_bytes())
    for value in SECRETS.values():
        assert value.encode() not in text
        assert all(b64encode(b"." * shift + value.encode())[4:-4] not in text for shift in range(3))


def test_both_ends_are_written_alike():
    found = redacted(conversation().records)
    for sender, reader in zip(found[::2], found[1::2], strict=True):
        assert (sender.direction, reader.direction) == ("send", "recv")
        assert sender.data == reader.data
        assert sender.data


def test_what_is_no_secret_stays():
    found = redacted(conversation().records)
    stay = [UID.encode(), CONTAINER.encode(), b"registry/app:1", b"web-0", b"2026-11-30T20:42:58.339331600Z", b"TOKEN"]
    assert all(text in sent(found) for text in stay)
    assert b"restartCount\x12\x013" in sent(found)
    assert b"sha256:" + b"12" * 32 in sent(found, "server")


def test_every_message_still_parses_with_its_lengths():
    calls_before, calls_after = decoded(conversation().records), decoded(redacted(conversation().records))
    assert [facts(call) for call in calls_after] == [facts(call) for call in calls_before]
    request = v1.PullImageRequest.FromString(calls()[IMAGE + "PullImage"][0])
    talk = Conversation().open()
    talk.call(IMAGE + "PullImage", request.SerializeToString())
    safe = v1.PullImageRequest.FromString(sent(redacted(talk.records))[-request.ByteSize() :])
    assert safe.auth.password == "x" * len(request.auth.password)
    assert safe.image.image == request.image.image
    assert safe.sandbox_config.metadata == request.sandbox_config.metadata
    assert safe.sandbox_config.annotations["kubernetes.io/config.seen"].startswith("2026-")
    assert not leaks(redacted(talk.records))


def test_v1alpha2_is_redacted_alike():
    talk = Conversation().open()
    config = v1alpha2.ContainerConfig(
        envs=[v1alpha2.KeyValue(key="K", value=SECRETS["env"])],
        annotations={"a": SECRETS["annotation"]},
        command=[SECRETS["command"]],
    )
    request = v1alpha2.CreateContainerRequest(pod_sandbox_id="ab" * 32, config=config).SerializeToString()
    pull = v1alpha2.PullImageRequest(auth=v1alpha2.AuthConfig(password=SECRETS["password"])).SerializeToString()
    talk.call("/runtime.v1alpha2.RuntimeService/CreateContainer", request)
    talk.call("/runtime.v1alpha2.ImageService/PullImage", pull)
    found = redacted(talk.records)
    assert not leaks(found)
    assert b"ab" * 32 in sent(found)


def test_streamed_lists_are_redacted_like_lists():
    """KEP-5825's answers come in several messages."""
    answer = calls()[RUNTIME + "ListContainers"][1]
    talk = Conversation().open()
    stream = talk.request(RUNTIME + "StreamContainers")
    talk.write("server", talk.headers(stream, talk.server.encode([(":status", "200")])))
    for _ in range(3):
        talk.write("server", talk.data(stream, grpc(answer)))
    found = redacted(talk.records)
    assert not leaks(found)
    assert sent(found, "server").count(CONTAINER.encode()) == 6


def test_fields_newer_than_the_schema_are_overwritten():
    """An unknown text may be anything; numbers stay."""
    inner = b"\xfa\x01" + bytes([len(SECRETS["unknown"])]) + SECRETS["unknown"].encode() + b"\xf0\x01\x07"
    spec = v1.ImageSpec(image="i").SerializeToString() + inner
    request = b"\x0a" + bytes([len(spec)]) + spec + inner
    talk = Conversation().open()
    talk.call(IMAGE + "PullImage", request)
    found = redacted(talk.records)
    assert not leaks(found)
    assert sent(found).count(b"\xf0\x01\x07") == 2


@pytest.mark.parametrize("start", range(10))
def test_a_late_start_that_knows_no_method_shows_no_secret(start):
    """The connection is older than the recording: every method is only an index."""
    talk = conversation()
    late = joined(talk.records, 6 + 4 * len(calls()) + start)
    found = redacted(late)
    assert not leaks(found)
    paths = [call.path for call in decoded(late)]
    assert paths
    assert set(paths) == {None}


def test_a_late_start_keeps_the_lists_that_prove_what_they_are():
    talk = conversation()
    found = redacted(joined(talk.records, 6 + 4 * len(calls())))
    for path, kind in (
        ("ListContainers", v1.ListContainersResponse),
        ("ListPodSandbox", v1.ListPodSandboxResponse),
        ("ContainerStatus", v1.ContainerStatusResponse),
        ("PodSandboxStatus", v1.PodSandboxStatusResponse),
    ):
        before = kind.FromString(calls()[RUNTIME + path][1])
        assert before.SerializeToString(deterministic=True) == calls()[RUNTIME + path][1]
        length = before.ByteSize()
        answers = [
            kind.FromString(data[at : at + length])
            for data in [sent(found, "server")]
            for at in [data.find(b"\x00" + length.to_bytes(4, "big")) + 5]
        ]
        assert answers[0].SerializeToString()
        assert str(answers[0]).count("web-0") == str(before).count("web-0")


def test_keys_of_hexadecimal_digits_are_no_ids():
    """A late start keeps ids, which look like many a key: but not where values of variables stand."""
    keys = ["9c4f0e6b7a8d1c2b" * 4, "9c4f0e6b7a8d1c2b" * 2, "3d7f6c1e-1a2b-4c3d-8e4f-5a6b7c8d9e0f"]
    envs = [v1.KeyValue(key=f"KEY{i}", value=key) for i, key in enumerate(keys)]
    config = v1.ContainerConfig(
        envs=envs, command=keys, args=keys, annotations={"a": keys[0], "io.kubernetes.pod.note": keys[1]}
    )
    request = v1.CreateContainerRequest(pod_sandbox_id="ab" * 32, config=config).SerializeToString()
    pull = v1.PullImageRequest(auth=v1.AuthConfig(password=keys[0], registry_token=keys[2])).SerializeToString()
    talk = Conversation().open()
    for _ in range(2):
        talk.call(RUNTIME + "CreateContainer", request)
        talk.call(IMAGE + "PullImage", pull)
    found = redacted(joined(talk.records, -8))
    assert not leaks(found, keys)
    assert b"ab" * 32 in sent(found)


SPEC = json.dumps({"process": {"env": [f"TOKEN={SECRETS['env']}"], "args": ["sh", "-c", SECRETS["args"]]}})


def containerd_container() -> bytes:
    """`containerd.services.containers.v1.GetContainerResponse`, which cAdvisor asks for: it holds the OCI spec."""

    def field(number: int, data: bytes) -> bytes:
        length = len(data)
        size = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
        return bytes([number << 3 | 2]) + size + data

    labels = [field(2, field(1, key.encode()) + field(2, value.encode())) for key, value in LABELS.items()]
    spec = any_pb2.Any(type_url="types.containerd.io/opencontainers/runtime-spec/1/Spec", value=SPEC.encode())
    container = field(1, CONTAINER.encode()) + b"".join(labels) + field(2, field(1, b"note") + field(2, SPEC.encode()))
    return field(1, container + field(5, spec.SerializeToString()))


def test_an_answer_of_containerds_own_api_shows_ids_and_the_pod_and_no_more():
    talk = Conversation().open()
    path = "/containerd.services.containers.v1.Containers/Get"
    talk.call(path, b"\x0a\x40" + CONTAINER.encode(), containerd_container())
    found = redacted(talk.records)
    answer = sent(found, "server")
    assert not leaks(found)
    assert all(text in answer for text in (CONTAINER.encode(), UID.encode(), b"web-0", b"runtime-spec/1/Spec"))
    assert facts(decoded(found)[0]) == facts(decoded(talk.records)[0])


def test_volume_secrets_of_csi_calls_are_overwritten():
    publish = b"\x0a\x04vol1" + b"\x32\x2b\x0a\x05token\x12\x22" + secret("csi").encode() + b"xx"
    talk = Conversation(path="/var/lib/kubelet/plugins/csi/csi.sock").open()
    talk.call("/csi.v1.Node/NodePublishVolume", publish)
    assert not leaks(redacted(talk.records), [secret("csi")])


@pytest.mark.parametrize("fits", [True, False])
def test_compressed_messages_are_repacked_or_zeroed(fits):
    """A gzipped message keeps its length; one that cannot be repacked is zeroed and no longer called compressed."""
    request = calls()[IMAGE + "PullImage"][0]
    packed = gzip.compress(request) if fits else gzip.compress(request)[:-9] + b"\x00"
    talk = Conversation().open()
    stream = talk.stream = 1
    block = talk.client.encode([*talk.request_fields(IMAGE + "PullImage"), ("grpc-encoding", "gzip")])
    body = grpc(packed, compressed=True)
    talk.write("client", talk.headers(stream, block) + talk.data(stream, body, end=True))
    talk.respond(stream)
    found = redacted(talk.records)
    assert not leaks(found)
    call = decoded(found)[0]
    assert call.request.length == len(packed)
    if fits:
        safe = v1.PullImageRequest.FromString(call.request.data)
        assert safe.auth.password == "x" * len(SECRETS["password"])
        assert not leaks([dataclasses.replace(found[0], data=call.request.data)])
    else:
        assert call.request.data == bytes(len(packed))


def split(records, cuts):
    """The records cut at the given distances from each other, sends and receives alike, in time order."""
    out = []
    cuts = iter(cuts)
    for record in records:
        if not isinstance(record, Data) or record.data.startswith((b"PRI", b"\x00\x00\x06\x04")):
            out.append(record)
            continue
        at = 0
        while at < record.length:
            size = min(next(cuts, 1 << 20), record.length - at)
            out.append(
                dataclasses.replace(
                    record,
                    offset=record.offset + at,
                    length=size,
                    data=record.data[at : at + size],
                    time=record.time + at,
                )
            )
            at += size
    return out


def flows(records):
    found = {}
    for record in records:
        key = (record.connection, record.side, record.direction)
        found[key] = found.get(key, b"") + record.data
    return found


def test_one_byte_at_a_time_gives_the_same():
    talk = conversation()
    assert flows(redacted(split(talk.records, iter(lambda: 1, 0)))) == flows(redacted(talk.records))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=300))
def test_any_split_of_the_bytes_gives_the_same_redaction(sizes):
    talk = conversation()
    cut = redacted(split(talk.records, iter(sizes)))
    assert flows(cut) == flows(redacted(talk.records))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.floats(0, 0.3), st.booleans())
def test_no_loss_late_start_or_cut_shows_a_secret(seed, loss, late):
    """Records lost at random from both ends, payloads cut short, records swapped, the start missing."""
    chance = random.Random(seed)
    records = split(conversation().records, iter(lambda: chance.choice([1, 9, 60, 300, 5000]), 0))
    if late:
        records = joined(records, chance.randrange(len(records) // 2))
    kept = []
    for record in records:
        dice = chance.random()
        if dice < loss:
            continue
        if dice < loss * 1.3:
            record.data = record.data[: chance.randrange(len(record.data) + 1)]
        kept.append(record)
    for _ in range(int(loss * 20)):
        at = chance.randrange(len(kept) - 1)
        kept[at], kept[at + 1] = kept[at + 1], kept[at]
    found = redacted(kept)
    assert not leaks(found)
    assert [(r.time, r.offset, r.length) for r in found] == [(r.time, r.offset, r.length) for r in kept]
    assert all(len(safe.data) in (0, len(record.data)) for safe, record in zip(found, kept, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_damaged_bytes_never_raise(seed):
    """Bytes that no peer would send cost the stretch they spoil; every record still comes out."""
    chance = random.Random(seed)
    records = conversation().records
    for record in records:
        if record.direction == "send" and chance.random() < 0.2:
            data = bytearray(record.data)
            for _ in range(chance.choice([1, 1, 8])):
                data[chance.randrange(len(data))] = chance.randrange(256)
            record.data = bytes(data)
    found = redacted(records)
    assert len(found) == len(records)
    assert all(len(safe.data) in (0, len(record.data)) for safe, record in zip(found, records, strict=True))
