"""Pods that cannot be started: the first cause is named, and what follows from it is not."""

from tests.unit.findings.story import OTHER, Story, container, pod, pods
from tracer import node
from tracer.facts import Container

HELD = "ab12" * 16
RESERVED = f'failed to reserve sandbox name "p0_0": name "p0_0" is reserved for "{HELD}"'


def sandbox_of(name, **more):
    return {"pod": pod(name), "attempt": 0, "handler": "", "deadline_ns": 240 * 10**9, **more}


def create_of(name, attempt=0, **more):
    return {"pod": pod(name), "sandbox_id": f"{name}-s0", "container": Container("", "main", attempt), **more}


def start_of(name, attempt=0):
    ident = f"{name}-main{attempt}"
    return {"pod": pod(name), "container_id": ident, "container": Container(ident, "main", attempt)}


def made(story, name, attempt=0):
    ident = f"{name}-main{attempt}"
    call = story.send("CreateContainer", **create_of(name, attempt))
    story.wait(0.05)
    call.container_id = ident
    story.answer(call)


def failures(story):
    return [each for each in story.findings() if each["kind"] == "start_failed"]


def test_a_missing_command_is_one_finding_with_the_runtimes_words_however_often_it_is_tried():
    story = Story()
    story.live(3)
    starts = []
    for attempt, back_off in enumerate((10, 20, 40)):
        made(story, "p0", attempt)
        starts.append(story.call(
            "StartContainer", status="UNKNOWN", error="runc create failed: no such file", **start_of("p0", attempt)
        ).id)  # fmt: skip
        story.live(back_off)
    finding = story.only()
    assert (finding["kind"], finding["severity"], finding["state"]) == ("start_failed", "warning", "active")
    assert finding["calls"] == starts
    assert finding["summary"] == (
        "StartContainer of container main in pod default/p0 failed 3 times: runc create failed: no such file."
    )


def test_a_start_that_succeeds_ends_it():
    story = Story()
    story.live(3)
    story.call("StartContainer", status="UNKNOWN", error="no", **start_of("p0"))
    story.live(10)
    story.call("StartContainer", **start_of("p0", 1))
    story.live(2)
    assert story.only()["state"] == "ended"


def test_a_pod_that_is_not_tried_again_is_forgiven():
    story = Story()
    story.call("StartContainer", status="UNKNOWN", error="no", **start_of("p0"))
    story.live(300)
    assert story.only()["state"] == "active"
    story.live(70)
    assert story.only()["state"] == "ended"


def test_a_client_that_is_no_kubelet_has_no_pods_that_cannot_start():
    story = Story()
    story.call("StartContainer", status="UNKNOWN", error="no", peer=OTHER, **start_of("p0"))
    story.live(3)
    assert failures(story) == []


# OP-40


def test_name_conflicts_are_followers_of_the_first_attempt_that_the_kubelet_gave_up():
    story = Story()
    story.live(3)
    first = story.send("RunPodSandbox", **sandbox_of("p0"))
    story.live(240)
    story.end(first, "deadline")
    story.live(12)
    for _ in range(37):
        story.call("RunPodSandbox", status="UNKNOWN", error=RESERVED, **sandbox_of("p0"))
        story.live(12)
    (finding,) = failures(story)
    assert "gave the first attempt up after 4 min 0 s" in finding["summary"]
    assert (
        f"still has it as sandbox {HELD[:13]}; that its name is reserved since (37 times) follows" in finding["summary"]
    )
    assert first.id in finding["calls"]
    assert finding["start"] == story.rows["call", first.id].fields["start"]


def test_a_name_conflict_whose_first_attempt_was_not_seen_says_so():
    story = Story()
    for _ in range(4):
        story.call("RunPodSandbox", status="UNKNOWN", error=RESERVED, **sandbox_of("p0"))
        story.live(12)
    (finding,) = failures(story)
    assert (finding["confidence"], len(finding["unknown"])) == ("medium", 1)
    assert f"reserved by {HELD[:13]}, an earlier attempt" in finding["summary"]


# OP-43


def test_a_creation_that_exceeds_its_deadline_cites_the_volumes_and_not_the_runtimes_words():
    story = Story()
    story.live(3)
    error = "Kubelet may be retrying requests that are timing out in CRI-O due to system load: name is reserved"
    first = story.send("CreateContainer", **create_of("p0", volumes=("csi",)))
    story.live(120)
    story.end(first, "deadline")
    for _ in range(3):
        retry = story.send("CreateContainer", **create_of("p0", volumes=("csi",), error=error))
        story.live(110)
        story.answer(retry, "UNKNOWN")
        made(story, "p1")
        story.call("StartContainer", **start_of("p1"))
    story.live(1)
    (finding,) = failures(story)
    assert "after 2 min 0 s" in finding["summary"]
    assert "that its name is reserved since (3 times) follows" in finding["summary"]
    assert "mounts volumes (csi)" in finding["summary"]
    assert "load" not in finding["summary"]
    assert pods(finding) == {"p0"}
    assert finding["confidence"] == "medium"


# OP-55


def test_sandboxes_that_all_fail_with_one_handler_are_one_finding_of_the_handler():
    story = Story()
    for number in range(41):
        story.call("RunPodSandbox", 0.2, **sandbox_of(f"ok{number}"))
    failing = [story.send("RunPodSandbox", **sandbox_of(f"g{n}", handler="runsc")) for n in range(2)]
    story.live(240)
    for call in failing:
        story.end(call, "deadline")
    story.live(12)
    for n in range(2):
        story.call("RunPodSandbox", status="UNKNOWN", error=RESERVED, **sandbox_of(f"g{n}", handler="runsc"))
    story.live(2)
    (finding,) = failures(story)
    assert "runtime handler runsc failed 4 times" in finding["summary"]
    assert "all 4 sandboxes with this handler failed, 41 with others were made" in finding["summary"]
    assert pods(finding) == {"g0", "g1"}


# OP-104


def test_one_errno_in_pods_that_have_nothing_to_do_with_each_other_is_one_limit_of_the_node():
    story = Story()
    error = "fork/exec /usr/bin/containerd-shim-runc-v2: resource temporarily unavailable"
    for number in range(44):
        name = f"p{number % 9}"
        method, facts = [
            ("RunPodSandbox", sandbox_of(name)), ("StartContainer", start_of(name)),
            ("ExecSync", start_of(name) | {"timeout": 1, "command": "c"}),
        ][number % 3]  # fmt: skip
        story.call(method, 0.02, "UNKNOWN", error=error, **facts)
        story.live(2)
    finding = story.only()
    assert finding["kind"] == "host_limit"
    assert "44 calls in 9 pods failed for want of processes or threads (EAGAIN)" in finding["summary"]
    assert "limit of the host or of the runtime's cgroup" in finding["summary"]


def test_an_errno_in_one_pod_may_be_that_pods_own_limit():
    story = Story()
    facts = start_of("p0") | {"timeout": 1, "command": "c"}
    story.call("ExecSync", status="UNKNOWN", error="fork/exec: resource temporarily unavailable", **facts)
    story.live(1)
    finding = story.only()
    assert (finding["kind"], finding["confidence"]) == ("host_limit", "medium")
    assert "limit of that pod, or of the host" in finding["summary"]


# OP-100


def test_an_attempt_number_used_again_after_the_clock_was_set_back_names_the_clock():
    story = Story()
    story.live(3)
    made(story, "p0", 1)
    story.live(2)
    story.node_event(node.clock_step(story.now, -40 * 10**9))
    error = f'failed to reserve container name: name "main_p0_1" is reserved for "{HELD}"'
    for _ in range(3):
        story.call("CreateContainer", status="UNKNOWN", error=error, **create_of("p0", 1))
        story.live(12)
    (finding,) = failures(story)
    assert "attempt number 1 is used again" in finding["summary"]
    assert "the wall clock was set back by 40.000 s" in finding["summary"]
    assert finding["confidence"] == "high"


def test_an_attempt_number_used_again_without_a_step_of_the_clock_names_no_clock():
    story = Story()
    made(story, "p0", 1)
    error = f'name "main_p0_1" is reserved for "{HELD}"'
    story.call("CreateContainer", status="UNKNOWN", error=error, **create_of("p0", 1))
    story.live(2)
    (finding,) = failures(story)
    assert "attempt number 1 is used again" in finding["summary"]
    assert "clock" not in finding["summary"]
    assert finding["confidence"] == "medium"


# OP-103


def test_a_next_attempt_that_fails_while_one_is_running_is_told_as_a_contradiction_of_clocks():
    story = Story(pods=1)
    story.containers = [
        container("p0", 1, attempt=31, created=1_000),
        container("p0", 2, attempt=30, created=61_000_000_000),
    ]
    for _ in range(20):
        story.call("CreateContainer", status="UNKNOWN", error="name is in use", **create_of("p0", 31))
        story.live(12)
    (finding,) = failures(story)
    assert "its attempt 31 is running, but was made before the ended attempt 30" in finding["summary"]
    assert "service is probably up" in finding["summary"]
    assert "failed 20 times" in finding["summary"]


def test_attempts_in_the_order_of_their_making_are_no_contradiction():
    story = Story(pods=1)
    story.containers = [container("p0", 1, attempt=31, created=90), container("p0", 2, attempt=30, created=60)]
    for _ in range(3):
        story.call("CreateContainer", status="UNKNOWN", error="name is in use", **create_of("p0", 32))
        story.live(12)
    assert "clock" not in failures(story)[0]["summary"]
