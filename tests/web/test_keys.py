"""Everything can be done without a mouse, and without seeing the lanes."""

import re

import pytest


@pytest.fixture
def shown(open_page, slowcni):
    opened = open_page(slowcni)
    opened.page.locator("#lanes").focus()
    return opened


def press(shown, *names):
    for name in names:
        shown.page.keyboard.press(name)
    shown.settle()


def said(shown):
    return shown.page.locator("#said").text_content()


def test_arrows_pan_and_plus_and_minus_zoom(shown):
    first, last = shown.window()
    press(shown, "ArrowRight")
    assert shown.window()[0] > first
    press(shown, "ArrowLeft")
    assert abs(shown.window()[0] - first) < 2
    press(shown, "+")
    assert shown.window()[1] - shown.window()[0] < (last - first) * 0.8
    press(shown, "-")
    assert abs(shown.window()[0] - first) < 1000
    press(shown, "+", "ArrowRight", "0")
    assert abs(shown.window()[0] - first) < 1000


def test_from_lane_to_item_to_its_facts_and_back(shown):
    press(shown, "j", "j")
    assert re.match(r"Lane PLEG, \d+ items", said(shown))
    press(shown, "k", "n")
    assert re.match(r"1 of 2: cni slow, finding, ended", said(shown))
    press(shown, "n")
    assert said(shown).startswith("2 of 2: cni failing")
    press(shown, "p", "Enter")
    assert shown.facts()["id"] == "f1"
    press(shown, "Escape")
    assert shown.ask("view.selected") is None
    assert shown.page.evaluate("() => document.activeElement.id") == "lanes"


def test_a_pods_start_and_lane_answer_to_keys(shown):
    press(shown, "j", "j", "j", "j")
    assert said(shown).startswith("Lane default/")
    lane = next(lane for lane in shown.ask("lanes()") if lane["key"].startswith("pod:"))
    press(shown, "c")
    folded = next(each for each in shown.ask("lanes()") if each["key"] == lane["key"])
    assert (lane["compact"], folded["compact"]) == (False, True)
    assert folded["height"] < lane["height"]
    press(shown, "s")
    assert shown.page.get_by_role("tab", name="Pod start").get_attribute("aria-selected") == "true"


def test_slash_searches_and_escape_returns(shown):
    press(shown, "/")
    shown.page.keyboard.type("runpodsandbox f")
    assert shown.page.get_by_role("searchbox").input_value() == "runpodsandbox f"
    assert not shown.ask("view.follow")
    press(shown, "Escape")
    assert shown.page.evaluate("() => document.activeElement.id") == "lanes"


def test_t_shows_the_table_whose_rows_are_buttons(shown):
    press(shown, "t")
    shown.page.locator("#table button").first.wait_for()
    assert shown.page.locator("#lanes").is_hidden()
    shown.page.locator("#table button").first.focus()
    press(shown, "Enter")
    assert shown.facts()["id"]


def test_the_tab_key_reaches_every_control_and_shows_where_it_is(open_page, slowcni):
    shown = open_page(slowcni)
    reached = []
    for _ in range(60):
        shown.page.keyboard.press("Tab")
        at = shown.page.evaluate(
            """() => {
              const { activeElement: at } = document;
              const style = getComputedStyle(at);
              // The lanes show theirs around what scrolls in them.
              const around = getComputedStyle(at.parentElement ?? at, "::after").borderTopStyle;
              const shown = at === document.body || style.outlineStyle !== "none" || around === "solid";
              return [at.id || at.name || at.textContent.trim(), shown];
            }"""
        )
        assert at[1], at
        reached.append(at[0])
    wanted = {"theme", "q", "pod", "method", "status", "min", "Clear", "out", "in", "fit", "table-toggle", "help"}
    assert wanted | {"export", "lanes", "tab-findings", "API"} <= set(reached)


def test_tabs_turn_with_arrows(open_page, slowcni):
    shown = open_page(slowcni)
    shown.page.get_by_role("tab", name="Findings").focus()
    press(shown, "ArrowRight")
    assert shown.page.get_by_role("tab", name="Facts").get_attribute("aria-selected") == "true"
    press(shown, "ArrowLeft", "ArrowLeft")
    shown.page.get_by_role("tabpanel", name="Usage").wait_for()


def test_the_keys_are_told(shown):
    press(shown, "?")
    assert shown.page.locator("#keys").is_visible()
    press(shown, "Escape")
    assert shown.page.locator("#keys").is_hidden()
