"""Container images made on the spot from the machine's static busybox; no registry is asked."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

PAUSE = "criscope.test/pause:1"
"""Holds a pod's namespaces, as the sandbox image of a real node does."""

BUSYBOX = "criscope.test/busybox:1"
"""A shell with the usual small tools."""

APPLETS = ("sh", "sleep", "cat", "echo", "true", "false", "head", "seq", "yes")
# CLONE_NEWPID's first process ignores every signal it has no handler for, so both images need the runtime's SIGKILL
# to end unless their command traps SIGTERM.
FOREVER = ["/bin/sleep", "2147483647"]

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_BUSYBOX_PATHS = (Path("/usr/bin/busybox"), Path("/bin/busybox"))


def write_archive(target: Path) -> None:
    """Write one OCI archive (image layout in a tar) that holds both images; they share their only layer."""
    layer = _layer()
    layer_digest = _digest(layer)
    blobs = {layer_digest: layer}
    manifests = []
    for name, command in ((PAUSE, FOREVER), (BUSYBOX, ["/bin/sh"])):
        config = _json(
            {
                "architecture": _ARCHITECTURES[platform.machine()],
                "os": "linux",
                "config": {"Cmd": command, "Env": ["PATH=/bin"]},
                "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            },
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
                "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
            },
        )
        blobs[_digest(config)] = config
        blobs[_digest(manifest)] = manifest
        named = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
        named["annotations"] = {"io.containerd.image.name": name}
        manifests.append(named)
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": manifests}))
        for digest, blob in blobs.items():
            _add(archive, f"blobs/sha256/{digest.removeprefix('sha256:')}", blob)


def busybox() -> Path | None:
    """Where the machine keeps its busybox, if it has one."""
    return next((path for path in _BUSYBOX_PATHS if path.exists()), None)


def _layer() -> bytes:
    binary = busybox()
    if binary is None:
        raise FileNotFoundError("busybox is missing: install the Debian package busybox-static")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for directory in ("bin", "tmp"):
            entry = tarfile.TarInfo(directory)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if directory == "tmp" else 0o755
            layer.addfile(entry)
        _add(layer, "bin/busybox", binary.read_bytes(), mode=0o755)
        for applet in APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type = tarfile.SYMTYPE
            entry.linkname = "busybox"
            layer.addfile(entry)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
