"""Images: pulls that fail, that take long, that wait for each other, and that never come."""

import pytest

from tests.unit.findings.story import MS, Story, pod, pods


def absent(story, name, image):
    return story.call("ImageStatus", image=image, annotated=True, pod=pod(name), present=False)


def pull_of(name, image):
    return {"pod": pod(name), "image": image, "annotated": True}


def test_an_image_that_does_not_exist_is_one_finding_however_often_it_is_tried():
    story = Story()
    pulls = []
    for back_off in (12, 26, 45):
        absent(story, "p0", "localhost/none:1")
        pulls.append(
            story.call("PullImage", 0.01, "UNKNOWN", error="not found", **pull_of("p0", "localhost/none:1")).id
        )
        for _ in range(back_off // 12):
            story.live(12)
            absent(story, "p0", "localhost/none:1")
    finding = story.only()
    assert (finding["kind"], finding["severity"], finding["calls"]) == ("image_pull_failed", "warning", pulls)
    assert finding["summary"] == (
        "Pulling localhost/none:1 for default/p0 failed 3 times: not found; the registry does not have it."
    )
    story.call("PullImage", 0.01, **pull_of("p0", "localhost/none:1"))
    story.live(2)
    assert story.only()["state"] == "ended"


@pytest.mark.parametrize(("error", "words"), [
    ("toomanyrequests: You have reached your pull rate limit", "limits how often it is asked"),
    ("unexpected status from HEAD request: 403 Forbidden", "does not let this node have it"),
])  # fmt: skip
def test_why_a_registry_refuses_is_told_from_its_words(error, words):
    story = Story()
    story.call("PullImage", 0.3, "UNKNOWN", error=error, **pull_of("p0", "busybox"))
    story.live(1)
    assert words in story.only()["summary"]


# OP-60


def test_pods_that_wait_for_the_queue_of_pulls_are_told_in_order_with_the_pull_before_them():
    story = Story(pods=4)
    absent(story, "p0", "huge")
    story.now += MS
    huge = story.send("PullImage", **pull_of("p0", "huge"))
    story.live(5)
    absent(story, "p1", "small-b")
    story.live(3)
    absent(story, "p2", "small-c")
    story.live(20)
    (waiting,) = story.findings("info")
    assert (waiting["kind"], waiting["confidence"]) == ("image_pull_queued", "medium")
    story.live(372)
    story.answer(huge)
    story.now += 2 * MS
    small = story.send("PullImage", **pull_of("p1", "small-b"))
    story.live(4)
    story.answer(small)
    story.now += MS
    last = story.send("PullImage", **pull_of("p2", "small-c"))
    story.live(4)
    story.answer(last)
    story.live(3)
    queued = next(each for each in story.findings() if each["kind"] == "image_pull_queued")
    assert pods(queued) == {"p1", "p2"}
    assert queued["calls"] == [huge.id, small.id, last.id]
    assert "default/p1 (small-b), default/p2 (small-c)" in queued["summary"]
    assert "the pull of huge before them took 6 min 40 s" in queued["summary"]
    assert (queued["confidence"], queued["state"]) == ("high", "ended")
    slow = [each for each in story.findings("info", "warning") if each["kind"] == "image_pull_slow"]
    assert [each["calls"] for each in slow] == [[huge.id]], "the small images are not slow"
    assert set(story.kinds("info", "warning")) == {"image_pull_queued", "image_pull_slow"}


def test_pulls_beside_each_other_are_no_queue():
    story = Story(pods=4)
    calls = []
    for number in range(4):
        absent(story, f"p{number}", f"image{number}")
        calls.append(story.send("PullImage", **pull_of(f"p{number}", f"image{number}")))
    story.live(30)
    for call in calls:
        story.answer(call)
    story.live(5)
    assert story.kinds("info", "warning", "critical") == []


# OP-63


def test_a_pull_that_the_runtime_ends_by_itself_is_not_said_to_be_cancelled_by_the_kubelet():
    story = Story()
    pull = story.send("PullImage", error="rpc error: context canceled", **pull_of("p0", "big"))
    story.live(412)
    story.answer(pull, "CANCELLED")
    story.live(1)
    finding = next(each for each in story.findings() if each["kind"] == "image_pull_failed")
    assert "the runtime ended it by itself after 6 min 52 s, the kubelet did not cancel it" in finding["summary"]
    assert "5 min without progress" in finding["summary"]
    assert finding["confidence"] == "medium"


def test_a_pull_that_the_kubelet_cancels_is_no_failure():
    story = Story()
    pull = story.send("PullImage", **pull_of("p0", "big"))
    story.live(40)
    story.end(pull, "client_cancel")
    story.live(2)
    assert story.kinds() == []


# OP-65


def test_pulls_that_never_come_are_a_refusal_of_the_kubelet_and_no_error_of_a_registry():
    story = Story(pods=25)
    started = []
    for number in range(11):
        absent(story, f"p{number}", f"image{number}")
        started.append(story.send("PullImage", **pull_of(f"p{number}", f"image{number}")))
    for number in range(11, 25):
        absent(story, f"p{number}", f"image{number}")
    story.wait(2)
    for call in started:
        story.answer(call)
    story.live(4)
    finding = story.only()
    assert finding["kind"] == "image_pull_refused"
    assert finding["summary"].startswith("14 pods asked for an image that is absent, but the kubelet sent no PullImage")
    assert "11 pulls were sent in the second before" in finding["summary"]
    assert "registryPullQPS" in finding["summary"]
    assert finding["confidence"] == "medium"
    assert len(pods(finding)) == 14
    for number in range(11, 25):
        absent(story, f"p{number}", f"image{number}")
        story.call("PullImage", 0.2, **pull_of(f"p{number}", f"image{number}"))
    story.live(2)
    assert story.only()["state"] == "ended"
