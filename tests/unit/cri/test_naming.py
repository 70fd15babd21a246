"""Methods on a connection older than the tracer: proven by what calls say or did, or unknown."""

import dataclasses

import pytest
from cri_api.v1 import api_pb2 as v1

from tests.unit.conversation import Conversation
from tests.unit.decode import events
from tracer.cri import Cri
from tracer.facts import Done, Named

RUNTIME = "/runtime.v1.RuntimeService/"
IMAGE = "/runtime.v1.ImageService/"
NATIVE = "/containerd.services.containers.v1.Containers/"
UID = "io.kubernetes.pod.uid"
SANDBOX, CONTAINER, OTHER = "5" * 64, "c" * 64, "d" * 64

METADATA = v1.PodSandboxMetadata(name="web", uid="u1", namespace="shop")
LABELS = {UID: "u1", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop"}


class Old:
    """A connection on which every path was sent before the tracer came, so that it sees indices only."""

    def __init__(self, *paths: str) -> None:
        self.talk = Conversation().open()
        self.paths = paths
        for path in paths:
            self.talk.call(path)
        self.joined = len(self.talk.records)
        self.ids: dict[int, tuple[str | None, str | None]] = {}  # stream -> container, sandbox, as last shown

    def call(self, path: str, request=None, answer=None, **options) -> None:
        assert path in self.paths, "a path not sent before would be a literal"
        self.talk.call(path, _bytes(request), _bytes(answer), **options)
        self.talk.time += 10_000_000

    def shown(self) -> dict[int, tuple[str | None, str]]:
        """Stream -> (method, source) as last shown."""
        base, late = {}, []
        for record in self.talk.records[self.joined :]:
            start = base.setdefault((record.side, record.direction), record.offset)
            late.append(dataclasses.replace(record, offset=record.offset - start))
        cri, found = Cri(), {}
        for event in events(late)[0]:
            for item in cri.feed(event):
                if isinstance(item, (Done, Named)):
                    found[item.call.rpc.stream] = (item.call.method, item.call.method_source)
                    self.ids[item.call.rpc.stream] = (item.call.container_id, item.call.sandbox_id)
        self.stats = cri.stats
        return found

    def methods(self) -> list[str | None]:
        return [method for _, (method, _) in sorted(self.shown().items())]


def _bytes(message) -> bytes:
    return b"" if message is None else message.SerializeToString()


def containers(*states: tuple[str, int]):
    return v1.ListContainersResponse(
        containers=[
            v1.Container(
                id=i, pod_sandbox_id=SANDBOX, metadata=v1.ContainerMetadata(name="main"), state=s, labels=LABELS
            )
            for i, s in states
        ]
    )


def sandboxes(*states: tuple[str, int]):
    return v1.ListPodSandboxResponse(
        items=[v1.PodSandbox(id=i, metadata=METADATA, state=s, labels=LABELS) for i, s in states]
    )


def sandbox_status(ident):
    return v1.PodSandboxStatusResponse(status=v1.PodSandboxStatus(id=ident, metadata=METADATA))


def container_status(ident):
    status = v1.ContainerStatus(id=ident, metadata=v1.ContainerMetadata(name="main"), labels=LABELS)
    return v1.ContainerStatusResponse(status=status)


IMAGE_ID = "sha256:" + "a" * 64
PROVEN = [
    (RUNTIME + "ListPodSandbox", v1.ListPodSandboxRequest(filter={}), sandboxes((SANDBOX, 0))),
    (RUNTIME + "ListContainers", v1.ListContainersRequest(filter={}), containers((CONTAINER, 1))),
    (RUNTIME + "PodSandboxStatus", v1.PodSandboxStatusRequest(pod_sandbox_id=SANDBOX), sandbox_status(SANDBOX)),
    (RUNTIME + "ContainerStatus", v1.ContainerStatusRequest(container_id=CONTAINER), container_status(CONTAINER)),
    (
        RUNTIME + "RunPodSandbox",
        v1.RunPodSandboxRequest(config=v1.PodSandboxConfig(metadata=METADATA, labels=LABELS)),
        v1.RunPodSandboxResponse(pod_sandbox_id=SANDBOX),
    ),
    (
        RUNTIME + "CreateContainer",
        v1.CreateContainerRequest(
            pod_sandbox_id=SANDBOX,
            config=v1.ContainerConfig(metadata=v1.ContainerMetadata(name="main")),
            sandbox_config=v1.PodSandboxConfig(metadata=METADATA),
        ),
        v1.CreateContainerResponse(container_id=CONTAINER),
    ),
    (
        RUNTIME + "Status",
        v1.StatusRequest(),
        v1.StatusResponse(status=v1.RuntimeStatus(conditions=[v1.RuntimeCondition(type="RuntimeReady", status=True)])),
    ),
    (
        RUNTIME + "Version",
        v1.VersionRequest(version="0.1.0"),
        v1.VersionResponse(version="0.1.0", runtime_name="containerd", runtime_api_version="v1"),
    ),
    (
        IMAGE + "ImageStatus",
        v1.ImageStatusRequest(image=v1.ImageSpec(image="busybox")),
        v1.ImageStatusResponse(image=v1.Image(id=IMAGE_ID, repo_tags=["docker.io/library/busybox:1"], size=1)),
    ),
    (IMAGE + "ListImages", v1.ListImagesRequest(), v1.ListImagesResponse(images=[v1.Image(id=IMAGE_ID, size=1)])),
]


@pytest.mark.parametrize(("path", "request_", "answer"), PROVEN, ids=[path.rsplit("/")[-1] for path, _, _ in PROVEN])
def test_a_call_whose_messages_only_one_method_has_is_named(path, request_, answer):
    old = Old(path)
    old.call(path, request_, answer)
    assert list(old.shown().values()) == [(path.rsplit("/")[-1], "inferred")]


def test_what_one_call_proves_names_all_calls_of_its_entry_also_those_before():
    path = RUNTIME + "ListPodSandbox"
    old = Old(path)
    old.call(path, v1.ListPodSandboxRequest(filter={}))  # an empty answer proves nothing
    old.call(path, v1.ListPodSandboxRequest(filter={}), sandboxes((SANDBOX, 0)))
    old.call(path, v1.ListPodSandboxRequest(filter={}))
    assert old.methods() == ["ListPodSandbox"] * 3


def test_empty_lists_stay_unknown():
    path = RUNTIME + "ListContainers"
    old = Old(path)
    for _ in range(5):
        old.call(path, v1.ListContainersRequest(filter={}))
    assert set(old.shown().values()) == {(None, "unknown")}


def test_an_empty_list_with_the_kubelets_filter_is_named_when_the_other_list_is():
    paths = [RUNTIME + "ListPodSandbox", RUNTIME + "ListContainers"]
    old = Old(*paths)
    old.call(paths[1], v1.ListContainersRequest(filter={}), containers((CONTAINER, 1)))
    old.call(paths[0], v1.ListPodSandboxRequest(filter={"state": {"state": 0}}))
    assert old.methods() == ["ListContainers", "ListPodSandbox"]


def test_a_started_container_names_what_started_it():
    paths = [RUNTIME + name for name in ("CreateContainer", "StartContainer", "ListContainers")]
    old = Old(*paths)
    create = next((request, answer) for path, request, answer in PROVEN if path == paths[0])
    old.call(paths[0], *create)
    old.call(paths[1], v1.StartContainerRequest(container_id=CONTAINER))
    assert old.methods() == ["CreateContainer", None]
    old.call(paths[2], v1.ListContainersRequest(filter={}), containers((CONTAINER, 1)))
    assert old.methods() == ["CreateContainer", "StartContainer", "ListContainers"]


def test_a_vanished_container_names_what_removed_it():
    paths = [RUNTIME + name for name in ("ListContainers", "RemoveContainer")]
    old = Old(*paths)
    old.call(paths[0], v1.ListContainersRequest(filter={}), containers((CONTAINER, 2), (OTHER, 1)))
    old.call(paths[1], v1.RemoveContainerRequest(container_id=CONTAINER))
    old.call(paths[0], v1.ListContainersRequest(filter={}), containers((OTHER, 1)))
    assert old.methods() == ["ListContainers", "RemoveContainer", "ListContainers"]


def test_a_running_containers_unknown_call_is_not_taken_for_a_removal():
    paths = [RUNTIME + name for name in ("ListContainers", "ReopenContainerLog")]
    old = Old(*paths)
    old.call(paths[0], v1.ListContainersRequest(filter={}), containers((CONTAINER, 1), (OTHER, 1)))
    old.call(paths[1], v1.ReopenContainerLogRequest(container_id=CONTAINER))
    old.call(paths[0], v1.ListContainersRequest(filter={}), containers((OTHER, 1)))
    assert old.methods() == ["ListContainers", None, "ListContainers"]


def test_stop_and_removal_of_a_sandbox_are_told_by_their_order():
    paths = [RUNTIME + name for name in ("ListPodSandbox", "StopPodSandbox", "RemovePodSandbox")]
    old = Old(*paths)
    all_ = v1.ListPodSandboxRequest(filter={})
    old.call(paths[0], all_, sandboxes((SANDBOX, 1), (OTHER, 0)))
    old.call(paths[1], v1.StopPodSandboxRequest(pod_sandbox_id=SANDBOX))
    old.call(paths[2], v1.RemovePodSandboxRequest(pod_sandbox_id=SANDBOX))
    old.call(paths[0], all_, sandboxes((OTHER, 0)))
    assert old.methods() == ["ListPodSandbox", "StopPodSandbox", "RemovePodSandbox", "ListPodSandbox"]


def test_calls_named_afterwards_have_the_id_they_asked_for():
    """Each of these asks for one id; only the name tells whether it is a container's or a sandbox's."""
    names = ("ListContainers", "ListPodSandbox", "StartContainer", "StopPodSandbox", "RemovePodSandbox")
    lists, pods, start, stop, remove = paths = [RUNTIME + name for name in names]
    old = Old(*paths)
    old.call(lists, v1.ListContainersRequest(filter={}), containers((CONTAINER, 0)))
    old.call(pods, v1.ListPodSandboxRequest(filter={}), sandboxes((SANDBOX, 1), (OTHER, 0)))
    old.call(start, v1.StartContainerRequest(container_id=CONTAINER))
    old.call(stop, v1.StopPodSandboxRequest(pod_sandbox_id=SANDBOX))
    old.call(remove, v1.RemovePodSandboxRequest(pod_sandbox_id=SANDBOX))
    old.call(lists, v1.ListContainersRequest(filter={}), containers((CONTAINER, 1)))
    old.call(pods, v1.ListPodSandboxRequest(filter={}), sandboxes((OTHER, 0)))
    assert old.methods() == [*names[:2], *names[2:], *names[:2]]
    assert [ids for _, ids in sorted(old.ids.items())][2:5] == [(CONTAINER, None), (None, SANDBOX), (None, SANDBOX)]


def test_a_call_whose_name_is_taken_back_has_no_id_either():
    lists, start = RUNTIME + "ListContainers", RUNTIME + "StartContainer"
    old = Old(lists, start)
    old.call(lists, v1.ListContainersRequest(filter={}), containers((CONTAINER, 0)))
    old.call(start, v1.StartContainerRequest(container_id=CONTAINER))
    old.call(lists, v1.ListContainersRequest(filter={}), containers((CONTAINER, 1)))
    assert old.methods()[1] == "StartContainer"
    old.call(start, v1.StopContainerRequest(container_id=CONTAINER, timeout=30))
    assert old.methods()[1] is None
    assert sorted(old.ids.items())[1][1] == (None, None)


def test_a_sandbox_that_vanished_after_one_unknown_call_names_nothing():
    """Either of stop and removal may have been missed."""
    paths = [RUNTIME + name for name in ("ListPodSandbox", "StopPodSandbox")]
    old = Old(*paths)
    all_ = v1.ListPodSandboxRequest(filter={})
    old.call(paths[0], all_, sandboxes((SANDBOX, 1), (OTHER, 0)))
    old.call(paths[1], v1.StopPodSandboxRequest(pod_sandbox_id=SANDBOX))
    old.call(paths[0], all_, sandboxes((OTHER, 0)))
    assert old.methods() == ["ListPodSandbox", None, "ListPodSandbox"]


def test_a_sandbox_that_became_not_ready_names_its_stop():
    paths = [RUNTIME + name for name in ("ListPodSandbox", "StopPodSandbox")]
    old = Old(*paths)
    all_ = v1.ListPodSandboxRequest(filter={})
    old.call(paths[0], all_, sandboxes((SANDBOX, 0)))
    old.call(paths[1], v1.StopPodSandboxRequest(pod_sandbox_id=SANDBOX))
    old.call(paths[0], all_, sandboxes((SANDBOX, 1)))
    assert old.methods() == ["ListPodSandbox", "StopPodSandbox", "ListPodSandbox"]


def probe(cmd, timeout=3):
    return v1.ExecSyncRequest(container_id=CONTAINER, cmd=cmd, timeout=timeout)


@pytest.mark.parametrize(
    ("request_", "answer", "name"),
    [
        (probe(["cat", "/ready"]), v1.ExecSyncResponse(stdout=b"yes"), "ExecSync"),
        (probe(["/bin/true"]), None, "ExecSync"),
        (probe(["cat", "/ready"]), v1.ExecResponse(url="http://127.0.0.1:1/exec/x"), None),
        (probe(["/var/lib/kubelet/checkpoints/checkpoint-web_shop-main-1.tar"]), None, None),
        (v1.StopContainerRequest(container_id=CONTAINER, timeout=30), None, "StopContainer"),
        (v1.StopContainerRequest(container_id=OTHER, timeout=30), None, None),
    ],
)
def test_shapes_that_several_methods_have_need_more_than_their_shape(request_, answer, name):
    paths = [RUNTIME + "ListContainers", RUNTIME + "ExecSync"]
    old = Old(*paths)
    old.call(paths[0], v1.ListContainersRequest(filter={}), containers((CONTAINER, 1)))
    # The deadline is an old entry too: not known.
    old.call(paths[1], request_, answer)
    assert old.methods() == ["ListContainers", name]


def test_containerds_own_api_is_never_taken_for_the_cri():
    """`Containers/Get` {id} answers with {container{id, labels, image, ...}}, which fits ExecSync by accident."""
    path = NATIVE + "Get"
    old = Old(path, RUNTIME + "ListContainers")
    old.call(RUNTIME + "ListContainers", v1.ListContainersRequest(filter={}), containers((CONTAINER, 1)))
    container = b"\x0a\x40" + CONTAINER.encode() + b"\x12\x05\x0a\x01a\x12\x00" + b"\x1a\x07busybox"
    answer = b"\x0a" + bytes([len(container)]) + container
    old.talk.call(path, b"\x0a\x40" + CONTAINER.encode(), answer)
    assert old.methods() == ["ListContainers", None]


def test_a_name_is_taken_back_when_a_later_call_cannot_be_it():
    path = RUNTIME + "Status"
    old = Old(path)
    status = next((request, answer) for name, request, answer in PROVEN if name == path)
    old.call(path, *status)
    assert old.methods() == ["Status"]
    old.call(path, v1.StopContainerRequest(container_id=CONTAINER, timeout=30))
    assert old.methods() == [None, None]
    assert old.stats.naming.withdrawn == 1
    old.call(path, *status)
    assert old.methods() == [None, None, None]


def test_two_entries_of_one_table_cannot_be_one_method():
    paths = [RUNTIME + "Status", RUNTIME + "Version"]
    old = Old(*paths)
    status = next((request, answer) for name, request, answer in PROVEN if name == paths[0])
    old.call(paths[0], *status)
    old.call(paths[1], *status)
    assert old.methods() == [None, None]


def test_a_status_that_is_an_old_entry_is_proven_by_the_answers_message():
    path = RUNTIME + "Status"
    old = Old(path)
    status = next((request, answer) for name, request, answer in PROVEN if name == path)
    old.call(path, *status)
    base, late = {}, []
    for record in old.talk.records[old.joined :]:
        start = base.setdefault((record.side, record.direction), record.offset)
        late.append(dataclasses.replace(record, offset=record.offset - start))
    cri, found = Cri(), []
    for event in events(late)[0]:
        found += [item.call.rpc.status for item in cri.feed(event) if isinstance(item, Done)]
    assert found == ["OK"]
