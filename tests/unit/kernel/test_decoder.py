"""Ring buffer bytes become records."""

import os
import resource
from platform import machine

import pytest

from tracer.kernel import decoder, layouts
from tracer.kernel.decoder import Decoder
from tracer.kernel.places import Places
from tracer.records import Closed, Data, Exec, Exit, OomKill, Opened


def head(kind, side=0, direction=0, *, time=7, pid=100, tid=101, comm=b"kubelet"):
    return time, pid, tid, comm, kind, side, direction


def opened(number, path=b"/run/a.sock\0", side=0, *, directory=0, device=0, place=0, names=0):
    values = *head(layouts.RECORD_OPENED, side), number, directory, device, place, names, len(path)
    return layouts.OPENED.compiled().pack(*values) + path


def data(number, payload=b"", *, side=0, direction=0, offset=0, length=None, fd=5, syscall=1):
    values = number, offset, len(payload) if length is None else length, len(payload), fd, syscall
    return layouts.DATA.compiled().pack(*head(layouts.RECORD_DATA, side, direction), *values) + payload


def executed(argv, env=b""):
    values = 5, 50, len(argv), len(env)
    return layouts.EXEC.compiled().pack(*head(layouts.RECORD_EXEC, comm=b"bridge"), *values) + argv + env


@pytest.fixture
def decode():
    return Decoder("run-", Places(["/run/a.sock", "/run/s/*"], follow=True)).decode


def test_opened_names_the_connection_and_the_path_as_bound(decode):
    assert decode(opened(3, side=1)) == Opened(7, "run-3", "server", "/run/a.sock", 100, "kubelet")


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/" + b"p" * 106 + b"\0", "/" + "p" * 106),
        (b"/" + b"p" * 107, "/" + "p" * 107),
        (b"\0name", "@name"),
        (b"\0na\0me", "@na\\0me"),
        (b"/tmp/\xff\0", "/tmp/\\xff"),
    ],
)
def test_paths_end_at_nul_or_length_and_abstract_names_at_their_length(decode, raw, path):
    assert decode(opened(1, raw)).path == path


@pytest.mark.parametrize(
    ("place", "names", "path"),
    [
        (1, b"a.sock\0", "/run/a.sock"),
        (1, b"the-links-target\0", "/run/a.sock"),
        (2, b"x.sock\0", "/run/s/x.sock"),
        (2, b"csi.sock\0driver\0plugins\0", "/run/s/plugins/driver/csi.sock"),
        (2, b"\xff\0", "/run/s/\\xff"),
    ],
)
def test_a_socket_found_by_its_place_has_the_path_that_was_wanted(decode, place, names, path):
    raw = opened(1, names, directory=5, device=6, place=place, names=names.count(b"\0"))
    assert decode(raw).path == path


def test_a_path_bound_elsewhere_has_the_numbers_of_its_directory(decode):
    assert decode(opened(1, directory=77, device=8 << 20 | 300)).path == "8:300:77:/run/a.sock"


def test_a_path_bound_where_it_leads_is_as_it_was_bound(decode, tmp_path):
    bound = f"{tmp_path}/a.sock"
    (key,) = Places([bound], follow=True).entries()
    _, device, directory, _, _ = layouts.PLACE_KEY.compiled().unpack(key)
    assert decode(opened(1, os.fsencode(bound), directory=directory, device=device)).path == bound
    assert decode(opened(2, os.fsencode(bound), directory=directory + 1, device=device)).path != bound


def test_both_ends_of_a_connection_have_the_path_that_the_first_one_told(decode):
    decode(opened(1, b"x.sock\0", directory=5, device=6, place=2, names=1))
    assert decode(opened(1, b"x.sock\0", side=1)).path == "/run/s/x.sock"


def test_data_has_the_path_of_its_connection(decode):
    decode(opened(3))
    decode(opened(4, b"/run/b.sock\0"))
    assert decode(data(3, b"bytes", offset=40, length=9)) == Data(
        7, "run-3", "client", "send", "/run/a.sock", 100, 101, "kubelet", 5, 40, 9, b"bytes", decode(data(3)).syscall
    )
    received = decode(data(4, side=1, direction=1))
    assert (received.path, received.side, received.direction) == ("/run/b.sock", "server", "recv")


def test_read_and_write_need_no_mention_of_the_system_call(decode):
    read, write = decoder.READ_AND_WRITE[machine()]
    assert [decode(data(1, syscall=each)).syscall for each in (read, write, 46, -1)] == [None, None, 46, -1]


def test_data_of_a_forgotten_connection_keeps_its_id_but_has_no_path(decode):
    decode(opened(1))
    for number in range(2, decoder.CONNECTIONS + 2):
        decode(opened(number))
    first, last = decode(data(1)), decode(data(2))
    assert (first.connection, first.path) == ("run-1", "")
    assert (last.connection, last.path) == ("run-2", "/run/a.sock")


def test_a_connection_in_use_is_not_the_one_forgotten(decode):
    for number in range(1, decoder.CONNECTIONS + 1):
        decode(opened(number))
    decode(data(1))
    decode(opened(decoder.CONNECTIONS + 1))
    assert decode(data(1)).path == "/run/a.sock"
    assert decode(data(2)).path == ""


def test_closed(decode):
    raw = layouts.CLOSED.compiled().pack(*head(layouts.RECORD_CLOSED, 1), 9, 104)
    assert decode(raw) == Closed(7, "run-9", "server", 100, 104)


def test_exec_has_arguments_and_only_the_cni_variables(decode):
    env = b"CNI_COMMAND=ADD\0CNI_ARGS=A=1;B=2\0CNI_PATH=/opt\0CNI_SECRET=x\0"
    record = decode(executed(b"/opt/cni/bin/bridge\0\0last\0", env))
    variables = {"CNI_COMMAND": "ADD", "CNI_ARGS": "A=1;B=2"}
    assert record == Exec(7, 100, 50, "bridge", ["/opt/cni/bin/bridge", "", "last"], variables, 5)


def test_exec_keeps_an_argument_that_was_cut(decode):
    assert decode(executed(b"sh\0-c\0sleep 1; echo cut he")).argv == ["sh", "-c", "sleep 1; echo cut he"]


def test_exec_without_arguments(decode):
    assert decode(executed(b"")).argv == []


def test_exit(decode):
    raw = layouts.EXIT.compiled().pack(*head(layouts.RECORD_EXIT), 50, 0x8B)
    assert decode(raw) == Exit(7, 100, 50, "kubelet", 0x8B)


def test_names_are_text_whatever_bytes_they_have(decode):
    raw = layouts.EXIT.compiled().pack(*head(layouts.RECORD_EXIT, comm=b"\xfe)(\0rest"), 50, 0)
    assert decode(raw).comm == "\\xfe)("


def killed(cgroup=b"", *, pages=(2, 1, 0), uid=1000, comm=b"hog"):
    values = *head(layouts.RECORD_OOM, comm=comm), *pages, uid, len(cgroup)
    return layouts.OOM.compiled().pack(*values) + cgroup


def test_a_process_killed_for_want_of_memory_has_its_memory_in_bytes_and_its_cgroup_from_the_root(decode):
    page = resource.getpagesize()
    assert decode(killed(b"cri-containerd-1.scope\0kubepods.slice\0\0")) == OomKill(
        7, 100, "hog", 1000, "/kubepods.slice/cri-containerd-1.scope", 2 * page, page, 0
    )


def test_what_an_older_kernel_does_not_tell_of_a_killed_process_is_unknown(decode):
    record = decode(killed(pages=(-1, -1, -1), uid=0xFFFFFFFF, comm=b""))
    assert record == OomKill(7, 100, "", None, None, None, None, None)


@pytest.mark.parametrize(
    ("names", "path"),
    [(b"\0", "/"), (b"leaf\0\0", "/leaf"), (b"leaf\0middle\0", "middle/leaf")],
    ids=["root", "below the root", "too deep to reach it"],
)
def test_a_cgroup_path_begins_with_a_slash_when_it_is_whole(decode, names, path):
    assert decode(killed(names)).cgroup == path
