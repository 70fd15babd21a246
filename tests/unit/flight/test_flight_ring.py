"""The ring keeps its bounds, recordings stay whatever happens, and a sick disk costs records and never the tracer."""

import contextlib
import os
import subprocess

import pytest

from tests.unit.flight.flown import ID, saved
from tracer.capture import CaptureFile
from tracer.errors import FlightError
from tracer.flight.directory import Directory
from tracer.flight.recordings import MOST, Recordings, identity, moment
from tracer.flight.ring import AFTER_NS, AGE_NS, LEFT, RETRY_NS, SEGMENT_NS, Ring
from tracer.records import Data, Lost

SECOND = 1_000_000_000


def record(time, size=100):
    return Data(time, "c1", "client", "send", "/run/x.sock", 7, 8, "kubelet", 9, 0, size, os.urandom(size))


@pytest.fixture
def directory(tmp_path):
    with contextlib.closing(Directory(tmp_path / "flight")) as claimed:
        yield claimed


def fill(ring, begin, end, step=SECOND, size=100):
    for time in range(begin, end, step):
        ring.write(record(time, size))
        ring.tick(time, time)


def times(path):
    with CaptureFile(path) as source:
        return [each.time // SECOND for each in source.records()]


def names(directory):
    return sorted(name for name, _ in directory.files())


def test_the_ring_holds_its_age_to_a_segment(directory):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 3 * AGE_NS)
    assert 0 <= 3 * AGE_NS - AGE_NS - ring.begin <= SEGMENT_NS + SECOND
    assert ring.segments == len(names(directory))


def test_the_ring_holds_its_bytes(directory):
    ring = Ring(directory, lambda: 0, most_bytes=1 << 20)
    fill(ring, 0, 200 * SECOND, size=50_000)
    assert ring.begin > 0
    on_disk = sum(state.st_size for _, state in directory.files())
    assert (1 << 20) * 0.8 < on_disk <= (1 << 20) + 200_000


def test_what_is_silent_for_long_keeps_what_it_had(directory):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 30 * SECOND)
    ring.tick(10 * AGE_NS, 10 * AGE_NS)
    assert ring.begin == 0


def test_files_are_for_their_owner_only(directory, tmp_path):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 40 * SECOND)
    ring.freeze(ID, "why", 40 * SECOND)
    fill(ring, 40 * SECOND, 60 * SECOND)
    assert (tmp_path / "flight").stat().st_mode & 0o777 == 0o700
    assert {state.st_mode & 0o777 for _, state in directory.files()} <= {0o600, 0o400}


def test_a_recording_stays_when_the_ring_turns_over(directory, tmp_path):
    ring = Ring(directory, lambda: 5)
    fill(ring, 0, 100 * SECOND)
    ring.freeze(ID, "why", 100 * SECOND)
    fill(ring, 100 * SECOND, 3 * AGE_NS)
    frozen = ring.recordings.every()[0]
    last = (100 * SECOND + AFTER_NS) // SECOND
    assert times(saved(ring.recordings, ID, tmp_path)) == list(range(last + 1))
    assert (frozen.id, frozen.reasons, frozen.begin, frozen.end) == (ID, ("why",), 5, last * SECOND + 5)
    assert frozen.bytes == ring.recordings.open(ID).size


def test_a_recording_under_way_takes_further_reasons_and_can_be_had(directory, tmp_path):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 20 * SECOND)
    ring.freeze(ID, "first", 20 * SECOND)
    fill(ring, 20 * SECOND, 25 * SECOND)
    ring.freeze("ignored", "second", 25 * SECOND)
    ring.freeze("ignored", "first", 25 * SECOND)
    frozen = ring.recordings.every()
    assert [(each.id, each.reasons, each.end) for each in frozen] == [(ID, ("first", "second"), None)]
    assert times(saved(ring.recordings, ID, tmp_path)) == list(range(25)), "the latest second may not be flushed"


def test_a_recording_goes_on_while_records_before_its_end_are_held(directory):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 20 * SECOND)
    ring.freeze(ID, "why", 20 * SECOND)
    ring.tick(200 * SECOND, 22 * SECOND)
    assert ring.pending is not None
    ring.tick(200 * SECOND, 200 * SECOND)
    assert ring.pending is None


def test_the_oldest_recording_makes_room(directory):
    ring = Ring(directory, lambda: 0)
    ids = [identity(moment(ID) + n * SECOND) for n in range(MOST + 3)]
    for n, id_ in enumerate(ids):
        fill(ring, n * 100 * SECOND, n * 100 * SECOND + 20 * SECOND)
        ring.freeze(id_, "why", n * 100 * SECOND + 20 * SECOND)
        fill(ring, n * 100 * SECOND + 20 * SECOND, n * 100 * SECOND + 40 * SECOND)
    assert [each.id for each in ring.recordings.every()] == ids[:2:-1]
    assert [name for name in names(directory) if name.startswith(ids[0])] == []


def test_recordings_are_bounded_in_bytes_but_the_newest_stays(directory, monkeypatch):
    monkeypatch.setattr("tracer.flight.recordings.MOST_BYTES", 10_000)
    ring = Ring(directory, lambda: 0)
    for n in range(3):
        begin = n * 2 * AGE_NS
        fill(ring, begin, begin + 20 * SECOND, size=2000)
        ring.freeze(identity(moment(ID) + n * SECOND), "why", begin + 20 * SECOND)
        fill(ring, begin + 20 * SECOND, begin + 40 * SECOND, size=2000)
    assert [each.id for each in ring.recordings.every()] == [identity(moment(ID) + 2 * SECOND)]


def test_a_download_is_whole_though_the_recording_is_dropped_meanwhile(directory):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 100 * SECOND, size=20_000)
    ring.freeze(ID, "why", 100 * SECOND)
    fill(ring, 100 * SECOND, 120 * SECOND)
    download = ring.recordings.open(ID)
    chunks = download.chunks()
    first = next(chunks)
    ring.recordings.remove(ID)
    assert len(first) + sum(map(len, chunks)) == download.size


@pytest.mark.parametrize("id_", ["", "nothing", "20260101T000000.000Z", "../../etc/passwd", "ring", "x" * 10_000, ID])
def test_a_recording_that_is_not_there_is_said_to_be_so(directory, id_):
    with pytest.raises(FlightError, match="no recording"):
        Recordings(directory).open(id_)


def test_what_a_run_left_is_a_recording_of_the_next(directory, tmp_path):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 100 * SECOND)  # killed here: never closed
    again = Ring(directory, lambda: 0)
    (left,) = again.recordings.every()
    assert left.reasons == (LEFT,)
    assert times(saved(again.recordings, left.id, tmp_path)) == list(range(100))
    assert again.segments == 0


def test_of_a_tracer_that_is_killed_again_and_again_the_first_ring_stays(directory):
    fill(Ring(directory, lambda: 0), 0, 100 * SECOND)
    first = Ring(directory, lambda: 0).recordings.every()
    for n in range(3):
        ring = Ring(directory, lambda: 0)
        fill(ring, n * 1000 * SECOND, n * 1000 * SECOND + 5 * SECOND)
    assert Ring(directory, lambda: 0).recordings.every() == first


def test_a_frozen_recording_outlives_its_run(directory, tmp_path):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 100 * SECOND)
    ring.freeze(ID, "why", 100 * SECOND)
    fill(ring, 100 * SECOND, 104 * SECOND)
    again = Ring(directory, lambda: 0)
    frozen = again.recordings.every()[-1]
    assert (frozen.id, frozen.reasons, frozen.end) == (ID, ("why",), None)
    assert times(saved(again.recordings, ID, tmp_path)) == list(range(104))


@pytest.mark.parametrize("note", [b"", b"[1]", b"\xff", b'{"reasons":7,"begin":"x"}', b"[" * 50_000])
def test_a_note_that_is_damaged_costs_only_what_it_said(directory, note):
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 20 * SECOND)
    ring.freeze(ID, "why", 20 * SECOND)
    directory.replace(f"{ID}.json", note)
    (frozen,) = ring.recordings.every()
    assert (frozen.id, frozen.reasons, frozen.begin) == (ID, (), None)


# the disk


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_on_a_full_disk_it_stops_says_so_and_goes_on_when_there_is_room(small_disk, tmp_path, caplog):
    with contextlib.closing(Directory(small_disk / "flight")) as directory:
        ring = Ring(directory, lambda: 0)
        fill(ring, 0, 20 * SECOND)
        (small_disk / "other").write_bytes(bytes(600_000))
        fill(ring, 20 * SECOND, 40 * SECOND, size=50_000)
        assert ring.trouble == "No space left on device"
        assert ring.unwritten > 0
        (small_disk / "other").unlink()
        fill(ring, 40 * SECOND + RETRY_NS, 60 * SECOND)
        assert ring.trouble is None
        ring.freeze(ID, "why", 60 * SECOND)
        assert ring.written + ring.unwritten == 55
        with CaptureFile(saved(ring.recordings, ID, tmp_path)) as source:
            found = list(source.records())
        assert [each.count for each in found if isinstance(each, Lost)] == [ring.unwritten]
        assert len([each for each in found if isinstance(each, Data)]) == ring.written
        assert [each.message for each in caplog.records] == ["the flight recorder stops: No space left on device"]


def test_a_recording_is_whole_after_the_disk_was_full(small_disk, tmp_path):
    with contextlib.closing(Directory(small_disk / "flight")) as directory:
        ring = Ring(directory, lambda: 0)
        fill(ring, 0, 20 * SECOND)
        ring.freeze(ID, "why", 20 * SECOND)
        (small_disk / "other").write_bytes(bytes(900_000))
        fill(ring, 20 * SECOND, 40 * SECOND, size=50_000)
        assert ring.trouble is not None
        assert times(saved(ring.recordings, ID, tmp_path))[:20] == list(range(20))


# the directory


def test_a_symbolic_link_is_not_followed_to_the_directory(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "flight").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FlightError, match="name another directory"):
        Directory(tmp_path / "flight")


def test_symbolic_links_in_the_directory_are_neither_read_nor_written_through(directory, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("ring.0000000000.gz", f"{ID}.0000000000.gz", f"{ID}.json", f"{ID}.json.new"):
        (tmp_path / "flight" / name).symlink_to(victim)
    ring = Ring(directory, lambda: 0)
    fill(ring, 0, 40 * SECOND)
    assert ring.recordings.every() == []
    with pytest.raises(FlightError):
        ring.recordings.open(ID)
    with contextlib.suppress(OSError):
        ring.freeze(ID, "why", 40 * SECOND)
    ring.close(40 * SECOND)
    assert victim.read_text() == "precious"


def test_two_recorders_do_not_share_a_directory(directory, tmp_path):
    with pytest.raises(FlightError, match="another criscope records there"):
        Directory(tmp_path / "flight")


def test_a_directory_that_cannot_be_made_is_said_to_be_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FlightError, match="name another directory"):
        Directory(tmp_path / "file" / "flight")
