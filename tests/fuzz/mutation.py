"""Changes to scripts that leave them scripts, and to frames that leave them frames."""

import random
from collections.abc import Callable, Iterator
from functools import cache

from tests.fuzz.samples import scripts
from tests.fuzz.script import GONE, LOST, MAX_LATE, Entry, entries, packed
from tracer import heads
from tracer.heads import PREFACE
from tracer.messages import PREFIX
from tracer.protowire import LENGTH, Malformed, fields

DEEPEST = 8  # message in message that is changed

Change = Callable[[bytes, int], bytes]
"""Some bytes, changed; at most so many."""


def mutate(data: bytes, size: int, seed: int, change: Change | None = None) -> bytes:
    """The script with some entries dropped, repeated, moved, cut, joined, lost, late, or with other bytes."""
    chance = random.Random(seed)
    found = entries(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        _mutate(found, chance, change)
    out = packed(found)
    while len(out) > size and found:
        del found[chance.randrange(len(found))]
        out = packed(found)
    return out


def _mutate(found: list[Entry], chance: random.Random, change: Change | None) -> None:
    if not found or chance.random() < 0.1:
        pool = _pool()
        begin = chance.randrange(len(pool))
        at = chance.randrange(len(found) + 1)
        found[at:at] = [_copy(entry) for entry in pool[begin : begin + chance.randrange(1, 6)]]
        return
    at = chance.randrange(len(found))
    entry = found[at]
    match chance.randrange(14):
        case 0:
            del found[at : at + chance.choice((1, 1, 2, 5))]
        case 1:
            found.insert(chance.randrange(len(found) + 1), _copy(entry))
        case 2:
            found.insert(chance.randrange(len(found)), found.pop(at))
        case 3:
            entry.what ^= GONE
        case 4:
            entry.late = chance.randrange(MAX_LATE + 1)
        case 5:
            entry.what = entry.what & ~0x0F | chance.randrange(LOST + 1)
        case 6:
            entry.end = chance.randrange(256)
        case 7:
            entry.payload = entry.payload[: chance.randrange(len(entry.payload) + 1)]
        case 8 if len(entry.payload) > 1:
            cut = chance.randrange(1, len(entry.payload))
            found.insert(at + 1, Entry(entry.what, entry.end & 3, 0, entry.late, entry.payload[cut:]))
            entry.payload = entry.payload[:cut]
        case 9 if at:
            found[at - 1].payload += entry.payload
            del found[at]
        case 10:
            del found[: chance.randrange(len(found))]
        case 11 | 12:
            entry.payload = reframed(entry.payload, chance, change)
        case _:
            entry.payload = _changed(entry.payload, chance, change)


@cache
def _pool() -> list[Entry]:
    """Real entries."""
    return [entry for each in scripts(lambda _: True, 8, 24) for entry in entries(each)]


def _copy(entry: Entry) -> Entry:
    return Entry(entry.what, entry.end, entry.step, entry.late, entry.payload)


def _changed(data: bytes, chance: random.Random, change: Change | None) -> bytes:
    if change is not None and data:
        return change(data, len(data) + 64)
    out = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 3))):
        out[chance.randrange(len(out))] = chance.randrange(256)
    return bytes(out)


def reframed(data: bytes, chance: random.Random, change: Change | None = None) -> bytes:
    """The bytes with one HTTP/2 frame in them dropped, repeated, moved, given other flags or bytes."""
    start = len(PREFACE) if data.startswith(PREFACE) else 0
    frames = list(_frames(data[start:]))
    if not frames:
        return _changed(data, chance, change)
    at = chance.randrange(len(frames))
    kind, flags, stream, payload = frames[at]
    match chance.randrange(8):
        case 0:
            del frames[at]
        case 1:
            frames.insert(at, frames[at])
        case 2:
            frames.insert(chance.randrange(len(frames)), frames.pop(at))
        case 3:
            frames[at] = kind, flags ^ 1 << chance.randrange(8), stream, payload
        case 4:
            frames[at] = chance.randrange(11), flags, stream, payload
        case 5:
            frames[at] = kind, flags, max(0, stream + chance.choice((-2, 2, 4, -stream))), payload
        case _ if kind == heads.DATA:
            frames[at] = kind, flags, stream, _payload(payload, chance, change)
        case _:
            frames[at] = kind, flags, stream, _changed(payload, chance, change)
    return data[:start] + b"".join(
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + (stream & 0xFFFFFFFF).to_bytes(4, "big") + payload
        for kind, flags, stream, payload in frames
    )


def remade(data: bytes, chance: random.Random, change: Change | None = None, depth: int = 0) -> bytes:
    """A protobuf message with one field dropped, repeated, moved, given another number or value, at some depth."""
    try:
        members = [(tag, data[begin:end]) for tag, begin, end in fields(data, 0, len(data))]
    except Malformed:
        return _changed(data, chance, change)
    if not members:
        return _changed(data, chance, change)
    at = chance.randrange(len(members))
    tag, value = members[at]
    match chance.randrange(10):
        case 0:
            del members[at]
        case 1:
            members.insert(chance.randrange(len(members) + 1), members[at])
        case 2:
            members.insert(chance.randrange(len(members)), members.pop(at))
        case 3:
            members[at] = (tag & 7 | chance.randrange(1, 20) << 3, value)
        case 4 if tag & 7 == LENGTH:
            members[at] = (tag, value[: chance.randrange(len(value) + 1)])
        case _ if tag & 7 == LENGTH:
            deeper = depth < DEEPEST and chance.random() < 0.7
            members[at] = (tag, remade(value, chance, change, depth + 1) if deeper else _changed(value, chance, change))
        case _:
            members[at] = (tag, _varint(chance.getrandbits(chance.choice((3, 7, 31, 64)))) if tag & 7 == 0 else value)
    return b"".join(
        _varint(tag) + (_varint(len(value)) if tag & 7 == LENGTH else b"") + value for tag, value in members
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _payload(data: bytes, chance: random.Random, change: Change | None) -> bytes:
    """Of a DATA frame: mostly one gRPC message."""
    if len(data) > PREFIX and int.from_bytes(data[1:PREFIX], "big") == len(data) - PREFIX and chance.random() < 0.7:
        message = remade(data[PREFIX:], chance, change)
        return data[:1] + len(message).to_bytes(4, "big") + message
    return _changed(data, chance, change)


def _frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    at = 0
    while at + 9 <= len(data):
        length = int.from_bytes(data[at : at + 3], "big")
        stream = int.from_bytes(data[at + 5 : at + 9], "big")
        yield data[at + 3], data[at + 4], stream, data[at + 9 : at + 9 + length]
        at += 9 + length
