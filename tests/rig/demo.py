"""`make demo`: criscope traces a private node with real pods, and the terminal shows what it says."""

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from tests.rig import driver
from tests.rig.node import Node, NodeError, why_not
from tests.rig.view import Rest, Snapshot, addresses, health, pass_line, relist_line, screen

START_SECONDS = 30.0
"""For criscope to serve; it takes a second or two."""

REFRESH_SECONDS = 1.0
"""A relist a second is the fastest thing to be seen."""

HEALTH_TURNS = 5
"""Without a terminal, the PLEG's health is told each so many refreshes."""

COMMAND = Path(sys.executable).with_name("criscope")


class DemoError(Exception):
    """The demonstration cannot start or go on; the text says why in one line."""


class Tracer:
    """`criscope` as a process that serves; ended with the block."""

    def __init__(self, listen: str, *arguments: str | Path) -> None:
        if not COMMAND.exists():
            raise DemoError("criscope is not installed here: run `make setup`")
        self.rest = Rest(f"http://{listen}")
        if self.rest.is_served():
            raise DemoError(f"something else serves at {listen} already: end it, or give another --listen")
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the block)
        self._process = subprocess.Popen(
            [COMMAND, *arguments, "--listen", listen],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C ends it through this block, after the pods' driver
        )

    def __enter__(self) -> Self:
        due = time.monotonic() + START_SECONDS
        while True:
            try:
                self.rest.get("/readyz")
            except OSError:
                if time.monotonic() > due:
                    self._end()
                    raise DemoError(f"criscope did not serve within {START_SECONDS:.0f} s") from None
                self._check()
                time.sleep(0.1)
            else:
                return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def snapshot(self) -> Snapshot:
        try:
            return self.rest.snapshot()
        except OSError as error:
            self._check()
            raise DemoError(f"criscope does not answer: {error}") from error

    def _check(self) -> None:
        """Raise DemoError with its last words when it ended."""
        if self._process.poll() is not None:
            self._said.seek(0)
            words = self._said.read().strip().splitlines() or [f"criscope ended, {self._process.returncode}"]
            raise DemoError(words[-1].removeprefix("criscope: "))

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._said.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trace a private node with real pods, and show what is seen.")
    parser.add_argument("--seconds", type=float, help="end by itself; default: until Ctrl-C")
    parser.add_argument("--listen", default="127.0.0.1:9559", help="where criscope serves (default: %(default)s)")
    parser.add_argument("--replay", type=Path, metavar="CAPTURE", help="show a recorded node instead; needs no root")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminate)
    console = Console(highlight=False)
    try:
        with contextlib.ExitStack() as stack:
            _show(console, _start(console, stack, arguments), arguments.seconds)
    except KeyboardInterrupt:
        console.print("Ended; everything is removed.")
    except (DemoError, NodeError) as error:
        console.print(f"The demonstration cannot run: {error}", soft_wrap=True)
        if not arguments.replay:
            console.print("`make demo-replay` shows a recorded node instead; it needs no root.")
        sys.exit(2)


def _start(console: Console, stack: contextlib.ExitStack, arguments: argparse.Namespace) -> Tracer:
    if arguments.replay:
        return stack.enter_context(Tracer(arguments.listen, "replay", arguments.replay, "--serve"))
    if reason := why_not():
        raise DemoError(reason)
    console.print("Starting a private containerd, criscope and some pods ...")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="criscope-demo-")))
    node = stack.enter_context(Node())
    store = directory / "store.sqlite"
    tracer = stack.enter_context(Tracer(arguments.listen, "run", "--socket", node.socket, "--store", store))
    stack.enter_context(driver.running(node.socket, directory / "oracle.jsonl", "demo"))
    return tracer


def _show(console: Console, tracer: Tracer, seconds: float | None) -> None:
    due = time.monotonic() + seconds if seconds is not None else float("inf")
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while time.monotonic() < due:
                live.update(screen(tracer.snapshot(), tracer.rest.url), refresh=True)
                time.sleep(REFRESH_SECONDS)
        return
    shown: set[str] = set()
    turn = 0
    while time.monotonic() < due:
        now = tracer.snapshot()
        if turn % HEALTH_TURNS == 0:
            console.print(health(now).plain, soft_wrap=True)
        if turn == 1:
            console.print("Ask it yourself:", *addresses(now, tracer.rest.url), sep="\n", soft_wrap=True)
        for line, items in ((relist_line, now.relists), (pass_line, now.passes)):
            news = [
                item for item in reversed(items) if item["duration_seconds"] is not None and item["id"] not in shown
            ]
            shown |= {item["id"] for item in news}
            for item in news:
                if item.get("events", True):  # a relist that found nothing is no news
                    console.print(line(item), soft_wrap=True)
        turn += 1
        time.sleep(REFRESH_SECONDS)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
