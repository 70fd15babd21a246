"""Lists in one order: runtimes give the items of a list, and the labels of an item, in another order each time.

containerd and protobuf for Go walk maps, whose order is random. In one order the lists of a node where nothing changes
are the same bytes each second, so their secrets are found once, and a file holds them once.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from google.protobuf.message import DecodeError

from tracer.protocol import api_pb2
from tracer.redact.schema import Plan, plan_of

LEAST_BYTES = 2048
"""A shorter list costs less to walk than to order."""

MOST_BYTES = 1024 * 1024
"""A longer one is left as it is: parsed it would take several times its size, and a node has room for two lists."""

_ID = attrgetter("id")

LISTS: dict[Plan, tuple[Any, Callable[[Any], Any]]] = {
    plan_of(api_pb2.ListPodSandboxResponse.DESCRIPTOR): (api_pb2.ListPodSandboxResponse, attrgetter("items")),
    plan_of(api_pb2.ListContainersResponse.DESCRIPTOR): (api_pb2.ListContainersResponse, attrgetter("containers")),
}
"""Answers that are ordered, by their plans: message and list of items."""


def ordered(plan: Plan, body: bytes) -> bytes:
    """The same message with items by id and maps by key; as it is, when that is not the same length.

    It is when nothing is written twice or at greater length than it must be.
    """
    known = LISTS.get(plan) if LEAST_BYTES <= len(body) <= MOST_BYTES else None
    if known is None:
        return body
    kind, items = known
    try:
        message = kind.FromString(body)
    except DecodeError:
        return body
    items(message).sort(key=_ID)
    out: bytes = message.SerializeToString(deterministic=True)
    return out if len(out) == len(body) else body
