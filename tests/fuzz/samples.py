"""Seeds: pieces of shipped captures in the harnesses' own forms."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from tests.fuzz.script import script
from tracer.capture import CaptureFile
from tracer.headers import block_fragment
from tracer.http2 import HEADERS, Frame, Frames, FrameStats
from tracer.messages import Message
from tracer.paths import is_ttrpc
from tracer.records import Data, Record
from tracer.rpc import Finished, Requested, Responded, Rpc
from tracer.streams import Chunk, Streams, Way

DATA = Path(__file__).parents[1] / "data"
CAPTURES = ("startup", "crio", "k120", "evented", "restart")
MOST = 16_000  # bytes of a script; what is longer only costs time


@cache
def records(name: str) -> list[Record]:
    with CaptureFile(DATA / f"{name}.jsonl.gz") as capture:
        return list(capture.records())


def scripts(wanted: Callable[[Record], bool], windows: int, size: int) -> Iterator[bytes]:
    """Of every capture its beginning, and some windows from its middle, of so many records."""
    for name in CAPTURES:
        found = [record for record in records(name) if wanted(record)]
        for number in range(windows):
            begin = len(found) * number // windows
            piece = script(found[begin : begin + size])
            if 0 < len(piece) <= MOST:
                yield piece


def grpc(record: Record) -> bool:
    return isinstance(record, Data) and not is_ttrpc(record.path)


def ttrpc(record: Record) -> bool:
    return isinstance(record, Data) and is_ttrpc(record.path)


def chunks(way: Way, count: int = 60) -> Iterator[list[Chunk]]:
    """The first chunks of one direction of some connections."""
    for name in CAPTURES:
        streams, found = Streams(), {}
        for record in records(name)[:2000]:
            if grpc(record):
                for item in streams.feed(record):
                    if isinstance(item, Chunk) and item.way == way:
                        found.setdefault(item.connection, []).append(item)
        yield from (chunk[:count] for chunk in islice(found.values(), 3))


def blocks(way: Way) -> Iterator[list[bytes]]:
    """Header blocks of one direction of some connections."""
    for found in chunks(way, 400):
        frames = Frames(FrameStats())
        out = []
        for chunk in found:
            for frame in frames.feed(chunk):
                fragment = block_fragment(frame) if isinstance(frame, Frame) and frame.type == HEADERS else None
                if fragment is not None:
                    out.append(fragment)
        yield out[:40]


@cache
def messages() -> list[tuple[str, Way, bytes]]:
    """(method's path, way, message): a few of each method."""
    found: dict[tuple[str, Way], list[bytes]] = {}
    for name in CAPTURES:
        streams, rpc = Streams(), Rpc()
        for record in records(name):
            if not grpc(record):
                continue
            for item in streams.feed(record):
                for event in rpc.feed(item, streams.known(item.connection)):
                    if isinstance(event, Requested):
                        _note(found, event.call.path, "request", event.call.request)
                    elif isinstance(event, Responded):
                        _note(found, event.call.path, "response", event.message)
    return [(path, way, data) for (path, way), pieces in found.items() for data in pieces]


def _note(found: dict[tuple[str, Way], list[bytes]], path: str | None, way: Way, message: Message | None) -> None:
    data = message.data if message is not None else None
    if path is None or data is None or len(data) > 6000:
        return
    pieces = found.setdefault((path, way), [])
    if len(pieces) < 3 and data not in pieces:
        pieces.append(data)


@cache
def errors() -> list[str]:
    """Texts of failed calls."""
    found: dict[str, None] = {}
    for name in CAPTURES:
        streams, rpc = Streams(), Rpc()
        for record in records(name):
            if grpc(record):
                for item in streams.feed(record):
                    for event in rpc.feed(item, streams.known(item.connection)):
                        if isinstance(event, Finished) and event.call.error:
                            found[event.call.error] = None
    return list(found)[:40]


__all__ = ["blocks", "chunks", "errors", "grpc", "messages", "records", "scripts", "ttrpc"]
