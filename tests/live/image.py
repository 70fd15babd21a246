"""The image of the DaemonSet, made as deploy/Containerfile makes it: without its base image, which no test can fetch.

Its Debian packages are this machine's own, file by file, with all they depend on and what every Debian has.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.rig import images
from tests.rig.driver import REPOSITORY

NAME = "docker.io/library/criscope:0.1.0"
"""What containerd makes of the manifest's `criscope`."""

DEPLOY = REPOSITORY / "deploy"
SITE = f"usr/local/lib/python3.{sys.version_info.minor}/dist-packages"
CACHE = REPOSITORY / ".output" / "image"
BASE = ("base-files", "bash", "coreutils", "dash", "libc-bin", "sed")
"""Of the base image's packages those that are used."""


def write_archive(target: Path, scratch: Path) -> Path:
    """Write an OCI archive with the image; returns its root file system, in `scratch`."""
    root = scratch / "root"
    shutil.copytree(_cached(), root, symlinks=True)
    _python(scratch)("install", "--no-deps", "--no-index", _wheel(scratch), "--target", root / SITE, "--upgrade")
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
    _compile(root)
    for name in ("criscope", "criscope-agent", "criscope-probe"):
        shutil.copy(DEPLOY / "image" / name, root / "usr/local/bin" / name)
    subprocess.run([sys.executable, DEPLOY / "image" / "finish.py", root], check=True)
    layer = scratch / "layer.tar"
    kept = ["--xattrs", "--xattrs-include=security.capability", "--numeric-owner", "--owner=0", "--group=0"]
    subprocess.run(["tar", "--create", "--file", layer, "--directory", root, *kept, "."], check=True)
    _write(target, layer)
    return root


def packages() -> list[str]:
    """Debian packages of the image and all they depend on, as they are installed here."""
    listed = (line.partition("#")[0].strip() for line in (DEPLOY / "image" / "packages.txt").read_text().splitlines())
    found: set[str] = set()
    wanted = [*BASE, *filter(None, listed)]
    while wanted:
        name = wanted.pop()
        if name not in found and (depends := _depends(name)) is not None:
            found.add(name)
            wanted += depends
    return sorted(found)


def _depends(name: str) -> list[str] | None:
    """Names, of alternatives all; None when it is not installed (the other alternative is)."""
    form = "${db:Status-Status}\t${Pre-Depends}, ${Depends}\n"
    done = subprocess.run(["dpkg-query", "--show", f"--showformat={form}", name], capture_output=True, text=True)
    state, _, depends = done.stdout.partition("\n")[0].partition("\t")
    if state != "installed":
        return None
    return [word for each in re.split(r"[,|]", depends) if (word := re.sub(r"[(:].*", "", each.strip()).strip())]


def _cached() -> Path:
    """Packages of Debian and Python, which seldom change."""
    status = subprocess.run(["dpkg-query", "--status", *packages()], check=True, capture_output=True, text=True).stdout
    parts = (status, (DEPLOY / "requirements.lock").read_text(), Path(__file__).read_text())
    kept = CACHE / hashlib.sha256("".join(parts).encode()).hexdigest()[:16]
    if not kept.exists():
        shutil.rmtree(CACHE, ignore_errors=True)  # of another state
        root = CACHE / "making"
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / "usr" / name).mkdir(parents=True)
            (root / name).symlink_to(f"usr/{name}")
        for source in _files():
            _copy(source, root)
        (root / "var/lib/dpkg").mkdir(parents=True, exist_ok=True)
        (root / "var/lib/dpkg/status").write_text(status)
        for directory in ("proc", "sys", "dev", "run", "tmp", "etc", "var/lib/criscope", "usr/local/bin"):
            (root / directory).mkdir(parents=True, exist_ok=True)
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/usr/sbin/nologin\n")
        (root / "etc/group").write_text("root:x:0:\n")
        shutil.copy("/etc/ld.so.cache", root / "etc/ld.so.cache")
        lock = DEPLOY / "requirements.lock"
        _python(CACHE)("install", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", lock,
                       "--target", root / SITE)  # fmt: skip
        _compile(root)
        root.rename(kept)
    return kept


def _files() -> Iterator[Path]:
    listed = subprocess.run(["dpkg-query", "--listfiles", *packages()], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        path = Path(line)
        if path.is_absolute() and not line.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/locale")):
            yield path


def _copy(source: Path, root: Path) -> None:
    """Where Debian 12 has it: /bin, /sbin and /lib are links into /usr."""
    parent = source.parent.resolve()
    target = root / (parent / source.name).relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        if not target.is_symlink():
            target.symlink_to(source.readlink())
    elif source.is_file():
        shutil.copy(source, target)


def _wheel(scratch: Path) -> Path:
    _python(scratch)("wheel", "--no-deps", "--wheel-dir", scratch / "wheel", REPOSITORY)
    (wheel,) = (scratch / "wheel").glob("criscope-*.whl")
    return wheel


def _python(directory: Path):
    def pip(*arguments: object) -> None:
        command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
        subprocess.run(command, check=True, cwd=directory, capture_output=True, text=True)

    return pip


def _compile(root: Path) -> None:
    """Files that do not look at the source's time, which another copy would change."""
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(root)]
    subprocess.run(["/usr/bin/python3", "-m", "compileall", *options, root / SITE], check=True)


def _write(target: Path, layer: Path) -> None:
    with layer.open("rb") as file:
        digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    config = images._json(
        {
            "architecture": images._ARCHITECTURES[os.uname().machine],
            "os": "linux",
            "config": {
                "Entrypoint": ["/usr/local/bin/criscope"],
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"],
                "User": "59559:59559",
            },
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        },
    )
    described = {
        "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": digest,
        "size": layer.stat().st_size,
    }
    manifest = images._json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": images._descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [described],
        },
    )
    named = images._descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    named["annotations"] = {"io.containerd.image.name": NAME}
    with tarfile.open(target, "w") as archive:
        images._add(archive, "oci-layout", images._json({"imageLayoutVersion": "1.0.0"}))
        images._add(archive, "index.json", images._json({"schemaVersion": 2, "manifests": [named]}))
        for blob in (config, manifest):
            images._add(archive, f"blobs/sha256/{images._digest(blob).removeprefix('sha256:')}", blob)
        archive.add(layer, f"blobs/sha256/{digest.removeprefix('sha256:')}")


if __name__ == "__main__":  # a look at it: python -m tests.live.image ARCHIVE SCRATCH
    json.dump(str(write_archive(Path(sys.argv[1]), Path(sys.argv[2]))), sys.stdout)
