"""Redaction of one message: same length, still the same kind of message, and every secret field of it overwritten."""

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from tests.fuzz.mutation import Change, remade
from tests.fuzz.samples import messages
from tests.fuzz.taps import Taps
from tests.unit.redact.canary import calls
from tracer.protocol import api_pb2
from tracer.redact.content import Contents
from tracer.redact.schema import KNOWN_ANNOTATIONS, SECRET_FIELDS
from tracer.streams import Way

METHODS = [
    (f"/{service.full_name}/{method.name}", method)
    for service in api_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
_GROUP = 3
WAYS: tuple[Way, Way] = ("request", "response")


def run(data: bytes) -> None:
    taps = Taps(data)
    path, method = METHODS[taps.byte() % len(METHODS)]
    mode = taps.byte()
    way = WAYS[mode & 1]
    body = taps.rest()
    contents = Contents()
    clean = contents.clean(path, way, body)
    assert len(clean) == len(body)
    assert len(contents.guess(body)) == len(body)
    proven, plan = contents.prove(way, body)
    assert len(proven) == len(body)
    assert plan is None or proven == contents.follow(plan, body)
    kind = getattr(api_pb2, (method.input_type if way == "request" else method.output_type).name)
    try:
        before = kind.FromString(body)
    except DecodeError:
        return
    if _grouped(before):
        return  # covered from the group on: nobody writes those any more
    after = kind.FromString(clean)
    _covered(after, before)
    assert contents.clean(path, way, clean) == clean, "not the same when done again"


def _grouped(message: Any) -> bool:
    """Whether a group of proto2 is in it."""
    if any(each.wire_type == _GROUP for each in UnknownFieldSet(message)):
        return True
    for member, value in message.ListFields():
        nested = member.message_type is not None and not member.message_type.GetOptions().map_entry
        if nested and any(map(_grouped, value if member.is_repeated else [value])):
            return True
    return False


def _covered(message: Any, before: Any) -> None:
    for member, value in message.ListFields():
        was = getattr(before, member.name)
        if member.message_type is not None and member.message_type.GetOptions().map_entry:
            secret = member.name in ("annotations", "info")
            known = KNOWN_ANNOTATIONS if member.name == "annotations" else frozenset()
            for key, each in value.items():
                if secret and key.encode() not in known:
                    assert not each.strip("x"), f"{member.full_name} {key}"
        elif f"{message.DESCRIPTOR.name}.{member.name}" in SECRET_FIELDS:
            pieces = value if member.is_repeated else [value]
            assert all(not each.strip(b"x" if isinstance(each, bytes) else "x") for each in pieces), member.full_name
        elif member.message_type is not None:
            pairs = zip(value, was, strict=True) if member.is_repeated else [(value, was)]
            for inner, outer in pairs:
                _covered(inner, outer)
        elif member.type not in (member.TYPE_STRING, member.TYPE_BYTES):
            # Numbers are kept, unless a message stops being one before its end.
            assert type(value) is type(was)


def mutate(data: bytes, size: int, seed: int, change: Change | None = None) -> bytes:
    chance = random.Random(seed)
    head, body = data[:2].ljust(2, b"\0"), data[2:]
    if chance.random() < 0.1:
        head = bytes([chance.randrange(len(METHODS)), chance.randrange(2)])
    for _ in range(chance.choice((1, 1, 2, 4))):
        body = remade(body, chance, change)
    return (head + body)[:size]


def seeds() -> Iterator[bytes]:
    places = {path: number for number, (path, _) in enumerate(METHODS)}
    for path, way, data in messages():
        place = places.get(path.replace("v1alpha2", "v1"))
        if place is not None:
            yield bytes([place, WAYS.index(way)]) + data
    for path, pair in calls().items():
        for number, data in enumerate(pair):
            yield bytes([places[path], number]) + data
