"""The kept corpus: in tests/data/fuzz one archive a harness, of inputs that reach most of its decoder.

Members that begin with `found-` are inputs that showed a fault; they stay whatever they reach.
"""

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "fuzz"
FOUND = "found-"

_WHEN = (1980, 1, 1, 0, 0, 0)  # the same inputs give the same archive


def load(name: str, prefix: str = "") -> list[bytes]:
    """The kept inputs of a harness whose names begin so, [] when there are none yet."""
    path = FOLDER / f"{name}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(member) for member in archive.infolist() if member.filename.startswith(prefix)]


def save(name: str, inputs: Iterable[bytes], found: Iterable[bytes]) -> int:
    """Writes the archive; returns its bytes."""
    members = {digest(data): data for data in inputs} | {FOUND + digest(data): data for data in found}
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for member, data in sorted(members.items(), key=lambda each: (len(each[1]), each)):
            archive.writestr(zipfile.ZipInfo(member, _WHEN), data, zipfile.ZIP_DEFLATED)
    return path.stat().st_size


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
