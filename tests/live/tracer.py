"""The command itself, as a user runs it: `criscope run` beside a runtime, asked over REST."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("criscope"))
READY_SECONDS = 20.0


@dataclass
class Tracer:
    """A running `criscope run`; `log` grows with what it says."""

    process: subprocess.Popen[str]
    url: str
    store: Path
    log: Path

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if path.startswith(("/api", "/healthz", "/readyz")) else body.decode()

    def everything(self, kind: str, query: str = "") -> list[dict[str, Any]]:
        """All rows of a list, page by page, oldest first."""
        items: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.get(f"/api/v1/{kind}?limit=1000{query}{cursor}")
            items += page["items"]
            if page["next"] is None:
                return items[::-1]
            cursor = f"&cursor={page['next']}"

    def settle(self) -> None:
        """Wait until everything that happened by now can be asked for."""
        time.sleep(1.5)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextlib.contextmanager
def traced(socket: Path | str, directory: Path, *more: str) -> Iterator[Tracer]:
    """`criscope run` on one socket, ready."""
    store, log = directory / "store.sqlite", directory / "criscope.log"
    command = [COMMAND, "run", "--socket", str(socket), "--listen", "127.0.0.1:0", "--store", str(store), *more]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, text=True) as process:
        try:
            yield Tracer(process, _address(process, log), store, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def _address(process: subprocess.Popen[str], log: Path) -> str:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        found = re.search(r"REST at (http://\S+)", log.read_text())
        if found:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{found[1]}/readyz", timeout=2):
                return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"criscope did not start: {log.read_text()}")
