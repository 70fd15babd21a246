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
from tests.rig.orders import Orders
from tests.rig.proxy import Proxy
from tests.rig.troubles import TROUBLES, Recurring, Scene
from tests.rig.view import Rest, Snapshot, addresses, health, pass_line, relist_line, screen, verdict_line

START_SECONDS = 30.0
"""For criscope to serve; it takes a second or two."""

REFRESH_SECONDS = 1.0
"""A relist a second is the fastest thing to be seen."""

HEALTH_TURNS = 5
"""Without a terminal, the PLEG's health and the verdict are told each so many refreshes."""

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

    def snapshot(self, *, verdict: bool) -> Snapshot:
        try:
            return self.rest.snapshot(verdict=verdict)
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


class Show:
    """Draws until the time is over: a screen that is renewed in a terminal, else a line for each thing that is new."""

    def __init__(self, console: Console, tracer: Tracer) -> None:
        self.trouble: Recurring | None = None
        self._console = console
        self._tracer = tracer
        self._said: str | None = None
        self._shown: set[str] = set()
        self._state: str | None = None

    def say(self, text: str) -> None:
        """What the trouble maker did."""
        self._said = text
        if not self._console.is_terminal:
            self._console.print(text, soft_wrap=True)

    def run(self, seconds: float | None) -> None:
        due = time.monotonic() + seconds if seconds is not None else float("inf")
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
                while time.monotonic() < due:
                    live.update(screen(self._look(), self._tracer.rest.url, self._trouble()), refresh=True)
                    time.sleep(REFRESH_SECONDS)
        turn = 0
        while time.monotonic() < due:
            self._tell(self._look(), turn)
            turn += 1
            time.sleep(REFRESH_SECONDS)

    def _look(self) -> Snapshot:
        if self.trouble is not None and self.trouble.failure is not None:
            raise DemoError(f"the trouble could not be made: {self.trouble.failure}")
        return self._tracer.snapshot(verdict=self.trouble is not None)

    def _trouble(self) -> str | None:
        return None if self.trouble is None else self._said or "trouble begins soon"

    def _tell(self, now: Snapshot, turn: int) -> None:
        if turn % HEALTH_TURNS == 0:
            self._console.print(health(now).plain, soft_wrap=True)
        if turn == 1:
            self._console.print("Ask it yourself:", *addresses(now, self._tracer.rest.url), sep="\n", soft_wrap=True)
        if now.verdict is not None and (turn % HEALTH_TURNS == 0 or now.verdict["state"] != self._state):
            self._state = now.verdict["state"]
            self._console.print(verdict_line(now), soft_wrap=True)
        for line, items in ((relist_line, now.relists), (pass_line, now.passes)):
            news = [
                item
                for item in reversed(items)
                if item["duration_seconds"] is not None and item["id"] not in self._shown
            ]
            self._shown |= {item["id"] for item in news}
            for item in news:
                if item.get("events", True):  # a relist that found nothing is no news
                    self._console.print(line(item), soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trace a private node with real pods, and show what is seen.")
    parser.add_argument("--seconds", type=float, help="end by itself; default: until Ctrl-C")
    parser.add_argument("--listen", default="127.0.0.1:9559", help="where criscope serves (default: %(default)s)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--replay", type=Path, metavar="CAPTURE", help="show a recorded node instead; needs no root")
    shown.add_argument("--trouble", choices=TROUBLES, help="make this trouble, again and again")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _terminate)
    console = Console(highlight=False)
    try:
        with contextlib.ExitStack() as stack:
            _start(console, stack, arguments).run(arguments.seconds)
    except KeyboardInterrupt:
        console.print("Ended; everything is removed.")
    except (DemoError, NodeError) as error:
        console.print(f"The demonstration cannot run: {error}", soft_wrap=True)
        if not arguments.replay:
            console.print("`make demo-replay` shows a recorded node instead; it needs no root.")
        sys.exit(2)


def _start(console: Console, stack: contextlib.ExitStack, arguments: argparse.Namespace) -> Show:
    if arguments.replay:
        return Show(console, stack.enter_context(Tracer(arguments.listen, "replay", arguments.replay, "--serve")))
    if reason := why_not():
        raise DemoError(reason)
    console.print("Starting a private containerd, criscope and some pods ...")
    trouble = TROUBLES.get(arguments.trouble)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="criscope-demo-")))
    node = stack.enter_context(Node(trouble.disk_bytes if trouble else None))
    proxy = stack.enter_context(Proxy(node.socket)) if trouble and trouble.proxied else None
    sockets = [node.socket, proxy.socket] if proxy else [node.socket]
    options = [word for socket in sockets for word in ("--socket", socket)]
    tracer = Tracer(arguments.listen, "run", "--store", directory / "store.sqlite", *options)
    show = Show(console, stack.enter_context(tracer))
    oracle = directory / "oracle.jsonl"
    process = stack.enter_context(driver.running(sockets[-1], oracle, "demo"))
    if trouble:
        scene = Scene(node, Orders(process, oracle), proxy)
        show.trouble = stack.enter_context(Recurring(trouble, scene, show.say))
    return show


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
