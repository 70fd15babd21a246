"""The verdict: what it says first, and what it leaves out."""

from tests.unit.store.sample import NOW, finding
from tracer.outputs.why import text, why

IDLE = {
    "last_relist_start": "2026-01-31T12:00:00.000000000Z", "age_seconds": 0.4, "relist_age_seconds": None,
    "waiting_for": None, "seconds_until_unhealthy": 179.6, "stage": "idle",
}  # fmt: skip


def fields(*arguments, **more):
    return finding(*arguments, **more).fields


def test_the_most_severe_active_finding_is_the_sentence():
    found = [
        fields("f1", seconds=None, summary="Warning."),
        fields("f2", seconds=None, summary="Critical.", severity="critical"),
        fields("f3", summary="Ended.", severity="critical"),
    ]
    verdict = why(found, IDLE, [])
    assert (verdict["sentence"], verdict["state"]) == ("Critical.", "trouble")
    assert [each["id"] for each in verdict["findings"]] == ["f2", "f1", "f3"]


def test_what_is_over_is_told_as_past():
    verdict = why([fields("f1", summary="It was slow.")], IDLE, [])
    assert verdict["state"] == "past_trouble"
    assert verdict["sentence"] == "Nothing is slow now. Lately: It was slow."


def test_information_alone_is_no_trouble():
    verdict = why([fields("f1", seconds=None, severity="info")], IDLE, [])
    assert verdict["state"] == "quiet"
    assert verdict["sentence"].startswith("Nothing is slow")


def test_a_relist_that_waits_is_told_before_any_rule_knows_why():
    waiting = {
        "method": "ListContainers", "age_seconds": 1.2, "stage": "request_wait", "pod": None,
    }  # fmt: skip
    verdict = why([], IDLE | {"relist_age_seconds": 1.3, "waiting_for": waiting}, [])
    assert "waits for ListContainers (1.2 s, request wait)" in verdict["sentence"]


def test_losses_are_among_what_is_not_known():
    assert why([], IDLE, ["3 records were lost"])["unknown"] == ["Tracing was not complete: 3 records were lost."]


def test_for_people_there_is_the_sentence_then_evidence_then_what_is_not_known_then_what_to_try():
    found = fields("f1", NOW, seconds=None, unknown=["whether it was stopped"], next_steps=["look at it"])
    shown = text(why([found], IDLE, []))
    order = ["The shim does not answer.", "PLEG ", "1. WARNING shim_hung", "Not known:", "Try:"]
    places = [shown.index(each) for each in order]
    assert places == sorted(places)
    assert "[call c3-23]" in shown
