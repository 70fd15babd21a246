"""Captures of real kubelets say the same after redaction."""

from functools import cache
from pathlib import Path

import pytest

from tests.unit.decode import events
from tests.unit.replayed import DATA
from tracer.capture import CaptureFile, CaptureWriter
from tracer.records import Data, Exec, Record
from tracer.redact import Redactor
from tracer.replay import Result, replay
from tracer.rpc import Finished, Joined, Left, Opened, Requested, Responded

NAMES = ["k120", "crio", "truth"]


@cache
def original(name: str) -> list[Record]:
    with CaptureFile(DATA / f"{name}.jsonl.gz") as capture:
        return list(capture.records())


def redact(records: list[Record]) -> tuple[list[Record], Redactor]:
    stage = Redactor()
    out = [safe for record in records for safe in stage.feed(record)]
    return out + stage.flush(), stage


def described(records: list[Record]) -> list[tuple[object, ...]]:
    """Everything of every call but the contents of its messages."""
    found: list[tuple[object, ...]] = []
    for event in events(r for r in records if not isinstance(r, Data) or "/s/" not in r.path)[0]:
        if isinstance(event, Joined | Left):
            found.append((type(event), event.time, event.peer.connection))
            continue
        call = event.call
        what: tuple[object, ...] = ()
        if isinstance(event, Responded):
            what = (event.message.length, event.message.time)
        elif isinstance(event, Requested):
            what = (call.request.length if call.request else None,)
        elif isinstance(event, Finished):
            what = (
                call.path, call.old_path, call.deadline_ns, call.trace, call.start, call.sent, call.received,
                call.answered, call.end, call.read_answer, call.status, call.error, call.ended_by, call.responses,
                call.request_bytes, call.response_bytes, call.complete,
            )  # fmt: skip
        else:
            assert isinstance(event, Opened)
        found.append((type(event), event.time, call.id, *what))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_redacted_capture_decodes_to_the_same_calls(name):
    out, stage = redact(original(name))
    assert described(out) == described(original(name))
    assert len(described(out)) > 700
    assert stage.stats.given_up == 0


@pytest.mark.parametrize("name", NAMES)
def test_records_keep_their_order_and_lengths(name):
    out, _ = redact(original(name))
    for after, before in zip(out, original(name), strict=True):
        if isinstance(before, Data):
            assert isinstance(after, Data)
            assert len(after.data) in (0, len(before.data))
            assert before == Data(
                **{slot: getattr(after, slot) for slot in Data.__slots__ if slot != "data"}, data=before.data
            )
        elif not isinstance(before, Exec):
            assert after == before


@pytest.mark.parametrize("name", NAMES)
def test_a_sender_never_loses_its_bytes(name):
    out, _ = redact(original(name))
    assert all(
        len(after.data) == len(before.data)
        for after, before in zip(out, original(name), strict=True)
        if isinstance(before, Data) and isinstance(after, Data) and before.direction == "send"
    )


@pytest.mark.parametrize("name", ["k120", "crio"])
def test_replaying_a_redacted_capture_shows_the_same(name, tmp_path):
    """The rows are equal to the last field, but for what tells two probes of a container apart: their commands."""
    with CaptureFile(DATA / f"{name}.jsonl.gz") as source:
        offset = source.realtime_offset_ns
    with CaptureWriter(tmp_path / "c", offset) as writer:
        for record in redact(original(name))[0]:
            writer.write(record)
    shown = rows(tmp_path / "c")
    assert shown["calls"]
    assert nameless(shown) == nameless(rows(DATA / f"{name}.jsonl.gz"))


def nameless(found: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
    """A probe's id without the digest of its command."""
    for call in found["calls"]:
        activity = call["activity"]
        assert isinstance(activity, dict)
        if activity["kind"] == "probe" and activity["id"]:
            activity["id"] = activity["id"].partition("-")[0]
    return found


def test_a_recording_that_starts_late_decodes_alike():
    """Half of the connections' past is not recorded: methods are unknown, lists of pods still readable."""
    late = original("truth")[len(original("truth")) // 2 :]
    out, stage = redact(late)
    assert described(out) == described(late)
    assert stage.stats.contents.proven > 20


def rows(path: Path) -> dict[str, object]:
    result = Result()
    with CaptureFile(path) as source:
        pipeline, damage = replay(source, result.feed, lambda _: None)
    assert damage is None
    return result.object("", pipeline)


def test_a_recording_that_starts_late_replays_alike(tmp_path: Path):
    """Whatever can be concluded from old connections can be from their recording: methods, relists, events, passes.

    But for the errors of calls that may be an exec's, which are overwritten.
    """
    late = original("truth")[len(original("truth")) // 3 :]
    for name, records in (("plain", late), ("safe", redact(late)[0])):
        with CaptureWriter(tmp_path / name, 1_796_068_000_000_000_000) as writer:
            for record in records:
                writer.write(record)
    plain, safe = rows(tmp_path / "plain"), rows(tmp_path / "safe")
    assert plain["relists"]
    assert plain["sync_passes"]
    for call in [*plain["calls"], *safe["calls"]]:
        call["error"] = call["error"] if call["method"] else None
    assert nameless(plain) == nameless(safe)


def test_command_lines_of_containers_are_gone():
    out, _ = redact(original("truth"))
    programs = [r.argv for r in out if isinstance(r, Exec)]
    assert ["sleep", "x"] in [argv[:2] for argv in programs] or ["sleep", "xx"] in [argv[:2] for argv in programs]
    assert any(argv[0] == "runc" and "create" in argv for argv in programs)
    assert not any(argv[0] in ("sh", "sleep") and set("".join(argv[1:])) - {"x"} for argv in programs)
