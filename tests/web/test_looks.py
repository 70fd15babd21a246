"""Dark, light, a desk and a phone: what axe says, and pictures for those who look (.output/web)."""

import pytest
from axe_playwright_python.sync_playwright import Axe

DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
SERIOUS = {"serious", "critical"}


def violations(shown):
    found = Axe().run(shown.page).response["violations"]
    return [
        (each["id"], each["impact"], [node["target"] for node in each["nodes"]][:5])
        for each in found
        if each["impact"] in SERIOUS
    ]


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize(("name", "size"), [("desk", DESK), ("phone", PHONE)])
@pytest.mark.parametrize("state", ["findings", "facts", "start", "table"])
def test_axe_finds_nothing_serious(open_page, slowcni, scheme, name, size, state):
    shown = open_page(slowcni, color_scheme=scheme, **size)
    if state == "facts":
        shown.show("finding:f1")
        shown.page.get_by_role("tabpanel", name="Findings").get_by_text("cni slow").click()
        shown.facts()
    elif state == "start":
        shown.page.get_by_role("tab", name="Pod start").click()
        shown.page.locator("#start").get_by_text("slownet-node1").click()
        shown.page.wait_for_selector("#start .waterfall")
    elif state == "table":
        shown.page.get_by_role("button", name="Table").click()
        shown.page.wait_for_selector("#table tbody tr")
    shown.settle()
    shown.picture(f"{name}-{scheme}-{state}")
    assert violations(shown) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_at_the_side(open_page, slowcni, width):
    shown = open_page(slowcni, viewport={"width": width, "height": 800})
    assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width
    for box in shown.page.evaluate(
        "() => [...document.querySelectorAll('button, select, input, a')].filter((each) => each.checkVisibility())"
        ".map((each) => each.getBoundingClientRect()).map(({left, right}) => [left, right])"
    ):
        assert box[0] >= -1
        assert box[1] <= width + 1


def test_the_theme_can_be_chosen_and_is_kept(open_page, slowcni):
    shown = open_page(slowcni, color_scheme="light")
    back = "() => getComputedStyle(document.body).backgroundColor"
    light = shown.page.evaluate(back)
    shown.page.get_by_role("button", name="Theme: auto").click()
    dark = shown.page.evaluate(back)
    assert dark != light
    shown.page.reload()
    shown.ready()
    assert shown.page.evaluate(back) == dark
    shown.page.get_by_role("button", name="Theme: dark").click()
    assert shown.page.evaluate(back) == light


def test_two_fingers_zoom(open_page, slowcni):
    shown = open_page(slowcni, **PHONE)
    box = shown.page.locator("#canvas").bounding_box()
    first, last = shown.window()
    touch = shown.context.new_cdp_session(shown.page)
    y = box["y"] + 60

    def fingers(kind, *xs):
        touch.send(
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y, "id": x0} for x0, x in xs]}
        )

    fingers("touchStart", (1, 180))
    fingers("touchStart", (1, 180), (2, 220))
    for apart in (30, 50, 70, 90):
        fingers("touchMove", (1, 200 - apart), (2, 200 + apart))
    fingers("touchEnd")
    shown.settle()
    after = shown.window()
    assert after[1] - after[0] < (last - first) * 0.5


def test_forced_colours_and_zoomed_text_keep_the_page_usable(open_page, slowcni):
    shown = open_page(slowcni, forced_colors="active", viewport={"width": 640, "height": 400})
    assert shown.page.locator("#canvas").bounding_box()["height"] > 200
    assert violations(shown) == []
