"""Store cursor: any text is a cursor that `encode` writes the same way, or a CursorError."""

from collections.abc import Iterator

from tests.fuzz.taps import Taps
from tracer.store.columns import INTEGER_MAX
from tracer.store.cursor import Cursor, CursorError

WORDS = ("call", None, "web-0")


def run(data: bytes) -> None:
    taps = Taps(data)
    if taps.byte() & 1:
        made = Cursor(*(taps.number(8) >> 1 for _ in range(4)))
        words = (*WORDS, taps.rest())
        assert Cursor.decode(made.encode(words), words) == made
        try:
            Cursor.decode(made.encode(words), (*words, ""))
        except CursorError:
            return
        raise AssertionError("a cursor of other filters")
    text = taps.rest().decode("utf-8", "replace")
    try:
        found = Cursor.decode(text, WORDS)
    except CursorError as error:
        assert str(error)
        assert "\n" not in str(error)
        return
    assert all(0 <= value <= INTEGER_MAX for value in (found.since, found.until, found.start, found.seq))
    # Both alphabets of base64 are taken, and padding that is not needed.
    assert found.encode(WORDS) == text.replace("+", "-").replace("/", "_").rstrip("=")


def seeds() -> Iterator[bytes]:
    yield b"\1" + bytes(32)
    yield b"\1" + b"\xff" * 32 + b"words"
    for numbers in ((0, INTEGER_MAX, INTEGER_MAX, INTEGER_MAX), (1, 2, 3, 4), (10**18, 2 * 10**18, 10**18 + 5, 77)):
        text = Cursor(*numbers).encode(WORDS)
        yield b"\0" + text.encode()
        yield b"\0" + text[:-3].encode() + b"==="
        yield b"\0" + text.replace("_", "/").encode()
    yield b"\0" + ("é" * 48).encode()
