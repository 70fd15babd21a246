"""Bytes of real kubelets and runtimes, against a second opinion."""

from functools import cache
from pathlib import Path

import pytest

from tests.unit.decode import calls, events
from tests.unit.wire.plain import decode
from tests.unit.wire.rewrite import bytewise, late, trimmed
from tracer.capture import CaptureFile
from tracer.metadata import STATUS
from tracer.paths import is_ttrpc
from tracer.records import Data
from tracer.rpc import Finished, Opened

DATA = Path(__file__).parents[2] / "data"
NAMES = ["startup", "truth", "traced", "crio", "k120"]


@cache
def records(name):
    with CaptureFile(DATA / f"{name}.jsonl.gz") as capture:
        return [record for record in capture.records() if isinstance(record, Data) and not is_ttrpc(record.path)]


@cache
def decoded(name):
    found, rpc, streams = events(records(name))
    assert (rpc.stats.malformed, rpc.stats.headers.malformed, rpc.stats.headers.forgotten) == (0, 0, 0)
    assert (streams.stats.gaps, streams.stats.stale, streams.stats.filled, rpc.stats.frames.desyncs) == (0, 0, 0, 0)
    ours = [event.call for event in found if isinstance(event, Finished)] + rpc.open_calls()
    assert len(ours) == len({call.id for call in ours})
    return {call.id: call for call in ours}


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("name", NAMES)
def test_every_call_equals_what_one_end_alone_shows(name, side):
    ours, theirs = decoded(name), decode(records(name), side)
    assert len(ours) > 200
    assert ours.keys() == theirs.keys()
    for ident, call in ours.items():
        plain = theirs[ident]
        assert call.path == plain.path
        # A reset after the trailers changes nothing (grpc-go sends one when it answers before the request is whole).
        assert call.status == (None if plain.status is None else STATUS[int(plain.status)])
        assert (call.error or "") == (plain.message or "")
        assert (call.request_bytes, call.response_bytes) == (len(plain.request), len(plain.response))
        assert call.request is None or call.request.data == plain.request[5:]
        assert (call.trace is None) == (plain.trace is None)
        assert call.deadline_ns == (
            None if plain.timeout is None else int(plain.timeout[:-1]) * UNITS[plain.timeout[-1]]
        )
        assert call.complete


UNITS = {"S": 10**9, "m": 10**6, "u": 10**3, "n": 1}


@pytest.mark.parametrize("name", NAMES)
def test_both_ends_give_four_stamps_in_order(name):
    stamped = 0
    for call in decoded(name).values():
        if call.ended_by != "server":
            continue
        stamps = [call.start, call.sent, call.received, call.answered, call.read_answer, call.end]
        assert stamps == sorted(stamps)
        stamped += 1
    assert stamped > 200


@pytest.mark.parametrize("name", ["startup", "k120"])
def test_one_byte_at_a_time_gives_the_same_calls(name):
    some = records(name)[:600]
    whole = {call.id: (call.path, call.status, call.request_bytes, call.response_bytes) for call in calls(some)}
    pieces = {
        call.id: (call.path, call.status, call.request_bytes, call.response_bytes) for call in calls(bytewise(some))
    }
    assert len(whole) > 40
    assert pieces == whole


@pytest.mark.parametrize("name", NAMES)
def test_joining_late_no_call_is_wrong_and_every_later_one_is_there(name):
    """Cut at twenty places; of what is received only as much is there as the kernel side keeps."""
    truth = decoded(name)
    everything = trimmed(records(name), 512)
    for part in range(1, 21):
        at = len(everything) * part // 21
        rest = late(everything, at)
        found, rpc, _ = events(rest)
        ours = {event.call.id: event.call for event in found if isinstance(event, Opened)}
        assert rpc.stats.malformed == 0
        olds = {}
        for ident, call in ours.items():
            real = truth[ident]
            assert call.path in (real.path, None)
            assert call.status in (real.status, None)
            assert call.error in (real.error, None)
            if call.path is None:
                assert olds.setdefault((call.peer.connection, call.old_path), real.path) == real.path
            if call.complete and call.end is not None:
                assert (call.request_bytes, call.response_bytes) == (real.request_bytes, real.response_bytes)
        assert len(olds) == len({(connection, path) for (connection, _), path in olds.items()})
        after = {ident for ident, call in truth.items() if call.start > rest[0].time}
        assert after <= ours.keys()
        assert all(ours[ident].complete for ident in after)
