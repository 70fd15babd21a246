"""The kept corpus: in tests/data/fuzz one archive a harness, of inputs that reach most of its decoder."""

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "fuzz"

_WHEN = (1980, 1, 1, 0, 0, 0)  # the same inputs give the same archive


def load(name: str) -> list[bytes]:
    """The kept inputs of a harness, [] when there are none yet."""
    path = FOLDER / f"{name}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(member) for member in archive.infolist()]


def save(name: str, inputs: Iterable[bytes]) -> None:
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for data in sorted(set(inputs), key=lambda each: (len(each), each)):
            archive.writestr(zipfile.ZipInfo(digest(data), _WHEN), data, zipfile.ZIP_DEFLATED)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
