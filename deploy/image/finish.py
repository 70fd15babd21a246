"""The last step of an image's build: `python3 finish.py [ROOT]`, as root. Safe to repeat.

Makes the interpreter that may attach, takes set-user-id bits away, and writes the bill of materials.
"""

import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

AGENT_PYTHON = "usr/local/libexec/criscope-python"
SITE = "usr/local/lib/{}/dist-packages"  # of python3.11 in Debian 12
SBOM = "usr/share/criscope/sbom.cdx.json"

# include/uapi/linux/capability.h: struct vfs_cap_data, revision 2, effective; then the low and the high word of what is
# permitted and inheritable. Written here rather than by setcap, which the image would have to install.
_CAP_PERFMON, _CAP_BPF = 38, 39
_FILE_CAPABILITIES = struct.pack("<5I", 0x02000000 | 1, 0, 0, 1 << _CAP_PERFMON - 32 | 1 << _CAP_BPF - 32, 0)

_SEARCHED = ("usr", "bin", "sbin", "lib", "opt")


def finish(root: Path) -> None:
    """All steps on the file system at `root`."""
    for path in _set_user_id(root):
        path.chmod(path.stat().st_mode & 0o1777)
    python = root / AGENT_PYTHON
    python.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "usr/bin" / _version(root), python)
    python.chmod(0o755)
    os.setxattr(python, "security.capability", _FILE_CAPABILITIES)
    bill = root / SBOM
    bill.parent.mkdir(parents=True, exist_ok=True)
    bill.write_text(json.dumps(materials(root), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def materials(root: Path) -> dict[str, object]:
    """CycloneDX 1.5: Debian's packages as dpkg lists them, Python's as their metadata does; no time, so it repeats."""
    components = sorted([*_debian(root), *_python(root)], key=lambda each: each["purl"])
    (own,) = [each for each in components if each["name"] == "criscope"]
    components.remove(own)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "type": "container"}},
        "components": components,
    }


def _version(root: Path) -> str:
    """`python3.11`: what Debian's `python3` leads to."""
    return str((root / "usr/bin/python3").readlink())


def _set_user_id(root: Path) -> Iterator[Path]:
    """Programs that would run as another user or group than who starts them: the agent needs none."""
    for top in _SEARCHED:
        for directory, _, names in os.walk(root / top):
            for name in names:
                path = Path(directory, name)
                if not path.is_symlink() and path.stat().st_mode & 0o6000:
                    yield path


def _debian(root: Path) -> Iterator[dict[str, str]]:
    for paragraph in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            name, version, architecture = (fields[key] for key in ("Package", "Version", "Architecture"))
            purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
            yield {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def _python(root: Path) -> Iterator[dict[str, str]]:
    for found in distributions(path=[str(root / SITE.format(_version(root)))]):
        name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
        purl = f"pkg:pypi/{name}@{found.version}"
        yield {"type": "library", "name": name, "version": found.version, "purl": purl, "bom-ref": purl}


if __name__ == "__main__":
    finish(Path(sys.argv[1] if len(sys.argv) > 1 else "/"))
