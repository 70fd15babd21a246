"""The CRI's messages: any bytes are a method's message, with facts of the right types, or a DecodeError; and what is
proven of an unnamed call is a method."""

import random
from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tests.fuzz.contract import text
from tests.fuzz.mutation import Change, remade
from tests.fuzz.samples import messages
from tests.fuzz.taps import Taps, piece
from tracer.calls import Call
from tracer.facts import Container, CriCall, Pod, Scope
from tracer.plugins import pod_uid
from tracer.proofs import Evidence, by_elimination, contradicts, only_id, proven
from tracer.schema import METHODS, command, read_containers, read_request, read_response, read_sandboxes, unary
from tracer.streams import Peer

NAMES = sorted(METHODS)


def run(data: bytes) -> None:
    taps = Taps(data)
    method = NAMES[taps.byte() % len(NAMES)]
    request, response = taps.piece(), taps.rest()
    call = CriCall(Call(Peer("c", "/run/x.sock"), 1, 1), "runtime.v1.RuntimeService", method, "v1", "header")
    for read, message in ((read_request, request), (read_response, response)):
        try:
            read(call, message)
        except DecodeError:
            continue
    _facts(call)
    for word in command(call, request):
        text(word)
    _lists(response)
    evidence = Evidence(request, response, True, 120 * 10**9, 120 * 10**9, {"5a" * 32}, {"c7" * 32})  # noqa: FBT003
    found = proven(evidence)
    assert found is None or (found in METHODS and not contradicts(found, request))
    named = by_elimination(request, set(NAMES[:5]))
    assert named is None or named in METHODS
    ident = only_id(request)
    assert ident is None or len(ident) == 64
    contradicts(method, request)
    uid = pod_uid("csi.v1.Node", "NodePublishVolume", request)
    assert uid is None or len(uid) in (32, 36)
    assert unary(method) in METHODS


def _facts(call: CriCall) -> None:
    for value in (call.pod_uid, call.container_id, call.sandbox_id, call.image, call.seen, call.command):
        if value is not None:
            text(value)
    assert call.scope is None or isinstance(call.scope, Scope)
    _pod(call.pod)
    if call.container is not None:
        _container(call.container)
    for number in (call.attempt, call.grace, call.timeout, call.exit_code):
        assert number is None or -(1 << 63) <= number < 1 << 63


def _pod(pod: Pod | None) -> None:
    for value in pod or ():
        text(value)


def _container(container: Container) -> None:
    text(container.id)
    text(container.name)
    assert 0 <= container.attempt < 1 << 32


def _lists(data: bytes) -> None:
    try:
        sandboxes = read_sandboxes(data)
    except DecodeError:
        sandboxes = ()
    for item in sandboxes:
        text(item.id)
        _pod(item.pod)
    if sandboxes:
        known = {item.id: item for item in sandboxes}
        assert [item.id for item in read_sandboxes(data, known)] == [item.id for item in sandboxes]
    try:
        containers = read_containers(data)
    except DecodeError:
        return
    for each in containers:
        text(each.sandbox_id)
        _pod(each.pod)
        _container(each.container)


def mutate(data: bytes, size: int, seed: int, change: Change | None = None) -> bytes:
    chance = random.Random(seed)
    taps = Taps(data)
    method, request, response = taps.byte(), taps.piece(), taps.rest()
    for _ in range(chance.choice((1, 1, 2, 4))):
        if chance.random() < 0.1:
            method = chance.randrange(len(NAMES))
        elif chance.random() < 0.5:
            request = remade(request, chance, change)[:0xFFFF]
        else:
            response = remade(response, chance, change)
    return (bytes([method]) + piece(request) + response)[:size]


def seeds() -> Iterator[bytes]:
    requests: dict[str, bytes] = {}
    for path, way, data in messages():
        name = path.rpartition("/")[2]
        if way == "request":
            requests.setdefault(name, data)
    for path, way, data in messages():
        name = path.rpartition("/")[2]
        if way == "response" and name in METHODS:
            yield bytes([NAMES.index(name)]) + piece(requests.get(name, b"")) + data
        elif name in METHODS:
            yield bytes([NAMES.index(name)]) + piece(data)
    path = b"/var/lib/kubelet/pods/0e6c1f9e-3f5b-4d0e-9a53-6a5a6b0c2f11/volumes/kubernetes.io~csi/data/mount"
    yield b"\0" + piece(b"\x0a\x03vol\x22" + bytes([len(path)]) + path)
