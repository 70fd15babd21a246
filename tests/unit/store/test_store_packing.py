"""Rows are packed small, and what was once packed can always be unpacked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from tests.unit.store.sample import call, event, relist, sync_pass
from tracer.store.packing import PackingError, pack, unpack


@given(st.binary())
def test_packing_is_undone_exactly(data):
    assert unpack(pack(data)) == data


@pytest.mark.parametrize("row", [call("c3-17"), relist("rc3-15"), event("e1"), sync_pass("sc3-23")])
def test_a_row_is_packed_to_less_than_two_fifths(row):
    json = to_json(row.fields)
    assert len(pack(json)) < len(json) * 0.4


def test_what_the_first_version_packed_can_be_unpacked():
    """These bytes are in files that exist: no later dictionary may change what they mean."""
    packed = bytes.fromhex(
        "0083fa3cd958d7d01c2808cd1f40197d2013296b2231b1e6d26463a06e783e0546237a463502c71895732a8e9c4642763234"
        "d43536083132b032b4b03231d7b3343630b0303035c3939d80450e2cd162c9194059ec19ca022965e3d047bf2c65646c028b"
        "2d82590a9266a990c6d1521e28c9992ad5d60200"
    )
    fields = call("c3-17").fields
    assert unpack(packed) == to_json({name: fields[name] for name in fields if name not in ("trace_id", "span_id")})


@given(st.binary())
def test_what_is_no_packed_row_is_said_to_be_damaged_or_is_some_bytes(data):
    try:
        assert isinstance(unpack(data), bytes)
    except PackingError:
        return


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x00\xff\xff", pack(b"{}")[:1]])
def test_damaged_bytes_are_no_row(data):
    with pytest.raises(PackingError):
        unpack(data)
