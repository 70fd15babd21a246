"""What CRI messages state, and what is never taken from them."""

import pytest
from cri_api.v1 import api_pb2 as v1
from cri_api.v1alpha2 import api_pb2 as v1alpha2

from tests.unit.conversation import Conversation
from tests.unit.decode import events
from tracer.cri import Cri
from tracer.facts import Done, Pod, Scope
from tracer.identity import Identity
from tracer.schema import METHODS
from tracer.texts import redact

RUNTIME = "/runtime.v1.RuntimeService/"
IMAGE = "/runtime.v1.ImageService/"
UID = "io.kubernetes.pod.uid"


def decoded(conversation):
    """Finished CRI calls, identified."""
    cri, identity, found = Cri(), Identity(), []
    for event in events(conversation.records)[0]:
        for item in cri.feed(event):
            identity.feed(item)
            if isinstance(item, Done):
                found.append(item.call)
    return found


def one(method, request, answer=None, prefix=RUNTIME):
    talk = Conversation().open()
    talk.call(prefix + method, request.SerializeToString(), b"" if answer is None else answer.SerializeToString())
    (call,) = decoded(talk)
    return call


def sandbox_metadata():
    return v1.PodSandboxMetadata(name="web", uid="u1", namespace="shop", attempt=2)


def test_every_method_of_both_services_is_known():
    for service in v1.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            assert METHODS[method.name] == service.name
    streamed = {name for name in METHODS if name.startswith("Stream")}
    assert streamed == {
        "StreamPodSandboxes", "StreamContainers", "StreamContainerStats", "StreamPodSandboxStats",
        "StreamPodSandboxMetrics", "StreamImages",
    }  # fmt: skip


def test_v1alpha2_messages_are_the_same_on_the_wire():
    """Every field of v1alpha2 has its number, type and cardinality in v1, so v1 can parse it."""
    compared = 0
    for name, message in v1alpha2.DESCRIPTOR.message_types_by_name.items():
        newer = v1.DESCRIPTOR.message_types_by_name.get(name)
        if newer is None:
            continue
        for field in message.fields:
            other = newer.fields_by_number.get(field.number)
            assert other is not None, (name, field.name)
            assert (other.type, other.is_repeated) == (field.type, field.is_repeated), (name, field.name)
            compared += 1
    assert compared > 200


@pytest.mark.parametrize("api", ["v1", "v1alpha2"])
def test_a_call_says_its_service_method_and_api(api):
    talk = Conversation().open()
    talk.call(f"/runtime.{api}.RuntimeService/Status")
    (call,) = decoded(talk)
    assert (call.service, call.method, call.api, call.method_source) == (
        f"runtime.{api}.RuntimeService", "Status", api, "header",
    )  # fmt: skip


def test_a_service_that_is_not_the_cri_keeps_its_name_and_sizes():
    talk = Conversation().open()
    talk.call("/containerd.services.containers.v1.Containers/Get", b"\x0a\x40" + b"a" * 64, b"x" * 100)
    (call,) = decoded(talk)
    assert (call.service, call.method, call.api) == ("containerd.services.containers.v1.Containers", "Get", None)
    assert (call.rpc.request_bytes, call.rpc.response_bytes) == (71, 105)
    assert call.container_id is None


def test_a_method_nobody_knows_keeps_its_name():
    talk = Conversation().open()
    talk.call(RUNTIME + "TeleportContainer", b"\x0a\x01a")
    (call,) = decoded(talk)
    assert (call.method, call.method_source, call.container_id) == ("TeleportContainer", "header", None)


def test_a_sandbox_run_states_its_pod_attempt_and_when_the_kubelet_saw_it():
    config = v1.PodSandboxConfig(metadata=sandbox_metadata(), annotations={"kubernetes.io/config.seen": "2026-01-01"})
    call = one("RunPodSandbox", v1.RunPodSandboxRequest(config=config), v1.RunPodSandboxResponse(pod_sandbox_id="s1"))
    assert call.pod == Pod("shop", "web", "u1")
    assert (call.attempt, call.sandbox_id, call.seen) == (2, "s1", "2026-01-01")


def test_a_created_container_gets_the_id_of_the_answer():
    request = v1.CreateContainerRequest(
        pod_sandbox_id="s1",
        config=v1.ContainerConfig(
            metadata=v1.ContainerMetadata(name="main", attempt=3), image=v1.ImageSpec(image="busybox")
        ),
        sandbox_config=v1.PodSandboxConfig(metadata=sandbox_metadata()),
    )
    call = one("CreateContainer", request, v1.CreateContainerResponse(container_id="c9"))
    assert call.container == ("c9", "main", 3)
    assert (call.pod.uid, call.sandbox_id, call.image) == ("u1", "s1", "busybox")


@pytest.mark.parametrize(
    ("wanted", "scope"),
    [
        (None, Scope.ALL),
        (v1.PodSandboxFilter(), Scope.ALL),
        (v1.PodSandboxFilter(state=v1.PodSandboxStateValue(state=0)), Scope.READY),
        (v1.PodSandboxFilter(state=v1.PodSandboxStateValue(state=1)), Scope.OTHER),
        (v1.PodSandboxFilter(label_selector={UID: "u1"}), Scope.POD),
        (v1.PodSandboxFilter(label_selector={"app": "x"}), Scope.OTHER),
        (v1.PodSandboxFilter(id="s1"), Scope.OTHER),
    ],
)
def test_what_a_sandbox_list_asks_for(wanted, scope):
    call = one("ListPodSandbox", v1.ListPodSandboxRequest(filter=wanted))
    assert call.scope is scope
    assert call.pod_uid == ("u1" if scope is Scope.POD else None)


@pytest.mark.parametrize(
    ("wanted", "scope"),
    [
        (None, Scope.ALL),
        (v1.ContainerFilter(), Scope.ALL),
        (v1.ContainerFilter(state=v1.ContainerStateValue(state=1)), Scope.READY),
        (v1.ContainerFilter(state=v1.ContainerStateValue(state=0)), Scope.OTHER),
        (v1.ContainerFilter(label_selector={UID: "u1"}), Scope.POD),
        (v1.ContainerFilter(pod_sandbox_id="s1"), Scope.OTHER),
    ],
)
def test_what_a_container_list_asks_for(wanted, scope):
    assert one("ListContainers", v1.ListContainersRequest(filter=wanted)).scope is scope


def labels():
    return {UID: "u1", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop"}


def container_list(*ids):
    return v1.ListContainersResponse(
        containers=[
            v1.Container(
                id=name, pod_sandbox_id="s1", metadata=v1.ContainerMetadata(name="main"), state=1, labels=labels()
            )
            for name in ids
        ]
    )


def test_a_streamed_list_is_the_sum_of_its_messages():
    talk = Conversation().open()
    stream = talk.request(RUNTIME + "StreamContainers", v1.ListContainersRequest().SerializeToString())
    from tests.unit.conversation import grpc

    headers = talk.server.encode([(":status", "200"), ("content-type", "application/grpc")])
    talk.write("server", talk.headers(stream, headers))
    for name in ("c1", "c2", "c3"):
        talk.write("server", talk.data(stream, grpc(container_list(name).SerializeToString())))
    talk.write("server", talk.headers(stream, talk.server.encode([("grpc-status", "0")]), end=True))
    (call,) = decoded(talk)
    assert [item.id for item in call.containers] == ["c1", "c2", "c3"]
    assert (call.items, call.scope) == (3, Scope.ALL)


def test_an_id_alone_is_named_by_what_was_listed_before():
    talk = Conversation().open()
    talk.call(RUNTIME + "ListContainers", b"", container_list("c1").SerializeToString())
    talk.call(RUNTIME + "StopContainer", v1.StopContainerRequest(container_id="c1", timeout=30).SerializeToString())
    stop = decoded(talk)[1]
    assert (stop.pod, stop.container.name, stop.sandbox_id, stop.grace) == (Pod("shop", "web", "u1"), "main", "s1", 30)


def test_an_id_alone_is_named_afterwards_by_the_next_list():
    talk = Conversation().open()
    talk.call(RUNTIME + "StopContainer", v1.StopContainerRequest(container_id="c1").SerializeToString())
    talk.call(RUNTIME + "ListContainers", b"", container_list("c1").SerializeToString())
    cri, identity, later = Cri(), Identity(), []
    for event in events(talk.records)[0]:
        for item in cri.feed(event):
            later += identity.feed(item)
    (stop,) = later
    assert (stop.method, stop.pod, stop.container.name) == ("StopContainer", Pod("shop", "web", "u1"), "main")


def test_an_unknown_id_names_nobody():
    call = one("StopPodSandbox", v1.StopPodSandboxRequest(pod_sandbox_id="s7"))
    assert (call.sandbox_id, call.pod) == ("s7", None)


def test_an_exec_keeps_neither_its_command_nor_its_output():
    request = v1.ExecSyncRequest(container_id="c1", cmd=["sh", "-c", "echo hunter2"], timeout=3)
    answer = v1.ExecSyncResponse(stdout=b"hunter2", stderr=b"hunter2", exit_code=4)
    call = one("ExecSync", request, answer)
    assert (call.timeout, call.exit_code) == (3, 4)
    assert "hunter2" not in repr(call)
    assert call.rpc.request is None


def test_commands_are_told_apart_without_being_kept():
    digests = {
        one("ExecSync", v1.ExecSyncRequest(container_id="c1", cmd=cmd)).command
        for cmd in (["a", "b"], ["ab"], ["a", "b"])
    }
    assert len(digests) == 2


def test_a_pull_keeps_the_image_and_pod_and_forgets_the_credentials():
    request = v1.PullImageRequest(
        image=v1.ImageSpec(image="registry/x:1"),
        auth=v1.AuthConfig(username="u", password="hunter2", auth="hunter2", registry_token="hunter2"),
        sandbox_config=v1.PodSandboxConfig(metadata=sandbox_metadata()),
    )
    call = one("PullImage", request, v1.PullImageResponse(image_ref="sha256:1"), IMAGE)
    assert (call.image, call.pod.name) == ("registry/x:1", "web")
    assert "hunter2" not in repr(call)


def test_a_message_that_is_not_what_its_method_says_is_counted_and_the_call_stays():
    talk = Conversation().open()
    talk.call(RUNTIME + "StopContainer", b"\x0a\xff\xff")
    cri = Cri()
    found = [item.call for event in events(talk.records)[0] for item in cri.feed(event) if isinstance(item, Done)]
    assert (len(found), cri.stats.unparsed, found[0].container_id) == (1, 1, None)


def test_only_an_update_of_nothing_but_the_cpuset_is_the_cpu_managers():
    def update(**resources):
        linux = v1.LinuxContainerResources(**resources)
        return one("UpdateContainerResources", v1.UpdateContainerResourcesRequest(container_id="c", linux=linux))

    assert update(cpuset_cpus="0-1").cpuset_only
    assert not update(cpuset_cpus="0-1", cpu_shares=2).cpuset_only
    assert not update(cpu_shares=2).cpuset_only


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("pull https://user:hunter2@registry/v2/x: 401", "hunter2"),
        ("GET https://registry/token?account=a&password=hunter2: 401", "hunter2"),
        ("unexpected status: Authorization: Bearer hunter2.abc", "hunter2"),
        ("bad REGISTRY_PASSWORD=hunter2 given", "hunter2"),
        ('unable to start: exec: "/bin/app --key hunter2": not found', "hunter2"),
        ('unable to start: exec: \\"/bin/app hunter2\\": not found', "hunter2"),
        ('exec failed: exec: "/bin/hunter2": stat /bin/hunter2: no such file', "hunter2"),
    ],
)
def test_error_texts_lose_what_may_be_a_secret(text, secret):
    assert secret not in redact(text)


def test_an_exec_error_loses_every_word_of_its_command():
    talk = Conversation().open()
    stream = talk.request(
        RUNTIME + "ExecSync", v1.ExecSyncRequest(container_id="c", cmd=["sh", "hunter2"]).SerializeToString()
    )
    talk.fail(stream, 2, "command sh hunter2 failed: hunter2")
    (call,) = decoded(talk)
    assert call.rpc.error == "command sh … failed: …"


def test_error_texts_keep_their_cause_and_are_bounded():
    cause = 'failed to reserve sandbox name "web_shop_u1_0": name is reserved for "3a7e"'
    assert redact(cause) == cause
    assert len(redact("word " * 10_000)) == 512
