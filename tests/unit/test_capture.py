"""Capture files: what was written is read back; damage is said in one line, after all before it was given."""

import gzip
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracer.capture import FLUSH_SECONDS, CaptureFile, CaptureWriter
from tracer.errors import CaptureError
from tracer.records import Closed, Data, Exec, Exit, Lost, OomKill, Opened

DATA = Path(__file__).parents[1] / "data"

number = st.integers(-(1 << 63), (1 << 63) - 1)
count = st.integers(0, (1 << 63) - 1)
side = st.sampled_from(["client", "server"])
text = st.text(max_size=20)
known = st.none() | count


@st.composite
def data_records(draw):
    data = draw(st.binary(max_size=200))
    return Data(
        draw(number), draw(text), draw(side), draw(st.sampled_from(["send", "recv"])), draw(text), draw(number),
        draw(number), draw(text), draw(number), draw(count), len(data) + draw(st.integers(0, 1 << 40)), data,
        draw(st.none() | number),
    )  # fmt: skip


records = st.lists(
    data_records()
    | st.builds(Opened, number, text, side, text, number, text)
    | st.builds(Closed, number, text, side, number, number)
    | st.builds(Exec, number, number, number, text, st.lists(text, max_size=4), st.dictionaries(text, text, max_size=3))
    | st.builds(Exit, number, number, number, text, number)
    | st.builds(OomKill, number, number, text, known, st.none() | text, known, known, known)
    | st.builds(Lost, number, text, count),
    max_size=12,
)


def data(time=1, payload=b"hello", **changes):
    fields = {
        "time": time, "connection": "c1", "side": "client", "direction": "send", "path": "/run/x.sock", "pid": 1,
        "tid": 2, "comm": "kubelet", "fd": 3, "offset": 0, "length": len(payload), "data": payload,
    }  # fmt: skip
    return Data(**{**fields, **changes})


def write(path, items, offset=42):
    with CaptureWriter(path, offset, overwrite=True) as writer:
        for item in items:
            writer.write(item)
    return writer


def read(path):
    """(records given, error text or None)."""
    found = []
    try:
        with CaptureFile(path) as capture:
            found.extend(capture.records())
    except CaptureError as error:
        message = str(error)
    else:
        return found, None
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return found, message.removeprefix(f"{path}: ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(records, number)
def test_what_was_written_is_read(tmp_path, items, offset):
    writer = write(tmp_path / "c", items, offset)
    with CaptureFile(tmp_path / "c") as capture:
        assert capture.realtime_offset_ns == offset
        assert list(capture.records()) == items
        assert capture.progress == 1.0
    assert writer.records == len(items)
    assert writer.bytes == (tmp_path / "c").stat().st_size


def test_a_capture_is_for_its_owner_only(tmp_path):
    write(tmp_path / "c", [])
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o600


def test_an_existing_file_is_kept_unless_it_may_be_overwritten(tmp_path):
    path = tmp_path / "c"
    path.write_text("precious")
    path.chmod(0o644)
    with pytest.raises(CaptureError, match="exists already: choose another name or remove it"):
        CaptureWriter(path, 0)
    assert path.read_text() == "precious"
    with path.open() as reader:
        write(path, [data()])
        assert reader.read() == "precious"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path) == ([data()], None)


def test_a_link_in_the_way_is_not_followed(tmp_path):
    """Root writes recordings, also into directories of others."""
    (tmp_path / "target").write_text("precious")
    (tmp_path / "c").symlink_to(tmp_path / "target")
    with pytest.raises(CaptureError, match="exists already"):
        CaptureWriter(tmp_path / "c", 0)
    write(tmp_path / "c", [data()])
    assert (tmp_path / "target").read_text() == "precious"
    assert not (tmp_path / "c").is_symlink()


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "is a directory"), ("no/such", "cannot be created: No such file or directory")],
)
def test_a_place_where_no_file_can_be_is_said(tmp_path, name, reason, overwrite):
    with pytest.raises(CaptureError) as error:
        CaptureWriter(tmp_path / name, 0, overwrite=overwrite)
    assert error.value.reason == reason


def test_closing_twice_does_nothing(tmp_path):
    writer = write(tmp_path / "c", [data()])
    writer.close()
    assert read(tmp_path / "c") == ([data()], None)


def test_a_flush_makes_everything_before_it_readable(tmp_path):
    with CaptureWriter(tmp_path / "c", 0) as writer:
        assert read(tmp_path / "c") == ([], "is cut off; the 0 records before the cut were read")
        writer.write(data(1))
        writer.write(data(2))
        writer.flush()
        assert read(tmp_path / "c") == ([data(1), data(2)], "is cut off; the 2 records before the cut were read")


def test_time_alone_brings_a_flush(tmp_path):
    with CaptureWriter(tmp_path / "c", 0) as writer:
        writer.write(data())
        time.sleep(FLUSH_SECONDS)
        writer.tick()
        assert read(tmp_path / "c")[0] == [data()]
        before = writer.bytes
        writer.tick()
        assert writer.bytes == before


CHILD = """
    import sys, time
    from tracer.capture import CaptureWriter
    from tracer.records import Lost
    writer = CaptureWriter(sys.argv[1], 0)
    for time_ in range(1000):
        writer.write(Lost(time_, "socket", 1))
    time.sleep(1.05)
    writer.write(Lost(1000, "socket", 1))
    writer.write(Lost(1001, "socket", 1))
    print("written", flush=True)
    time.sleep(60)
"""


def test_a_recording_that_is_killed_is_readable_up_to_its_last_second(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), tmp_path / "c"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(DATA.parents[1])},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        child.send_signal(signal.SIGKILL)
    found, reason = read(tmp_path / "c")
    assert [record.time for record in found] == list(range(1001))
    assert reason == "is cut off; the 1001 records before the cut were read"


FULL = """
    import resource, sys
    from tracer.capture import CaptureWriter
    from tracer.errors import CaptureError
    from tracer.records import Lost
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
    with CaptureWriter(sys.argv[1], 0) as writer:
        try:
            for time in range(10**6):
                writer.write(Lost(time * 7919 % 10**9, "socket", time))
                writer.flush()
        except CaptureError as error:
            print(error)
"""


def test_a_full_disk_is_said_and_what_fits_is_readable(tmp_path):
    """A limit on file sizes stands for the full disk."""
    assert resource.RLIMIT_FSIZE >= 0
    path = tmp_path / "c"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(FULL), path],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(DATA.parents[1])},
    )  # fmt: skip
    assert done.stdout.startswith(f"{path}: cannot be written: File too large; it holds about ")
    assert done.stderr == ""
    found, reason = read(path)
    assert len(found) > 3
    assert reason == f"is cut off; the {len(found)} records before the cut were read"


# damage

HEAD = {"format": "cri-capture-jsonl", "version": 1, "clock": "CLOCK_MONOTONIC ns", "realtime_offset_ns": 5}
SEND = {
    "t": 1, "ev": "send", "side": "client", "conn": "c1", "path": "/x", "pid": 1, "tid": 1, "comm": "a", "fd": 3,
    "len": 2, "data": "aGk=",
}  # fmt: skip
GONE = object()


def lines(*items):
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"just text\n", "not a criscope capture"),
        (gzip.compress(b"just text\n", mtime=0), "not a criscope capture"),
        (gzip.compress(b"", mtime=0)[:12], "not a criscope capture"),
        (b"\x1f\x8b", "not a criscope capture"),
        (b"\x1f\x8bno gzip at all", "not a criscope capture"),
        (bytes(range(256)), "not a criscope capture"),
        (b"[" * 4000, "not a criscope capture"),
        (b"[1]\n", "not a criscope capture"),
        (lines({"traceEvents": []}), "not a criscope capture"),
        (lines(SEND), "not a criscope capture"),
        (b"{" + b" " * 10_000 + lines(HEAD)[1:], "not a criscope capture"),
        (lines({**HEAD, "version": 2}), "is of version 2, this criscope reads version 1"),
        (lines({**HEAD, "version": "x" * 999}), "is of version 'xxxxxxxxxxxxxxxxxxx, this"),
        (lines({**HEAD, "realtime_offset_ns": None}), "its header lacks realtime_offset_ns"),
        (lines({**HEAD, "realtime_offset_ns": 1 << 80}), "its header lacks realtime_offset_ns"),
        (lines({k: v for k, v in HEAD.items() if k != "realtime_offset_ns"}), "its header lacks realtime_offset_ns"),
    ],
)
def test_a_file_that_is_no_capture_is_said_at_once(tmp_path, content, reason):
    (tmp_path / "c").write_bytes(content)
    found, said = read(tmp_path / "c")
    assert found == []
    assert said is not None
    assert said.startswith(reason)


def test_a_missing_file_or_a_directory_is_said(tmp_path):
    assert read(tmp_path / "c") == ([], "cannot be read: No such file or directory")
    assert read(tmp_path) == ([], "cannot be read: Is a directory")


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        *[({**SEND, key: GONE}, f"lacks '{key}'") for key in SEND if key not in ("ev", "t")],
        ({**SEND, "ev": GONE}, "lacks 'ev'"),
        ({**SEND, "t": GONE}, "lacks 't'"),
        ({**SEND, "t": "soon"}, "has no 64-bit integer as its t"),
        ({**SEND, "t": 1.5}, "has no 64-bit integer as its t"),
        ({**SEND, "t": True}, "has no 64-bit integer as its t"),
        ({**SEND, "t": 1 << 63}, "has no 64-bit integer as its t"),
        ({**SEND, "len": -1}, "has a negative len"),
        ({**SEND, "offset": -1}, "has a negative offset"),
        ({**SEND, "offset": "0"}, "has no 64-bit integer as its offset"),
        ({**SEND, "len": 1}, "has more data than its len"),
        ({**SEND, "data": 7}, "has no text as its data"),
        ({**SEND, "data": "!"}, "is damaged"),
        ({**SEND, "data": "aGk"}, "is damaged"),
        ({**SEND, "side": "middle"}, "has neither client nor server as its side"),
        ({**SEND, "side": []}, "has neither client nor server as its side"),
        ({**SEND, "comm": None}, "has no text as its comm"),
        ({**SEND, "ev": []}, "has no text as its ev"),
        ({**SEND, "syscall": "x"}, "has no 64-bit integer as its syscall"),
        ({"t": 1, "ev": "exec", "pid": 1, "ppid": 1, "comm": "a", "argv": "ls"}, "has a wrong argv or env"),
        ({"t": 1, "ev": "exec", "pid": 1, "ppid": 1, "comm": "a", "argv": [1]}, "has no text as its argv"),
        ({"t": 1, "ev": "exec", "pid": 1, "ppid": 1, "comm": "a", "argv": [], "env": [1]}, "has a wrong argv or env"),
        ({"t": 1, "ev": "closed", "conn": "c", "side": "client", "pid": 1}, "lacks 'error'"),
        ({"t": 1, "ev": "opened", "conn": "c", "side": "client", "pid": 1, "comm": "a"}, "lacks 'path'"),
        ({"t": 1, "ev": "exit", "pid": 1, "ppid": 1, "comm": "a"}, "lacks 'code'"),
        ({"t": 1, "ev": "lost", "program": "x", "count": -1}, "has a negative count"),
        ({"t": 1, "ev": "oom", "pid": 1}, "lacks 'comm'"),
        ({"t": 1, "ev": "oom", "pid": 1, "comm": "a", "cgroup": 3}, "has no text as its cgroup"),
        ({"t": 1, "ev": "oom", "pid": 1, "comm": "a", "anon": -1}, "has a negative anon"),
        ([], "is no object"),
        ("send", "is no object"),
        (b"nonsense", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b'{"t": ' + b"9" * 5000 + b"}", "is damaged"),
        (b"", "is damaged"),
    ],
)
def test_a_damaged_line_is_said_after_all_before_it_was_given(tmp_path, bad, reason, packed):
    if isinstance(bad, dict):
        bad = {key: value for key, value in bad.items() if value is not GONE}
    content = lines(HEAD, SEND, {**SEND, "t": 2}, bad, SEND)
    (tmp_path / "c").write_bytes(gzip.compress(content) if packed else content)
    found, said = read(tmp_path / "c")
    assert [record.time for record in found] == [1, 2]
    assert said == f"line 4 {reason}; the 2 records before it were read"


def test_a_text_that_ends_within_a_line_is_cut_off(tmp_path):
    (tmp_path / "c").write_bytes(lines(HEAD, SEND, SEND)[:-20])
    assert read(tmp_path / "c")[1] == "is cut off; the 1 records before the cut were read"


def test_unknown_records_and_keys_are_passed_over(tmp_path):
    (tmp_path / "c").write_bytes(lines(HEAD, {"t": 1, "ev": "weather", "sky": "blue"}, {**SEND, "more": 1}))
    found, said = read(tmp_path / "c")
    assert (len(found), said) == (1, None)


def test_half_a_character_is_damage(tmp_path):
    """JSON can say half of a surrogate pair, which nothing could store or print."""
    (tmp_path / "c").write_bytes(lines(HEAD, {**SEND, "comm": "a\ud800b"}))
    found, said = read(tmp_path / "c")
    assert (found, said) == ([], "line 2 is damaged; the 0 records before it were read")


def test_a_wrong_checksum_is_said(tmp_path):
    content = bytearray(gzip.compress(lines(HEAD, SEND)))
    content[-8] ^= 1
    (tmp_path / "c").write_bytes(content)
    found, said = read(tmp_path / "c")
    assert len(found) == 1
    assert said == "line 3 is damaged; the 1 records before it were read"


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "c"
    items = [data(time, os.urandom(20)) for time in range(20)] + [Exit(99, 1, 1, "a", 0)]
    write(path, items)
    return items, path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_gives_a_prefix_and_one_error(tmp_path, sample, choice):
    items, content = sample
    at = choice.draw(st.integers(0, len(content) - 1))
    (tmp_path / "c").write_bytes(content[:at])
    found, said = read(tmp_path / "c")
    assert found == items[: len(found)]
    assert said is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_flipped_byte_gives_records_and_at_most_one_error(tmp_path, sample, choice):
    content = bytearray(sample[1])
    content[choice.draw(st.integers(0, len(content) - 1))] ^= choice.draw(st.integers(1, 255))
    (tmp_path / "c").write_bytes(content)
    read(tmp_path / "c")


# captures without offsets


def test_offsets_are_counted_where_a_capture_has_none(tmp_path):
    (tmp_path / "c").write_bytes(lines(HEAD, SEND, {**SEND, "len": 7}, {**SEND, "ev": "recv"}, SEND))
    assert [record.offset for record in read(tmp_path / "c")[0]] == [0, 2, 0, 9]


def test_a_name_used_again_is_another_connection(tmp_path):
    """A new preface shows it."""
    import base64

    preface = base64.b64encode(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").decode()
    first = {**SEND, "len": 24, "data": preface}
    (tmp_path / "c").write_bytes(lines(HEAD, first, SEND, {**first, "t": 9}, {**SEND, "t": 10}))
    found = read(tmp_path / "c")[0]
    assert [(record.connection, record.offset) for record in found] == [
        ("c1", 0), ("c1", 24), ("c1.9", 0), ("c1.9", 24),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["k120", "crio"])
def test_captures_of_real_kubelets_survive_being_written_again(tmp_path, name):
    found, said = read(DATA / f"{name}.jsonl.gz")
    assert said is None
    write(tmp_path / "c", found)
    assert read(tmp_path / "c") == (found, None)
