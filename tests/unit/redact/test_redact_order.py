"""Lists in one order say the same, are the same bytes each time, and keep their secrets."""

import random

import pytest
from cri_api.v1 import api_pb2 as v1

from tests.unit.redact.canary import RUNTIME, SECRETS, UID
from tracer.redact.content import Contents
from tracer.redact.order import LEAST_BYTES, MOST_BYTES, ordered
from tracer.redact.schema import plan_of

SANDBOXES = plan_of(v1.ListPodSandboxResponse.DESCRIPTOR)
CONTAINERS = plan_of(v1.ListContainersResponse.DESCRIPTOR)


def labels(number):
    return {
        "io.kubernetes.pod.name": f"web-{number}",
        "io.kubernetes.pod.namespace": "shop",
        "io.kubernetes.pod.uid": UID,
        "io.kubernetes.container.name": "app",
    }


def sandbox(number):
    return v1.PodSandbox(
        id=f"{number:064x}",
        metadata=v1.PodSandboxMetadata(name=f"web-{number}", uid=UID, namespace="shop"),
        labels=labels(number),
        annotations={"note": SECRETS["annotation"], "kubernetes.io/config.source": "api"},
    )


def container(number):
    return v1.Container(
        id=f"{number:064x}",
        pod_sandbox_id=f"{number + 1000:064x}",
        metadata=v1.ContainerMetadata(name="app"),
        labels=labels(number),
        annotations={"note": SECRETS["annotation"]},
        state=v1.CONTAINER_RUNNING,
    )


def field(number, body):
    """A field of length `len(body)`."""
    length = len(body)
    varint = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([number << 3 | 2]) + varint + body


def shuffled(items, chance):
    """As a runtime writes them: maps and list in an order of the moment."""
    out = []
    for item in items:
        bare = type(item)()
        bare.CopyFrom(item)
        bare.ClearField("labels")
        bare.ClearField("annotations")
        places = {descriptor.name: descriptor.number for descriptor in item.DESCRIPTOR.fields}
        entries = [
            field(places[name], field(1, key.encode()) + field(2, value.encode()))
            for name in ("labels", "annotations")
            for key, value in getattr(item, name).items()
        ]
        chance.shuffle(entries)
        out.append(field(1, bare.SerializeToString() + b"".join(entries)))
    chance.shuffle(out)
    return b"".join(out)


CASES = [
    (SANDBOXES, v1.ListPodSandboxResponse, "items", [sandbox(number) for number in range(30)], "ListPodSandbox"),
    (
        CONTAINERS,
        v1.ListContainersResponse,
        "containers",
        [container(number) for number in range(30)],
        "ListContainers",
    ),
]


@pytest.mark.parametrize(("plan", "kind", "items", "all_", "_method"), CASES)
def test_a_list_in_any_order_becomes_the_same_bytes_that_say_the_same(plan, kind, items, all_, _method):
    chance = random.Random(3)
    bodies = {shuffled(all_, chance) for _ in range(8)}
    assert len(bodies) == 8
    (same,) = {ordered(plan, body) for body in bodies}
    assert sorted(getattr(kind.FromString(same), items), key=lambda item: item.id) == all_
    assert {len(body) for body in bodies} == {len(same)}


@pytest.mark.parametrize(("plan", "_kind", "_items", "all_", "method"), CASES)
def test_of_a_known_method_the_same_is_redacted_once_and_holds_no_secret(plan, _kind, _items, all_, method):
    chance, contents = random.Random(3), Contents(orderly=True)
    out = {contents.clean(RUNTIME + method, "response", shuffled(all_, chance)) for _ in range(8)}
    assert len(out) == 1
    assert contents.stats.known == 1
    assert SECRETS["annotation"].encode() not in out.pop()
    assert plan in {SANDBOXES, CONTAINERS}


@pytest.mark.parametrize(("plan", "kind", "items", "all_", "_method"), CASES)
def test_of_a_method_that_is_not_known_it_is_proven_once(plan, kind, items, all_, _method):
    chance, contents = random.Random(3), Contents(orderly=True)
    out = {contents.prove("response", shuffled(all_, chance)) for _ in range(8)}
    ((clean, proven),) = out
    assert proven is plan
    assert contents.stats.proven == 1
    assert SECRETS["annotation"].encode() not in clean
    assert [item.id for item in getattr(kind.FromString(clean), items)] == [item.id for item in all_]


def test_unless_asked_for_nothing_is_reordered():
    body = shuffled([sandbox(number) for number in range(30)], random.Random(3))
    clean = Contents().clean(RUNTIME + "ListPodSandbox", "response", body)
    assert [item.id for item in v1.ListPodSandboxResponse.FromString(clean).items] == [
        item.id for item in v1.ListPodSandboxResponse.FromString(body).items
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"\xff" * (LEAST_BYTES + 1),
        shuffled([sandbox(1)], random.Random(1)),
        # a state twice: the last one counts, so in order it would be shorter
        b"".join(field(1, sandbox(n).SerializeToString() + b"\x18\x01\x18\x00") for n in range(30, 0, -1)),
        # an id that is no text
        b"".join(field(1, b"\n\x02\xff\xfe" + sandbox(n).SerializeToString()) for n in range(30)),
    ],
)
def test_what_cannot_be_put_in_order_stays(body):
    assert ordered(SANDBOXES, body) is body


def test_a_list_that_is_too_long_stays():
    body = shuffled([sandbox(number) for number in range(MOST_BYTES // 300)], random.Random(1))
    assert len(body) > MOST_BYTES
    assert ordered(SANDBOXES, body) is body


def test_fields_newer_than_the_schema_are_overwritten_in_order_too():
    newer = field(15, SECRETS["unknown"].encode())
    body = b"".join(field(1, sandbox(n).SerializeToString() + newer) for n in range(30, 0, -1))
    clean = Contents(orderly=True).clean(RUNTIME + "ListPodSandbox", "response", body)
    assert len(clean) == len(body)
    assert SECRETS["unknown"].encode() not in clean
