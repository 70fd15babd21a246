"""A registry that takes connections and never says a word: pulls from it hang."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """Yields the name of an image there. Pulls that hang fail when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connections wait unaccepted in its backlog
        yield f"127.0.0.1:{listener.getsockname()[1]}/criscope/silent:1"
