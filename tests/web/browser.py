"""A real browser on a real criscope: what the tests of the page stand on."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

CHROMIUM = "/usr/bin/chromium"
COMMAND = str(Path(sys.executable).with_name("criscope"))
PICTURES = Path(__file__).parents[2] / ".output" / "web"
READY_SECONDS = 60.0
READY_TRIES = 4


def need_chromium() -> None:
    """Skip with one reason where there is no browser; fail where there must be one."""
    if not Path(CHROMIUM).exists():
        reason = f"needs {CHROMIUM} (Debian package chromium)"
        if os.environ.get("CRISCOPE_LIVE") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    need_chromium()
    with sync_playwright() as playwright:
        # Root has no sandbox of its own in a container; the page is ours.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@contextlib.contextmanager
def serving(command: list[str], directory: Path) -> Iterator[str]:
    """The address that `command` says it serves at."""
    log = directory / "criscope.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield _address(process, log)
        finally:
            process.send_signal(signal.SIGTERM)


def replayed(capture: Path, directory: Path) -> contextlib.AbstractContextManager[str]:
    return serving([COMMAND, "replay", str(capture), "--serve", "--listen", "127.0.0.1:0"], directory)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        if found := re.search(r"REST at (http://\S+)", log.read_text()):
            return found[1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(f"nothing is served: {log.read_text()}")


class Shown:
    """The page as a test sees it: through `window.criscope` (docs/web.md), roles, and what went wrong in it."""

    def __init__(self, browser: Browser, url: str, fragment: str = "", **context: Any) -> None:
        self.url = url
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | context))
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda asked: self.hosts.add(asked.url.split("/")[2]))
        self.failed: list[str] = []
        self.page.on("requestfailed", lambda asked: self.failed.append(f"{asked.url} {asked.failure}"))
        self.go(fragment)

    def go(self, fragment: str = "") -> None:
        self.page.goto(f"{self.url}/{fragment}")
        self.ready()

    def ready(self) -> None:
        for left in reversed(range(READY_TRIES)):
            try:
                self.page.wait_for_selector("html[data-ready]", state="attached", timeout=10_000)
                break
            except PlaywrightTimeout:
                # Chromium drops what it asks for while an interface comes or goes, as those of other pods do here.
                if left and any("ERR_NETWORK_CHANGED" in failed for failed in self.failed):
                    self.failed.clear()
                    self.faults.clear()
                    self.page.reload()
                elif not left:
                    said = self.page.locator("#trouble").text_content()
                    raise AssertionError(f"not ready; it says {said!r}; {self.faults}; {self.failed}") from None
        self.settle()

    def settle(self) -> None:
        """Until two frames after what was asked for are drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def ask(self, expression: str, argument: Any = None) -> Any:
        """What a function of the hook gives: `lanes()`, `item(given)`."""
        return self.page.evaluate(f"(given) => window.criscope.{expression}", argument)

    def window(self) -> tuple[float, float]:
        return tuple(self.page.evaluate("() => [criscope.view.from, criscope.view.to]"))

    def show(self, key: str, room: float = 0.2) -> dict[str, Any]:
        """Zoom to an item; where it is drawn then."""
        item = self.ask("item(given)", key)
        end = item["end"] or item["start"] + 1_000_000
        more = max((end - item["start"]) * room, 1000)
        self.page.evaluate("([from, to]) => criscope.view.show(from, to)", [item["start"] - more, end + more])
        self.settle()
        return self.ask("item(given)", key)

    def click(self, item: dict[str, Any]) -> None:
        """Click the middle of what is seen of an item."""
        box = self.page.locator("#canvas").bounding_box()
        left = max(item["x"], 172 if box["width"] >= 640 else 0)
        right = min(item["right"], box["width"])
        self.page.mouse.click(box["x"] + (left + right) / 2, box["y"] + item["y"])

    def facts(self) -> dict[str, str]:
        """Field -> text of the open item."""
        self.page.wait_for_selector("#facts dl.facts")
        return dict(
            self.page.evaluate(
                "() => [...document.querySelectorAll('#facts dl.facts dt')]"
                ".map((dt) => [dt.textContent, dt.nextSibling.textContent])"
            )
        )

    def api(self, path: str) -> Any:
        return json.loads(self.context.request.get(f"{self.url}{path}").body())

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def close(self) -> None:
        self.context.close()
        changed = any("ERR_NETWORK_CHANGED" in failed for failed in self.failed)
        assert [fault for fault in self.faults if not (changed and "ERR_NETWORK_CHANGED" in fault)] == []
        assert self.hosts <= {self.url.rpartition("/")[2]}
