"""A full disk under the runtime."""

import contextlib
import os
from collections.abc import Iterator

from tests.rig.node import Node

CHUNK_BYTES = 1 << 20


@contextlib.contextmanager
def full(node: Node) -> Iterator[None]:
    """Not a byte more fits on the file system of containerd's root within the block.

    Only for a node that has one of its own: `Node(disk_bytes=...)`.
    """
    assert os.path.ismount(node.root), "this node shares its disk with the machine"
    ballast = node.root / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):  # ENOSPC: that is wanted
            size = CHUNK_BYTES
            while size:
                size = file.write(bytes(size))
        yield
    finally:
        ballast.unlink(missing_ok=True)
