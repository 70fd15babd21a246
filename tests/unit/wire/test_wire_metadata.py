"""What header blocks say, also when some of their fields are older than the tracer."""

import pytest

from tracer.headers import Block, Old
from tracer.metadata import request_head, response_head

POST = [(b":method", b"POST"), (b":scheme", b"http")]
PATH = (b":path", b"/runtime.v1.RuntimeService/Status")
REST = [(b":authority", b"localhost"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]


def block(*fields):
    """A field may be given as the number of an older entry."""
    known = tuple((b"\x00%d" % field,) * 2 if isinstance(field, int) else field for field in fields)
    old = tuple((place, Old(0, field)) for place, field in enumerate(fields) if isinstance(field, int))
    return Block(known, old)


def test_a_request_has_path_deadline_trace_and_encoding():
    head = request_head(
        block(*POST, PATH, *REST, (b"grpc-timeout", b"120000m"), (b"grpc-encoding", b"gzip"),
              (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
    )  # fmt: skip
    assert (head.path, head.deadline_ns, head.encoding) == ("/runtime.v1.RuntimeService/Status", 120 * 10**9, "gzip")
    assert (head.trace, head.span) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert (head.old_path, head.hidden_deadline) == (None, False)


@pytest.mark.parametrize(
    "fields", [[], [PATH], [(b":method", b"GET"), PATH], [(b":method", b"post"), PATH], [-1, PATH]]
)
def test_what_is_not_a_post_is_no_request(fields):
    assert request_head(block(*fields)) is None


def test_an_older_entry_in_the_third_place_is_the_path():
    head = request_head(block(*POST, -7, -8, -9))
    assert (head.path, head.old_path, head.hidden_deadline) == (None, Old(0, -7), True)
    head = request_head(block(*POST, -7, *REST, (b"grpc-timeout", b"1S")))
    assert (head.old_path, head.deadline_ns, head.hidden_deadline) == (Old(0, -7), 10**9, False)


@pytest.mark.parametrize(
    "fields", [[*POST, *REST], [POST[0], -3, -4], [POST[0], (b":path", b"*"), -4], [*POST, (b":authority", b"x"), -5]]
)
def test_elsewhere_it_is_not(fields):
    head = request_head(block(*fields))
    assert (head.path, head.old_path) == (None, None)


def test_a_path_that_is_known_elsewhere_leaves_no_older_one():
    head = request_head(block(*POST, -5, PATH))
    assert (head.path, head.old_path, head.hidden_deadline) == ("/runtime.v1.RuntimeService/Status", None, True)


@pytest.mark.parametrize(
    "value, path",
    [
        (b"/runtime.v1.RuntimeService/Status", "/runtime.v1.RuntimeService/Status"),
        (b"/run/containerd", None),  # kubelet 1.20 sends the socket's path as authority
        (b"/run/containerd/containerd.sock", None),
        (b"localhost", None),
    ],
)
def test_a_value_under_an_older_name_is_the_path_when_it_can_only_be_one(value, path):
    head = request_head(block(*POST, (b"\x00-3", value)))
    assert (head.path, head.old_path) == (path, None)


def test_a_timeout_and_a_trace_are_known_by_their_form_under_an_older_name():
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    head = request_head(block(*POST, PATH, *REST, (b"\x00-3", b"119999m"), (b"\x00-4", trace)))
    assert (head.deadline_ns, head.hidden_deadline) == (119_999_000_000, False)
    assert (head.trace, head.span) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@pytest.mark.parametrize(
    "value",
    [
        b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
    ],
)
def test_a_traceparent_that_is_not_valid_is_none(value):
    head = request_head(block(*POST, PATH, *REST, (b"traceparent", value)))
    assert (head.trace, head.span) == (None, None)


def test_a_timeout_that_only_has_its_name_says_nothing():
    head = request_head(block(*POST, PATH, (b"grpc-timeout", b"\x00-9")))
    assert head.deadline_ns is None


def test_an_answers_end_has_status_and_text():
    head = response_head(block((b"grpc-status", b"5"), (b"grpc-message", b"no %22such%22 thing: caf%C3%A9 %zz")))
    assert (head.status, head.error) == ("NOT_FOUND", 'no "such" thing: café %zz')
    assert response_head(block((b"grpc-status", b"0"), (b"grpc-message", b""))).error is None


def test_a_status_that_is_only_an_older_entry_is_unknown():
    """Almost surely OK, but that is not known."""
    head = response_head(block(-3, -4))
    assert (head.status, head.error) == (None, None)
    head = response_head(block((b":status", b"200"), -1, -3, -4))
    assert (head.status, head.error) == (None, None)


def test_a_status_under_an_older_name_is_known_where_grpc_go_writes_it():
    head = response_head(block((b"\x00-3", b"2"), (b"\x00-4", b"runc died")))
    assert (head.status, head.error) == ("UNKNOWN", "runc died")
    fields = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"\x00-3", b"5"), (b"\x00-4", b"gone")]
    assert (response_head(block(*fields)).status, response_head(block(*fields)).error) == ("NOT_FOUND", "gone")


@pytest.mark.parametrize(
    "fields",
    [
        [(b"x-custom", b"1"), (b"\x00-3", b"5")],
        [-7, (b"\x00-3", b"5")],
        [(b"\x00-3", b"500")],
        [(b"\x00-3", b"text"), (b"\x00-4", b"5")],
    ],
)
def test_elsewhere_it_is_not_known(fields):
    head = response_head(block(*fields))
    assert (head.status, head.error) == (None, None)


@pytest.mark.parametrize("value", [b"17", b"-1", b"", b"00", b" 0", b"0 ", b"9" * 5000, b"\xb2", b"\xff\xfe"])
def test_a_status_of_another_form_is_unknown(value):
    assert response_head(block((b"grpc-status", value))).status is None


def test_bytes_that_are_not_ascii_do_not_raise():
    head = response_head(block((b"grpc-status", b"2"), (b"grpc-message", b"\xff\xfe%FF%"), (b"grpc-encoding", b"\xff")))
    assert head.error
    assert request_head(block(*POST, (b":path", b"/\xff\xfe"), (b"grpc-timeout", b"\xff"))).path


def test_a_block_is_looked_at_once():
    known = block(*POST, PATH)
    assert request_head(known) is request_head(known)
    ended = block((b"grpc-status", b"0"))
    assert response_head(ended) is response_head(ended)
