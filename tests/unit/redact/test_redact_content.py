"""What of a message is secret: by its schema, or by what it looks like."""

import dataclasses
import gzip
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as v1
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.redact.canary import CONTAINER, SANDBOX, UID, calls
from tracer.protowire import Malformed, fields
from tracer.records import Exec
from tracer.redact import http1, process
from tracer.redact.content import Contents, overwritten
from tracer.redact.guess import secrets
from tracer.redact.proof import proven
from tracer.redact.schema import SECRET_FIELDS, Plan, Rule, plan_for, plan_of
from tracer.redact.walk import Walk

TEXT_FIELDS = Path(__file__).parents[2] / "data" / "cri-text-fields.txt"


def field(number: int, data: bytes) -> bytes:
    size, length = b"", len(data)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def guessed(data: bytes) -> bytes:
    return overwritten(data, secrets(data, 0, len(data)))


# by schema


def text_fields():
    """Every field of the CRI that can hold text, and what happens to it."""
    for name, message in sorted(v1.DESCRIPTOR.message_types_by_name.items()):
        plan = plan_of(message)
        for member in message.fields:
            rule = plan.rules.get(member.number << 3 | 2)
            entry = member.message_type is not None and member.message_type.GetOptions().map_entry
            if member.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
                yield f"{name}.{member.name} {'overwrite' if rule is Rule.OVERWRITE else 'keep'}"
            elif entry:
                yield f"{name}.{member.name} {'keep' if isinstance(rule, Plan) else rule.name.lower()}"


def test_every_text_field_of_the_schema_was_looked_at():
    """A newer schema has new fields: decide for each whether it may hold a secret, then add it to the list."""
    assert list(text_fields()) == TEXT_FIELDS.read_text().splitlines()


def test_every_secret_field_exists():
    known = {line.split()[0] for line in TEXT_FIELDS.read_text().splitlines()}
    assert known >= SECRET_FIELDS


@pytest.mark.parametrize(
    ("path", "request_name", "response_name"),
    [
        ("/runtime.v1.RuntimeService/Status", "StatusRequest", "StatusResponse"),
        ("/runtime.v1alpha2.ImageService/PullImage", "PullImageRequest", "PullImageResponse"),
        ("/runtime.v1.RuntimeService/StreamPodSandboxes", "ListPodSandboxRequest", "ListPodSandboxResponse"),
        ("/runtime.v1.ImageService/StreamImages", "ListImagesRequest", "ListImagesResponse"),
        ("/runtime.v1.RuntimeService/StreamContainers", "ListContainersRequest", "ListContainersResponse"),
        ("/runtime.v1.RuntimeService/StreamContainerStats", "ListContainerStatsRequest", "ListContainerStatsResponse"),
        (
            "/runtime.v1.RuntimeService/StreamPodSandboxStats",
            "ListPodSandboxStatsRequest",
            "ListPodSandboxStatsResponse",
        ),
        (
            "/runtime.v1.RuntimeService/StreamPodSandboxMetrics",
            "ListPodSandboxMetricsRequest",
            "ListPodSandboxMetricsResponse",
        ),
        ("/runtime.v1.RuntimeService/GetContainerEvents", "GetEventsRequest", "ContainerEventResponse"),
        ("/runtime.v1.RuntimeService/PullImage", None, None),
        ("/runtime.v1.RuntimeService/Unheard", None, None),
        ("/runtime.v2.RuntimeService/Status", None, None),
        ("/containerd.services.version.v1.Version/Version", None, None),
        ("/runtime.v1.RuntimeService", None, None),
        ("/", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_a_method_has_the_plans_of_its_messages(path, request_name, response_name):
    plans = plan_for(path, "request"), plan_for(path, "response")
    assert tuple(plan.name if plan else None for plan in plans) == (request_name, response_name)


def test_every_method_has_plans():
    for service in v1.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            path = f"/{service.full_name}/{method.name}"
            assert plan_for(path, "request") is plan_of(method.input_type)
            assert plan_for(path, "response") is plan_of(method.output_type)


@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        ({"io.kubernetes.container.restartCount": "3"}, True),
        ({"kubernetes.io/config.seen": "2026"}, True),
        ({"io.kubernetes.container.preStopHandler": '{"exec":{"command":["sh"]}}'}, False),
        ({"io.kubernetes.cri-o.Annotations": "{}"}, False),
        ({"kubectl.kubernetes.io/last-applied-configuration": "{}"}, False),
        ({"": "empty key"}, False),
    ],
)
def test_annotations_of_the_kubelet_itself_are_kept(annotations, kept):
    body = v1.PodSandboxConfig(annotations=annotations).SerializeToString()
    clean = Contents().follow(plan_of(v1.PodSandboxConfig.DESCRIPTOR), body)
    after = v1.PodSandboxConfig.FromString(clean).annotations
    assert set(after) == set(annotations)
    assert (after == annotations) is kept
    assert len(clean) == len(body)


@pytest.mark.parametrize(
    "entry",
    [
        field(2, b"the secret") + field(1, b"note"),  # in the other order
        field(1, b"kubernetes.io/config.seen") + field(1, b"note") + field(2, b"the secret"),  # two keys
        field(2, b"the secret"),  # no key
        field(1, b"kubernetes.io/config.seen") + field(3, b"the secret"),
        field(2, b"the secret") + b"\x0a\x7f",  # cut off
        field(2, b"the secret") + b"\x0b",  # a group
    ],
)
def test_odd_entries_of_maps_are_overwritten(entry):
    body = field(7, entry)
    clean = Contents().follow(plan_of(v1.PodSandboxConfig.DESCRIPTOR), body)
    assert b"secret" not in clean
    assert len(clean) == len(body)


def test_a_number_in_an_entry_of_a_map_leaves_the_message_one():
    number = b"\x20\xde\xe2\x8e\xaf\xfe\x9d\x96\xbd\xd6\x01"  # of field 4, in ten bytes
    entry = field(1, b"config") + field(2, b"the secret") + number + field(5, b"the secret")
    clean = Contents().follow(plan_of(v1.StatusResponse.DESCRIPTOR), field(2, entry))
    assert v1.StatusResponse.FromString(clean)  # raises when it is none
    assert number in clean
    assert b"secret" not in clean


@pytest.mark.parametrize(
    "spoiled",
    [
        field(1, b"id")[:-1],  # cut off
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01the secret",  # a length of eleven bytes
        b"\x0b\x0athe secret",  # a group
        b"\x02\x0athe secret",  # field 0
        b"\x0f\x0athe secret",  # no such wire type
        b"\x0a\x7fthe secret",
        b"\xff" * 20 + b"the secret",
        b"\x09secret",  # eight bytes that are six
    ],
)
def test_what_is_no_message_is_overwritten_from_there(spoiled):
    plan = plan_of(v1.ContainerStatusRequest.DESCRIPTOR)
    whole = field(1, b"keep") + spoiled
    clean = Contents().follow(plan, whole)
    assert clean == field(1, b"keep") + b"x" * len(spoiled)
    assert guessed(spoiled + b"secret").count(b"secret") == 0


def test_a_text_where_a_number_should_be_is_overwritten():
    plan = plan_of(v1.ExecSyncRequest.DESCRIPTOR)
    assert Contents().follow(plan, field(3, b"the secret")) == field(3, b"x" * 10)


@given(st.binary(max_size=80))
def test_any_bytes_follow_any_plan_without_error(body):
    contents = Contents()
    for kind in (v1.CreateContainerRequest, v1.ListContainersResponse, v1.ListPodSandboxMetricsResponse):
        assert len(contents.follow(plan_of(kind.DESCRIPTOR), body)) == len(body)
    assert len(contents.prove("response", body)[0]) == len(body)
    assert len(guessed(body)) == len(body)


def test_messages_in_messages_end_somewhere():
    body = b""
    for _ in range(3000):
        body = field(1, body)
    body = field(1, body)
    assert len(guessed(body)) == len(body)
    assert len(Contents().prove("request", body)[0]) == len(body)


@given(st.binary(max_size=60))
def test_fields_lie_one_behind_the_other(body):
    end = 0
    try:
        for tag, begin, until in fields(body, 0, len(body)):
            assert tag >= 8
            assert end < begin <= until <= len(body)
            end = until
        assert end == len(body)
    except Malformed as malformed:
        assert malformed.at == end


def test_a_message_seen_before_is_not_walked_again():
    contents = Contents()
    body = v1.StatusRequest(verbose=True).SerializeToString()
    for _ in range(3):
        contents.clean("/runtime.v1.RuntimeService/Status", "request", body)
    assert (contents.stats.known, contents.stats.memoised) == (1, 2)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("tracer.redact.content.MAX_MEMO_BYTES", 10_000)
    monkeypatch.setattr("tracer.redact.walk.MAX_ITEM_BYTES", 5_000)
    contents = Contents()
    for number in range(400):
        item = v1.Container(id=f"{number:064x}", annotations={"a": "b" * 300})
        body = v1.ListContainersResponse(containers=[item]).SerializeToString()
        assert b"bbb" not in contents.clean("/runtime.v1.RuntimeService/ListContainers", "response", body)
    assert sum(len(key[1]) * 2 for key in contents._memo) <= 10_000
    assert sum(len(key[1]) for key in contents._walk._items) <= 5_000


# by looks


@pytest.mark.parametrize(
    "body",
    [
        field(1, CONTAINER.encode()),
        field(1, CONTAINER.encode()) + field(2, SANDBOX.encode()),
        field(1, b"io.kubernetes.pod.uid") + field(2, UID.encode()),
        field(1, b"io.kubernetes.pod.uid") + field(2, UID.replace("-", "").encode()),
        field(1, b"io.kubernetes.pod.name") + field(2, b"web-0"),
        field(2, field(1, b"io.kubernetes.pod.namespace") + field(2, b"kube-system")),
        field(1, field(3, field(1, b"io.kubernetes.container.name") + field(2, b"app"))),
        field(1, b"containerd.events.TaskExit") + field(2, field(1, CONTAINER.encode()) + b"\x18\x2a"),
        b"\x08\x96\x01\x10\x07",
        field(1, b"\x08\x01"),
    ],
)
def test_ids_labels_types_and_numbers_are_kept(body):
    assert guessed(body) == body


@pytest.mark.parametrize(
    ("body", "clean"),
    [
        (field(1, b"hunter2"), field(1, b"x" * 7)),
        (field(2, CONTAINER.encode()), field(2, b"x" * 64)),
        (field(1, b"KEY") + field(2, CONTAINER.encode()), field(1, b"xxx") + field(2, b"x" * 64)),
        (
            field(1, b"io.kubernetes.pod.name") + field(2, b"no name!"),
            field(1, b"io.kubernetes.pod.name") + field(2, b"x" * 8),
        ),
        (
            field(1, b"io.kubernetes.pod.uid") + field(2, b"web-0"),
            field(1, b"io.kubernetes.pod.uid") + field(2, b"x" * 5),
        ),
        (
            field(1, b"io.kubernetes.pod.name") + field(2, b"web-0") + field(3, b"more"),
            field(1, b"io.kubernetes.pod.name") + field(2, b"x" * 5) + field(3, b"xxxx"),
        ),
        (field(1, CONTAINER.upper().encode()), field(1, b"x" * 64)),
        (field(1, CONTAINER.encode()) + field(3, SANDBOX.encode()), field(1, CONTAINER.encode()) + field(3, b"x" * 64)),
        (field(2, b"\n\x20" + b"s" * 32 + b"hahb"), field(2, b"x" * 38)),  # ... field 1, a text, and a number twice
        (field(1, b"adminpass"), field(1, b"x" * 9)),  # reads as a message: field 12, eight bytes
        (field(1, b"hahbhc"), field(1, b"x" * 6)),  # ... field 13, a number, three times
        (field(3, b"\tsecret!!"), field(3, b"x" * 9)),  # ... field 1, eight bytes
        (field(1, b"line\nline\n"), field(1, b"x" * 10)),
        (field(1, b"\x00\x01\x02binary"), field(1, b"x" * 9)),
        (field(1, "größe".encode()), field(1, b"x" * 7)),
        (b"\x09sixbytes", b"\x09xxxxxxxx"),  # eight bytes as a number
        (b"\x0dfour", b"\x0dxxxx"),
        (field(1, field(1, b"nested" * 10)), field(1, field(1, b"x" * 60))),
        (field(1, field(2, b"nested")), field(1, field(2, b"x" * 6))),
        (b"\xfa\x7f\x03abc", b"x" * 6),  # field 2047: not believed
    ],
)
def test_everything_else_is_overwritten_in_its_shape(body, clean):
    assert guessed(body) == clean


@given(st.text(min_size=5, max_size=60).filter(lambda text: text.isprintable()))
def test_no_text_shows_through_its_look_alike_message(text):
    raw = text.encode()
    clean = guessed(field(1, raw) + field(2, raw) + field(3, field(2, raw)))
    assert raw[1:4] not in clean or raw == b"x" * len(raw) or b"x" * 3 in raw


# by proof

AGED = 1_796_000_000_000_000_000
FILESYSTEM = v1.FilesystemUsage(timestamp=AGED, fs_id=v1.FilesystemIdentifier(mountpoint="/var/lib/containerd"))
PROVEN = {
    "StatusResponse": v1.StatusResponse(
        status=v1.RuntimeStatus(
            conditions=[v1.RuntimeCondition(type=kind, status=True) for kind in ("RuntimeReady", "NetworkReady")]
        )
    ),
    "VersionResponse": v1.VersionResponse(version="0.1.0", runtime_name="containerd", runtime_api_version="v1"),
    "ImageFsInfoResponse": v1.ImageFsInfoResponse(image_filesystems=[FILESYSTEM]),
    "ListImagesResponse": v1.ListImagesResponse(images=[v1.Image(id=f"sha256:{CONTAINER}", size=7, repo_tags=["a:1"])]),
    "ImageStatusResponse": v1.ImageStatusResponse(image=v1.Image(id=CONTAINER, size=7)),
    "ImageStatusRequest": v1.ImageStatusRequest(
        image=v1.ImageSpec(image="a:1", annotations={"kubernetes.io/config.seen": "2026"})
    ),
}
PLANTED = {
    "CreateContainerRequest", "RunPodSandboxRequest", "PullImageRequest", "ListContainersResponse",
    "ListPodSandboxResponse", "ContainerStatusResponse", "PodSandboxStatusResponse",
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_a_message_of_no_known_method_can_prove_its_schema(name):
    way = "request" if name.endswith("Request") else "response"
    body = PROVEN[name].SerializeToString()
    plans = list(proven(way, body))
    assert name in [plan.name for plan in plans]
    assert len(plans) == 1 or "image" in name.lower()
    assert Contents().prove(way, body)[0] == overwritten(body, Walk().secrets(plans[0], body)[0])


def test_only_messages_about_pods_that_state_it_twice_are_proven():
    found = set()
    for path, bodies in calls().items():
        for way, body in zip(("request", "response"), bodies, strict=True):
            for plan in proven(way, body):
                assert plan is plan_for(path, way)
                found.add(plan.name)
    assert found == PLANTED


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("ListContainersResponse", lambda m: m.containers.add()),
        ("ListContainersResponse", lambda m: setattr(m.containers[0], "id", "short")),
        ("ListContainersResponse", lambda m: setattr(m.containers[0].metadata, "name", "other")),
        ("ListContainersResponse", lambda m: m.containers[1].labels.pop("io.kubernetes.pod.uid")),
        ("ListContainersResponse", lambda m: m.containers[1].labels.pop("io.kubernetes.pod.name")),
        ("ListContainersResponse", lambda m: m.containers[1].labels.pop("io.kubernetes.container.name")),
        ("ListPodSandboxResponse", lambda m: setattr(m.items[0], "id", "short")),
        ("ListPodSandboxResponse", lambda m: setattr(m.items[0].metadata, "uid", "other")),
        ("ListPodSandboxResponse", lambda m: setattr(m.items[0].metadata, "name", "other")),
        ("ListPodSandboxResponse", lambda m: setattr(m.items[0].metadata, "namespace", "other")),
        ("ContainerStatusResponse", lambda m: setattr(m.status, "id", "short")),
        ("ContainerStatusResponse", lambda m: setattr(m.status.metadata, "name", "")),
        ("PodSandboxStatusResponse", lambda m: setattr(m.status, "id", "short")),
        ("PodSandboxStatusResponse", lambda m: setattr(m.status.metadata, "uid", "")),
        ("CreateContainerRequest", lambda m: setattr(m, "pod_sandbox_id", "short")),
        ("CreateContainerRequest", lambda m: setattr(m.config.metadata, "name", "other")),
        ("CreateContainerRequest", lambda m: setattr(m.sandbox_config.metadata, "uid", "other")),
        ("RunPodSandboxRequest", lambda m: m.config.labels.clear()),
        ("PullImageRequest", lambda m: setattr(m.image, "image", "")),
        ("PullImageRequest", lambda m: m.sandbox_config.labels.clear()),
        ("StatusResponse", lambda m: m.status.conditions.pop()),
        ("VersionResponse", lambda m: setattr(m, "version", "0.2.0")),
        ("VersionResponse", lambda m: setattr(m, "runtime_name", "")),
        ("VersionResponse", lambda m: setattr(m, "runtime_api_version", "v9")),
        ("ImageFsInfoResponse", lambda m: setattr(m.image_filesystems[0], "timestamp", 5)),
        ("ImageFsInfoResponse", lambda m: setattr(m.image_filesystems[0].fs_id, "mountpoint", "var")),
        ("ListImagesResponse", lambda m: setattr(m.images[0], "id", "app:1")),
        ("ListImagesResponse", lambda m: setattr(m.images[0], "size", 0)),
        ("ImageStatusRequest", lambda m: m.image.annotations.clear()),
        ("ImageStatusRequest", lambda m: setattr(m.image, "image", "")),
    ],
)
def test_a_proof_takes_everything_that_it_asks_for(kind, spoil):
    """One value that is not as it should be, and nothing is proven."""
    bodies = {name: message.SerializeToString() for name, message in PROVEN.items()}
    for path, (request, answer) in calls().items():
        for plan, body in ((plan_for(path, "request"), request), (plan_for(path, "response"), answer)):
            bodies.setdefault(plan.name, body)
    message = getattr(v1, kind).FromString(bodies[kind])
    way = "request" if kind.endswith("Request") else "response"
    assert kind in [plan.name for plan in proven(way, message.SerializeToString())]
    spoil(message)
    assert kind not in [plan.name for plan in proven(way, message.SerializeToString())]


def test_what_is_proven_but_not_strict_is_guessed():
    """A field left over means another message, or a newer one: then nothing is taken for granted."""
    contents = Contents()
    body = PROVEN["VersionResponse"].SerializeToString()
    assert contents.prove("response", body)[0] == body
    assert b"containerd" not in contents.prove("response", body + field(9, b"more"))[0]
    assert (contents.stats.proven, contents.stats.guessed) == (1, 1)


def test_an_answer_for_one_image_may_be_a_list_of_one():
    body = v1.ImageStatusResponse(
        image=PROVEN["ListImagesResponse"].images[0], info={"a": "secret"}
    ).SerializeToString()
    clean = Contents().prove("response", body)[0]
    assert v1.ImageStatusResponse.FromString(clean).image == PROVEN["ListImagesResponse"].images[0]
    assert b"secret" not in clean


def test_a_method_of_another_service_proves_nothing():
    body = PROVEN["VersionResponse"].SerializeToString()
    assert b"containerd" not in Contents().clean("/other.Service/Version", "response", body)


@pytest.mark.parametrize("name", PROVEN)
def test_half_a_proof_is_none(name):
    """Each of the values asked for matters."""
    way = "request" if name.endswith("Request") else "response"
    assert list(proven(way, type(PROVEN[name])().SerializeToString())) == []
    for other in v1.DESCRIPTOR.message_types_by_name.values():
        kind = getattr(v1, other.name)
        for body in (kind().SerializeToString(), field(1, b"\x08\x01"), field(1, CONTAINER.encode())):
            assert list(proven(way, body)) == []


# compression


def repacked(path, packed):
    contents = Contents()
    return contents.repacked(packed, lambda plain: contents.clean(path, "request", plain))


def test_a_packed_message_keeps_its_length_and_unpacks():
    path = "/runtime.v1.ImageService/PullImage"
    body = v1.PullImageRequest(auth=v1.AuthConfig(password="0123456789abcdef" * 8)).SerializeToString()
    for level in (1, 6, 9):
        packed = gzip.compress(body, level)
        clean = repacked(path, packed)
        assert clean is not None
        assert len(clean) == len(packed)
        assert v1.PullImageRequest.FromString(gzip.decompress(clean)).auth.password == "x" * 128


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"no gzip",
        b"\x1f\x8b\x08",
        gzip.compress(b"abc", mtime=0)[:-1],
        gzip.compress(b"abc", mtime=0) + b"more",
        b"\x1f\x8b\x08" * 9,
    ],
)
def test_what_does_not_unpack_is_not_repacked(packed):
    assert repacked("/a.B/C", packed) is None


def test_a_bomb_is_not_unpacked():
    assert repacked("/a.B/C", gzip.compress(bytes(20 << 20))) is None


# HTTP/1.1


@pytest.mark.parametrize(
    ("data", "clean"),
    [
        (
            b"GET /info HTTP/1.1\r\nHost: crio\r\nAuthorization: Bearer abc\r\n\r\nbody",
            b"GET /infoxxxxxxxxx\r\nHost: xxxx\r\nAuthorization: xxxxxxxxxx\r\n\r\nxxxx",
        ),
        (b"GET /info?token=abc HTTP/1.1\r\n\r\n", b"GET xxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n"),
        (
            b"GET /containers/" + CONTAINER.encode() + b" HTTP/1.1\r\n\r\n",
            b"GET /containers/" + CONTAINER.encode() + b"xxxxxxxxx\r\n\r\n",
        ),
        (b"GET /exec/t0ken HTTP/1.1\r\n\r\n", b"GET xxxxxxxxxxxxxxxxxxxx\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nDate: now\r\n\r\n{}", b"HTTP/1.1 200xxx\r\nDate: xxx\r\n\r\nxx"),
        (b"HTTP/1.1 200 OK\r\nSet-Coo", b"HTTP/1.1 200xxx\r\nxxxxxxx"),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", b"HTTP/1.1 200xxx\r\nxxxxxxxxx\r\n\r\n"),
        (b"PUT /x HTTP/1.1", b"xxxxxxxxxxxxxxx"),
    ],
)
def test_http1_keeps_the_shape_of_its_head(data, clean):
    assert http1.clean(data) == clean


@pytest.mark.parametrize("data", [b"", b"some body", b"{}", b"GETTING", b"HTTP/2.0 200 OK\r\n"])
def test_what_begins_no_http1_message_is_not_shown(data):
    assert http1.clean(data) is None


# programs

RUNC = ["runc", "--root", "/run/containerd/runc/k8s.io", "create", "--bundle", "/run/b", CONTAINER]


@pytest.mark.parametrize(
    ("argv", "env", "clean"),
    [
        (["/opt/cni/bin/bridge", "--x"], {}, ["/opt/cni/bin/bridge", "xxx"]),
        (["/bin/sh", "/opt/cni/bin/slow", "/opt/cni/bin/it"], {}, ["sh", "/opt/cni/bin/slow", "x" * 15]),
        (["/etc/cni/net.d/key/token"], {}, ["token"]),
        (["sh", "/x/cni/a b"], {}, ["sh", "x" * 10]),
        (RUNC, {}, RUNC),
        (["/usr/bin/containerd-shim-runc-v2", "-id", "x"], {}, ["/usr/bin/containerd-shim-runc-v2", "-id", "x"]),
        (["/usr/bin/conmon", "-c", CONTAINER], {}, ["/usr/bin/conmon", "-c", CONTAINER]),
        (["sh", "-c", "curl -u me:pw"], {}, ["sh", "xx", "xxxxxxxxxxxxx"]),
        (["/opt/app/bin/serve", "--token=1"], {}, ["serve", "xxxxxxxxx"]),
        (["/opt/cni/bin/bridge", "odd"], {"CNI_COMMAND": "ADD"}, ["/opt/cni/bin/bridge", "xxx"]),
        (
            ["runc", "exec", "--process", "/tmp/p", "--detach", CONTAINER],
            {},
            ["runc", "exec", "--process", "/tmp/p", "--detach", CONTAINER],
        ),
        (
            ["runc", "exec", "-e", "K=V", CONTAINER, "login", "-psecret"],
            {},
            ["runc", "exec", "xx", "xxx", CONTAINER, "xxxxx", "xxxxxxxx"],
        ),
        (["runc", "exec", CONTAINER, "/opt/tool"], {}, ["runc", "exec", CONTAINER, "xxxxxxxxx"]),
        ([], {}, []),
        ([""], {}, [""]),
    ],
)
def test_only_the_runtimes_own_tools_keep_their_arguments(argv, env, clean):
    before = Exec(1, 2, 3, "c", argv, env)
    assert process.clean(before) == dataclasses.replace(before, argv=clean)


def test_only_variables_of_cni_are_kept():
    env = {"CNI_COMMAND": "ADD", "CNI_ARGS": "K8S_POD_NAME=web-0", "CNI_SECRET": "s", "PATH": "/bin"}
    kept = process.clean(Exec(1, 2, 3, "c", ["bridge"], env)).env
    assert kept == {"CNI_COMMAND": "ADD", "CNI_ARGS": "K8S_POD_NAME=web-0"}
