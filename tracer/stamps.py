"""The four stamps of a call, read as waits: who had to act, and for how long; of open calls as far as they got.

`request_wait`: the request lay in the socket, unread by the server. `service`: the server worked. `response_wait`: the
answer lay in the socket, unread by the client. Each is None where one of its stamps was not seen, which is not zero.
"""

from typing import Literal

from tracer.calls import Call

Stage = Literal["sending", "request_wait", "service", "response_wait"]


def stage(call: Call) -> Stage | None:
    """Where an open call is; None when it is over, or when that cannot be told."""
    if call.ended_by is not None or not call.complete:
        return None
    if call.answered is not None:
        return "response_wait"
    if call.received is not None:
        return "service"
    if call.sent is None:
        return "sending"
    # The server's end must have been seen: else nobody tells us when it reads.
    return "request_wait" if call.peer.server_pid else None


def request_wait(call: Call, now: int) -> int | None:
    """Nanoseconds, never negative (stamps of two CPUs may cross by microseconds); `now` for what still waits."""
    if call.received is None and stage(call) == "request_wait":
        return _between(call.sent, now)
    return _between(call.sent, call.received)


def service(call: Call, now: int) -> int | None:
    """Nanoseconds."""
    if call.answered is None and stage(call) == "service":
        return _between(call.received, now)
    return _between(call.received, call.answered)


def response_wait(call: Call, now: int) -> int | None:
    """Nanoseconds."""
    if call.read_answer is None and stage(call) == "response_wait":
        return _between(call.answered, now)
    return _between(call.answered, call.read_answer)


def _between(begin: int | None, end: int | None) -> int | None:
    if begin is None or end is None:
        return None
    return max(0, end - begin)
