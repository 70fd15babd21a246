"""Which processes that run already belong to the runtime."""

import os

from tracer.kernel.lineage import Member, Process, members, processes


def test_shims_and_their_children_belong_but_not_what_a_container_started():
    running = [
        Process(1, 0, "systemd"),
        Process(10, 1, "containerd"),
        Process(20, 1, "containerd-shim"),
        Process(21, 20, "pause"),
        Process(22, 21, "child"),
        Process(23, 20, "runc"),
        Process(30, 1, "conmon"),
        Process(31, 30, "sh"),
        Process(40, 1, "bash"),
    ]
    assert members(iter(running)) == [
        Member(20, contained=False),
        Member(21, contained=True),
        Member(23, contained=False),
        Member(30, contained=False),
        Member(31, contained=True),
    ]


def test_names_with_parentheses_and_spaces_are_read_whole(tmp_path):
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "stat").write_text("42 (a) b (c) S 7 42 42 0 -1")
    (tmp_path / "43").mkdir()
    (tmp_path / "self").mkdir()
    assert list(processes(tmp_path)) == [Process(42, 7, "a) b (c")]


def test_this_process_is_found_with_its_parent():
    assert (os.getpid(), os.getppid()) in {(each.pid, each.ppid) for each in processes()}
