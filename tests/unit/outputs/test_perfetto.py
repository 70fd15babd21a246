"""The trace for Perfetto, read back with Perfetto's own schema."""

from collections import Counter, defaultdict

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

from tests.unit.replayed import DATA, replayed
from tests.unit.store.sample import NOW, SECOND, call, node_event, relist
from tracer.capture import CaptureFile
from tracer.outputs.perfetto import BEGIN, END, INSTANT, LANES, trace
from tracer.replay import replay


@pytest.fixture(scope="module")
def rows():
    found = {}
    replay(
        CaptureFile(DATA / "truth.jsonl.gz"), lambda new: found.update({(r.kind, r.id): r for r in new}), lambda _: 0
    )
    return list(found.values())


def read(rows):
    packets = perfetto.Trace.FromString(b"".join(trace(rows))).packet
    return [packet for packet in packets if packet.HasField("track_event")], {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in packets
        if packet.HasField("track_descriptor")
    }


def path(tracks, uuid):
    names = []
    while uuid:
        names.append(tracks[uuid].name)
        uuid = tracks[uuid].parent_uuid
    return tuple(reversed(names))


def facts(event):
    return {
        each.name: getattr(each, each.WhichOneof("value")) for each in event.debug_annotations
    }  # fmt: skip


def slices(rows):
    """(category, id, parent id or None, path, begin, end) of every slice, checking that they nest on each track."""
    events, tracks = read(rows)
    stacks, found = defaultdict(list), {}
    for packet in events:
        event, stack = packet.track_event, stacks[packet.track_event.track_uuid]
        if event.type == BEGIN:
            ident = facts(event)["id"]
            if stack:
                assert packet.timestamp >= found[stack[-1]][4]
            place = (*path(tracks, event.track_uuid), event.track_uuid)
            parent = stack[-1][1] if stack else None
            found[event.categories[0], ident] = [event.categories[0], ident, parent, place, packet.timestamp, None]
            stack.append((event.categories[0], ident))
        elif event.type == END:
            found[stack.pop()][5] = packet.timestamp
    return found


def test_every_relist_pass_call_step_and_event_is_there_once(rows):
    events, _ = read(rows)
    kinds = Counter(packet.track_event.categories[0] for packet in events if packet.track_event.type != END)
    assert kinds == Counter(row.kind for row in rows)


def test_slices_have_the_times_of_their_rows_and_nest(rows):
    found = slices(rows)
    for row in rows:
        if row.kind in ("call", "relist", "sync_pass", "step"):
            assert found[row.kind, row.id][4:] == [row.start, row.end]


def test_calls_lie_in_their_relists_and_passes(rows):
    found = slices(rows)
    for kind, name in (("relist", "relists"), ("sync_pass", "sync_passes")):
        for item in replayed("truth")[name]:
            inside = [ident for ident in item["calls"] if found["call", ident][2] == item["id"]]
            assert inside == item["calls"], (kind, item["id"])


def test_things_are_on_the_right_tracks(rows):
    found = slices(rows)
    for row in rows:
        if row.kind == "relist":
            assert found["relist", row.id][3][:-1] == ("PLEG",)
        elif row.kind == "sync_pass":
            pod = row.fields["pod"]
            assert found["sync_pass", row.id][3][:2] == ("pods", f"{pod['namespace']}/{pod['name']}")


def test_the_lanes_are_in_their_order():
    _, tracks = read([])
    assert [(track.name, track.sibling_order_rank) for track in tracks.values()] == [
        (lane, rank) for rank, lane in enumerate(LANES)
    ]


def test_calls_side_by_side_get_tracks_of_their_own_and_an_open_one_has_no_end():
    found = slices(
        [
            call("a", NOW, 5.0, pod=None, client={"pid": 7, "comm": "x", "role": "other"}),
            call("b", NOW + SECOND, 5.0, pod=None, client={"pid": 7, "comm": "x", "role": "other"}),
            call("c", NOW + 2 * SECOND, None, pod=None, client={"pid": 7, "comm": "x", "role": "other"}),
        ]
    )
    assert len({each[3] for each in found.values()}) == 3
    assert found["call", "c"][5] is None


def test_events_are_instants():
    events, tracks = read([node_event("n"), relist("r")])
    (instant,) = [packet.track_event for packet in events if packet.track_event.type == INSTANT]
    assert path(tracks, instant.track_uuid) == ("node",)
