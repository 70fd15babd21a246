"""The page beside real pods: it follows what happens, and what hangs is seen to grow."""

import time

import pytest

from tests.live.tracer import traced
from tests.rig import orders
from tests.rig.freeze import frozen
from tests.web.browser import Shown, browsing

FROZEN_SECONDS = 8.0
DUE_SECONDS = 20.0


@pytest.fixture(scope="module")
def lived(node, tmp_path_factory):
    """(page, tracer, driver) of a node with three pods."""
    directory = tmp_path_factory.mktemp("web")
    with (
        browsing() as browser,
        traced(node.socket, directory) as tracer,
        orders.steady(node.socket, directory / "oracle.jsonl") as told,
    ):
        shown = Shown(browser, tracer.url)
        yield shown, tracer, told
        shown.close()


def until(condition, what):
    due = time.monotonic() + DUE_SECONDS
    while time.monotonic() < due:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(what)


def test_it_begins_live_with_a_lane_for_each_pod(lived):
    shown, _, _ = lived
    assert shown.page.get_by_role("button", name="Live").get_attribute("aria-pressed") == "true"
    until(lambda: "live, connected" in shown.page.locator("#source").inner_text(), "the page is not connected")
    pods = {lane["title"] for lane in shown.ask("lanes()") if lane["key"].startswith("pod:")}
    assert pods >= {"shop/cart", "shop/checkout", "shop/search"}


def test_what_happens_comes_without_asking_and_the_window_follows(lived):
    shown, tracer, _ = lived
    first, calls = shown.window()[0], set(shown.ask("items('call')"))
    time.sleep(3)
    assert 2.5e6 < shown.window()[0] - first < 8e6
    new = set(shown.ask("items('call')")) - calls
    assert len(new) >= 4, "two lists each second"
    tracer.settle()
    assert new <= {f"call:{call['id']}" for call in tracer.everything("calls")}


def test_an_open_call_grows_until_it_ends(lived, node):
    shown, _, _ = lived
    with frozen(node.pid):
        key = until(
            lambda: next(
                iter(
                    shown.page.evaluate("() => criscope.items('call').filter((key) => criscope.item(key).end === null)")
                ),
                None,
            ),
            "no open call is shown",
        )
        before = shown.ask("item(given)", key)
        time.sleep(1)
        after = shown.ask("item(given)", key)
        assert after["end"] is None
        assert after["right"] - after["x"] > before["right"] - before["x"]
        until(
            lambda: "ListPodSandbox" in shown.page.locator("#pleg").inner_text(),
            "the header names no call that the PLEG waits for",
        )
        until(
            lambda: shown.page.locator("#open").get_attribute("data-state") == "warn", "no open call is told to be old"
        )
        shown.page.locator("#pleg button").click()
        assert shown.facts()["method"] == "ListPodSandbox"
        assert shown.facts()["ended_by"] == "open"
        assert shown.facts()["service_seconds"] == "not yet"
        time.sleep(FROZEN_SECONDS - 6)
        shown.picture("live-hung")
    until(lambda: shown.ask("item(given)", key)["end"] is not None, "the call ended, but not on the page")
    until(lambda: shown.facts()["ended_by"] == "server", "its facts still say open")


def test_a_new_finding_is_said_aloud_and_heads_the_list(lived, node):
    shown, tracer, _ = lived
    shown.page.get_by_role("tab", name="Findings").click()
    finding = until(lambda: tracer.get("/api/v1/findings")["items"], "nothing was found of the runtime that stood")[0]
    until(lambda: shown.page.locator("#findings li").count() > 0, "the list is empty")
    assert "finding" in shown.page.locator("#said").text_content().lower()
    assert finding["kind"].replace("_", " ") in shown.page.locator("#findings").inner_text()


def test_a_past_window_stays_while_time_goes_on(lived):
    shown, _, _ = lived
    shown.page.locator("#lanes").focus()
    shown.page.keyboard.press("ArrowLeft")
    window = shown.window()
    time.sleep(1)
    assert shown.window() == window
    assert shown.page.get_by_role("button", name="Live").get_attribute("aria-pressed") == "false"
    shown.page.keyboard.press("f")
    shown.settle()
    assert shown.window()[1] > window[1]
