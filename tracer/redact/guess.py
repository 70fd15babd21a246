"""Which bytes of a message whose schema is not known are secret: all text but ids, names of types and a few labels.

The shape (fields and their lengths, numbers) stays. Whether bytes are text or a message of their own is a guess; a
wrong one shows no more of a text than where it could be cut into fields.
"""

import re

from tracer.protowire import LENGTH, VARINT, Field, Malformed, fields

MAX_DEPTH = 16
"""Messages in messages followed; deeper ones are overwritten whole."""

MAX_FIELD = 127
"""Field numbers believed: schemas seen on these sockets stay below 40, random bytes do not."""

_FIRST, _SECOND, _THIRD = 1 << 3 | LENGTH, 2 << 3 | LENGTH, 3 << 3 | LENGTH

_ID = re.compile(rb"[0-9a-f]{64}")
_UID = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32}")
_NAME = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_KEY = re.compile(rb"(?:io\.kubernetes\.|io\.cri-containerd)[A-Za-z0-9._/-]{0,128}")
_TYPE = re.compile(
    rb"(?:(?:types\.containerd\.io|type\.googleapis\.com)/[A-Za-z0-9._/-]{1,128}"
    rb"|(?:io\.)?containerd\.[A-Za-z0-9._]{1,128}|google\.protobuf\.[A-Za-z]{1,32})"
)
_TOPIC = re.compile(rb"/tasks/(?:create|start|delete|exit|oom|exec-added|exec-started|paused|resumed|checkpointed)")
"""Topics of containerd's task events (`core/runtime/events.go`)."""

_LABELS = {
    b"io.kubernetes.pod.name": _NAME,
    b"io.kubernetes.pod.namespace": _NAME,
    b"io.kubernetes.pod.uid": _UID,
    b"io.kubernetes.container.name": _NAME,
}
"""Labels the kubelet sets (`pkg/kubelet/types/labels.go`) and what their values look like."""

_TEXT = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]*")

Ranges = list[tuple[int, int]]


def secrets(data: bytes, at: int, end: int) -> Ranges:
    """Ranges of `data[at:end]` to overwrite; all of it when it is not a message."""
    found = _message(data, at, end, 0)
    return [(at, end)] if found is None and at < end else found or []


def _message(data: bytes, at: int, end: int, depth: int) -> Ranges | None:
    """Ranges to overwrite, or None when this is not believed to be a message."""
    try:
        members = list(fields(data, at, end))
    except Malformed:
        return None
    if any(tag >> 3 > MAX_FIELD for tag, _, _ in members):
        return None
    found: Ranges = []
    for i, (tag, begin, until) in enumerate(members):
        wire = tag & 7
        if wire == VARINT or begin == until:
            continue
        if wire == LENGTH and _kept(data, members, i):
            continue
        nested = _nested(data, begin, until, depth) if wire == LENGTH else None
        if nested is None:
            found.append((begin, until))
        else:
            found += nested
    return found


def _nested(data: bytes, at: int, end: int, depth: int) -> Ranges | None:
    if depth == MAX_DEPTH:
        return None
    if _TEXT.fullmatch(data, at, end) and not (data[at] == _FIRST and _only_lengths(data, at, end)):
        # Text. A message can look like one, when its first field's tag is a line feed and its lengths are printable.
        return None
    return _message(data, at, end, depth + 1)


def _only_lengths(data: bytes, at: int, end: int) -> bool:
    try:
        return all(tag & 7 == LENGTH for tag, _, _ in fields(data, at, end))
    except Malformed:
        return False


def _kept(data: bytes, members: list[Field], i: int) -> bool:
    """Whether a field is one of the few texts that are kept.

    Ids only where ids are: hexadecimal digits elsewhere, the value of a variable say, are as likely a key.
    """
    tag, begin, until = members[i]
    if tag == _FIRST:
        if _ID.fullmatch(data, begin, until) or _KEY.fullmatch(data, begin, until):
            return True
        # The type of a google.protobuf.Any.
        return [other for other, _, _ in members[1:]] in ([], [_SECOND]) and bool(_TYPE.fullmatch(data, begin, until))
    if tag == _THIRD:
        # Of an event's envelope: time, namespace, topic, event.
        return bool(_TOPIC.fullmatch(data, begin, until))
    first, first_begin, first_until = members[0]
    if tag != _SECOND or first != _FIRST:
        return False
    before = data[first_begin:first_until]
    if _ID.fullmatch(before):
        # A container and its sandbox, or a task and its exec (containerd draws exec ids like container ids).
        return bool(_ID.fullmatch(data, begin, until))
    label = _LABELS.get(before)
    return label is not None and len(members) == 2 and bool(label.fullmatch(data, begin, until))
