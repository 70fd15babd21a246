"""A segment is a capture at every moment."""

import os

import pytest

from tracer.capture import CaptureFile
from tracer.errors import CaptureError
from tracer.flight.segment import FINISHED, Segment, completed
from tracer.flight.shared import LEAST_BYTES, Shared
from tracer.records import Closed, Data, Exec, Lost, Opened

FRAME = b"\x00\x08\x00\x00\x00\x00\x00\x00\x01"  # DATA of 2048 bytes


def data(time, payload, offset=0):
    return Data(
        time, "c1", "server", "send", "/run/x\u00e9.sock", 7, 8, 'a"b', 9, offset, len(payload) + 3, payload, 20
    )


RECORDS = [
    Opened(1, "c1", "client", "/run/x.sock", 7, "kubelet"),
    data(2, b"small"),
    data(3, FRAME + b"a" * 2048 + b"tail"),
    data(4, FRAME + b"a" * 2048 + FRAME + b"b" * 2048),
    data(5, b"", 4096),
    Exec(6, 10, 7, "runc", ["runc", "run\u00e9"], {"CNI_COMMAND": "ADD"}, 5),
    Lost(7, "socket", 3),
    Closed(8, "c1", "server", 7, 0),
]


def written(path, flushes):
    """The file's sizes after each flush; records are written between them."""
    segment = Segment(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 5)
    sizes = []
    for record in RECORDS:
        segment.write(record)
        if flushes:
            segment.flush()
            sizes.append(segment.bytes)
    if not flushes:
        segment.flush()
    segment.close()
    return sizes


def read(path):
    with CaptureFile(path) as source:
        return list(source.records())


@pytest.mark.parametrize("flushes", [True, False])
def test_what_is_written_is_read(tmp_path, flushes):
    written(tmp_path / "s", flushes)
    assert read(tmp_path / "s") == RECORDS
    assert (tmp_path / "s").stat().st_mode & 0o777 == FINISHED


def test_cut_anywhere_it_reads_up_to_its_last_flush(tmp_path):
    sizes = written(tmp_path / "s", flushes=True)
    whole = (tmp_path / "s").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "cut").write_bytes(completed(whole[:size]))
        flushed = sum(each <= size for each in sizes)
        if flushed:
            assert read(tmp_path / "cut") == RECORDS[:flushed], size
        else:
            assert completed(whole[:size]) == b""


def test_captures_one_behind_the_other_are_a_capture(tmp_path):
    written(tmp_path / "a", flushes=True)
    written(tmp_path / "b", flushes=False)
    (tmp_path / "both").write_bytes((tmp_path / "a").read_bytes() + (tmp_path / "b").read_bytes())
    assert read(tmp_path / "both") == RECORDS * 2


def test_numbers_of_one_capture_mean_nothing_in_the_next(tmp_path):
    written(tmp_path / "a", flushes=True)
    head = b'{"format":"cri-capture-jsonl","version":1,"realtime_offset_ns":0}\n'
    line = (
        b'{"ev":"send","t":1,"side":"client","conn":"c","path":"","pid":1,"tid":1,"comm":"","fd":1,"offset":0,'
        b'"len":4096,"data":[0]}\n'
    )
    import gzip

    (tmp_path / "both").write_bytes((tmp_path / "a").read_bytes() + gzip.compress(head + line))
    with pytest.raises(CaptureError, match="is damaged; the 8 records before it were read"):
        read(tmp_path / "both")


@pytest.mark.parametrize("parts", ["[true]", "[-1]", "[1.5]", "[[]]", '["?"]', "[7]", "[null]"])
def test_parts_that_no_writer_writes_are_damage(tmp_path, parts):
    head = '{"format":"cri-capture-jsonl","version":1,"realtime_offset_ns":0}'
    line = (
        '{"ev":"send","t":1,"side":"client","conn":"c","path":"","pid":1,"tid":1,"comm":"","fd":1,"offset":0,'
        f'"len":4096,"data":{parts}}}'
    )
    (tmp_path / "c").write_text(f"{head}\n{line}\n")
    with pytest.raises(CaptureError, match="line 2 is damaged"):
        read(tmp_path / "c")


def test_pieces_beyond_what_a_reader_remembers_are_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.pieces.MAX_BYTES", 4000)
    written(tmp_path / "s", flushes=False)
    with pytest.raises(CaptureError, match="is damaged; the 3 records before it were read"):
        read(tmp_path / "s")


def joined(parts, pieces):
    return b"".join(pieces[part] if isinstance(part, int) else part for part in parts)


@pytest.mark.parametrize("cut", [0, 1, 9, 10, 2000, 2057, 2058, 4000])
def test_parts_together_are_the_data(cut):
    shared, pieces = Shared(), {}
    stream = (FRAME + b"a" * 2048 + FRAME + b"b" * 2048) * 2
    for piece in (stream[cut:], stream, b"\xff" * 3000, FRAME, b""):
        parts, new = shared.parts(piece)
        pieces |= dict(new)
        assert joined(parts, pieces) == piece


def test_a_payload_seen_before_is_a_number_behind_another_head():
    shared = Shared()
    shared.parts(FRAME + b"a" * 2048)
    head = FRAME[:-1] + b"\x09"
    assert shared.parts(head + b"a" * 2048) == ([head, 0], [])


def test_small_payloads_and_those_beyond_the_bound_are_written_as_they_are(monkeypatch):
    monkeypatch.setattr("tracer.flight.shared.MOST_BYTES", 3000)
    shared = Shared()
    small = (LEAST_BYTES - 1).to_bytes(3, "big") + FRAME[3:] + b"s" * (LEAST_BYTES - 1)
    assert shared.parts(small) == ([small], [])
    assert shared.parts(FRAME + b"a" * 2048) == ([FRAME, 0], [(0, b"a" * 2048)])
    assert shared.parts(FRAME + b"b" * 2048) == ([FRAME + b"b" * 2048], [])
