"""The iterator's text becomes the stacks of blocked threads."""

from tracer.kernel.blocked import parse_stacks

TEXT = """7
 rpc_wait_bit_killable [sunrpc]
 nfs4_do_close [nfsv4]
 do_exit
8
9001
 io_schedule
"""


def test_each_thread_has_the_functions_it_is_in_innermost_first_without_their_modules():
    assert parse_stacks(TEXT) == {
        7: ("rpc_wait_bit_killable", "nfs4_do_close", "do_exit"),
        8: (),
        9001: ("io_schedule",),
    }


def test_no_thread_is_blocked():
    assert parse_stacks("") == {}


def test_what_is_not_a_thread_is_passed_over():
    assert parse_stacks(" orphan\n\nnonsense\n7\n \n do_exit\n") == {7: ("do_exit",)}
