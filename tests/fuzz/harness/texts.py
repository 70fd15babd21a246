"""Redaction of texts: short, without the words it was given and without commands that are quoted."""

from collections.abc import Iterator

from tests.fuzz.contract import text as is_text
from tests.fuzz.samples import errors
from tests.fuzz.taps import Taps, piece
from tracer.texts import LEAST_WORD, MAX_ERROR, redact

COVERED = "…"
SECRET = "Zq7RkW2v"

FORMS = (
    "https://user:{}@host/x", "pull http://registry/v2?token={}&y=1", "Authorization: Bearer {}", "basic {}",
    "password={} ", "MY_SECRET_KEY: {},", "api-key={}", "x-auth={}", 'exec: "{}": no such file',
    'exec: \\"{}\\" failed', "REGISTRY_PASSWD = {};", "token: {}",
)  # fmt: skip
"""What never shows what is put into it."""


def run(data: bytes) -> None:
    taps = Taps(data)
    words = [taps.piece().decode("utf-8", "replace") for _ in range(taps.byte() % 4)]
    form = FORMS[taps.byte() % len(FORMS)]
    planted = taps.byte() & 1
    before = taps.piece().decode("utf-8", "replace")
    given = taps.rest().decode("utf-8", "replace")
    if planted and COVERED not in given and SECRET not in before + given + "".join(words):
        given = f"{before} {form.format(SECRET)} {given}"
    _only_words([word for word in words if not set(word) & set(" \t\n…")])
    found = redact(given, words)
    is_text(found)
    assert len(found) <= MAX_ERROR
    for word in words:
        assert len(word) < LEAST_WORD or COVERED in word or word not in found, "a word"
    if planted:
        assert SECRET not in found, "a secret"


def _only_words(words: list[str]) -> None:
    """Of a text of nothing but words no part of a word is left, but of those that are too short to look for."""
    given = " ".join(words)
    if given.split() != words or "exec:" in given:
        return
    short = "".join(word for word in words if len(word) < LEAST_WORD)
    left = redact(given, words).replace(COVERED, " ").split()
    assert all(each in short for each in left), "a part of a word"


def seeds() -> Iterator[bytes]:
    for number, text in enumerate(errors()):
        words = text.split()
        first, last = words[0].encode()[:100], words[-1].encode()[:100]
        yield b"\2" + piece(first) + piece(last) + bytes([number, number]) + piece(b"rpc error:") + text.encode()
    yield b"\3" + piece(b"hunter2") + piece(b"hunter22") + piece(b"/run/hunter22/x") + b"\0\0\0"
    for number in range(len(FORMS)):
        yield bytes([0, number, 1]) + piece(b"failed to") + b"run: exit status 1"
    yield b"\0\0\0\0" + b'failed to exec: "/bin/my-tool --flag": stat /bin/my-tool: no such file or directory'
