"""The page on recorded nodes: what is drawn is what the interface tells, and everything can be reached."""

import re

import pytest

WIDTH = 172


@pytest.fixture(scope="module")
def slow(browser, slowcni):
    """One page for tests that only look."""
    from tests.web.browser import Shown

    shown = Shown(browser, slowcni)
    yield shown
    shown.close()


def one(items, **wanted):
    (found,) = [item for item in items if all(item[name] == value for name, value in wanted.items())]
    return found


def test_every_thing_of_the_capture_is_on_the_timeline(slow):
    told = slow.api("/api/v1/timeline?since=6h&limit=20000")
    kinds = ["call", "relist", "pleg_event", "sync_pass", "step", "finding", "node_event", "exit"]
    drawn = {key for kind in kinds for key in slow.ask("items(given)", kind)}
    assert drawn == {f"{line[0]}:{line[1]}" for line in told["items"]}


def test_the_lanes_stand_in_their_order_with_one_for_each_pod(slow):
    lanes = slow.ask("lanes()")
    titles = [lane["title"] for lane in lanes]
    assert titles[:3] == ["Findings", "PLEG", "SyncLoop"]
    pods = [lane["title"] for lane in lanes if lane["key"].startswith("pod:")]
    assert sorted(pods) == ["default/nonet-node1", "default/slownet-node1", "default/web-node1"]
    assert {"housekeeping", "log rotation", "runtime status", "stats"} <= set(titles)
    ys = [lane["y"] for lane in lanes]
    assert ys == sorted(ys)


def test_a_pods_lane_holds_passes_calls_and_steps_below_each_other(slow):
    call = next(
        item
        for item in (slow.ask("item(given)", key) for key in slow.ask("items('call')"))
        if item["name"] == "RunPodSandbox" and item["end"] - item["start"] > 4e6
    )
    activity = slow.api(f"/api/v1/calls/{call['id']}")["activity"]["id"]
    sync = slow.ask("item(given)", f"sync_pass:{activity}")
    finding = slow.api("/api/v1/findings/f1")
    step = slow.ask("item(given)", f"step:{finding['evidence'][0]['step']}")
    assert sync["y"] < call["y"] < step["y"]
    assert sync["x"] <= call["x"] <= step["x"]
    assert step["right"] <= call["right"] + 1


def test_pods_in_trouble_stand_first(slow):
    pods = [lane["title"] for lane in slow.ask("lanes()") if lane["key"].startswith("pod:")]
    assert pods[0] == "default/nonet-node1"


def test_a_sync_pass_stands_in_the_syncloop_at_its_trigger(slow):
    for row in slow.api("/api/v1/sync-passes")["items"]:
        item = slow.ask("item(given)", f"sync_pass:{row['id']}")
        assert item["trigger"] == row["trigger"]
        assert (row["trigger"] in item["bands"]) == (row["trigger"] != "pleg")


def test_the_header_says_how_the_pleg_is_what_is_open_and_what_was_lost(slow):
    page = slow.page
    assert re.search(r"PLEG\s*idle.*unhealthy in 179 s", page.locator("#pleg").inner_text(), re.DOTALL)
    assert re.search(r"Open calls\s*0", page.locator("#open").inner_text())
    assert re.search(r"Loss\s*none", page.locator("#loss").inner_text())
    assert "slowcni.jsonl.gz" in page.locator("#source").inner_text()
    assert slow.api("/api/v1/why?since=1h")["sentence"] in page.locator("#verdict").inner_text()


def test_zooming_keeps_the_time_under_the_pointer(open_page, slowcni):
    shown = open_page(slowcni)
    box = shown.page.locator("#canvas").bounding_box()
    x = box["x"] + 600

    def at():
        first, last = shown.window()
        return first + (600 - WIDTH) / (box["width"] - WIDTH) * (last - first)

    before, span = at(), shown.window()[1] - shown.window()[0]
    shown.page.mouse.move(x, box["y"] + 40)
    shown.page.mouse.wheel(0, -400)
    shown.settle()
    after = shown.window()
    assert after[1] - after[0] < span * 0.7
    assert abs(at() - before) < (after[1] - after[0]) * 0.01


def test_dragging_moves_time_with_the_pointer_and_chooses_nothing(open_page, slowcni):
    shown = open_page(slowcni)
    box = shown.page.locator("#canvas").bounding_box()
    before = shown.window()
    shown.page.mouse.move(box["x"] + 500, box["y"] + 90)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 560, box["y"] + 90, steps=4)
    shown.page.mouse.move(box["x"] + 620, box["y"] + 90, steps=4)
    shown.page.mouse.up()
    shown.settle()
    after = shown.window()
    moved = (before[0] - after[0]) / (after[1] - after[0]) * (box["width"] - WIDTH)
    assert 110 < moved < 121
    assert shown.ask("view.selected") is None


def test_a_search_leaves_what_it_does_not_mean_as_a_shadow(open_page, slowcni):
    shown = open_page(slowcni)
    shown.page.get_by_role("searchbox").fill("runpodsandbox")
    shown.settle()
    assert len(shown.ask("items('call')")) == 3
    assert shown.ask("items('relist')") == []
    shown.page.get_by_role("button", name="Clear").click()
    shown.settle()
    assert len(shown.ask("items('call')")) == 307


@pytest.mark.parametrize(
    ("field", "value", "query"),
    [
        ("Method", "ExecSync", "method=ExecSync"),
        ("Status", "unknown", "status=unknown"),
        ("Pod", "default/web-node1", "pod=web-node1&namespace=default"),
        ("Shortest duration", "20ms", "min_duration=0.02"),
    ],
)
def test_the_filter_means_what_the_interface_means(open_page, slowcni, field, value, query):
    shown = open_page(slowcni)
    control = shown.page.get_by_label(field, exact=True)
    if field == "Shortest duration":
        control.fill(value)
    else:
        control.select_option(value)
    shown.settle()
    expected = {f"call:{call['id']}" for call in shown.api(f"/api/v1/calls?limit=1000&{query}")["items"]}
    assert expected
    assert set(shown.ask("items('call')")) == expected


def test_a_duration_that_is_none_is_said_and_filters_nothing(open_page, slowcni):
    shown = open_page(slowcni)
    control = shown.page.get_by_label("Shortest duration")
    control.fill("soon")
    assert control.get_attribute("aria-invalid") == "true"
    assert len(shown.ask("items('call')")) == 307


def test_a_click_shows_all_facts_of_a_call_and_leads_to_its_pass_and_steps(open_page, slowcni):
    shown = open_page(slowcni)
    finding = shown.api("/api/v1/findings/f1")
    call = shown.api(f"/api/v1/calls/{finding['calls'][0]}")
    shown.click(shown.show(f"call:{call['id']}"))
    facts = shown.facts()
    assert facts["method"] == "RunPodSandbox"
    assert facts["client.comm"] == "kubelet"
    assert facts["pod.name"] == "slownet-node1"
    assert facts["sandbox_id"] == (call["sandbox_id"] or "unknown")
    flat = {name for name, value in call.items() if not isinstance(value, dict)}
    assert flat <= set(facts)
    links = shown.page.locator("#facts")
    links.get_by_role("button", name="cni bridge").first.wait_for()
    links.get_by_role("button", name=re.compile(r"^sync ")).click()
    shown.page.wait_for_selector("#facts h2:has-text('sync')")
    assert shown.facts()["id"] == call["activity"]["id"]
    assert shown.ask("view.selected") == f"sync_pass:{call['activity']['id']}"


def test_a_pleg_event_leads_back_to_its_relist_and_on_to_the_pass_it_caused(open_page, truth):
    shown = open_page(truth)
    passes = [row for row in shown.api("/api/v1/sync-passes")["items"] if row["trigger"] == "pleg"]
    sync = passes[0]
    shown.go(f"#item=sync_pass:{sync['id']}")
    facts = shown.page.locator("#facts")
    facts.locator("dl.links button", has_text="Container").first.click()
    shown.page.wait_for_selector("#facts h2:has-text('PLEG event')")
    assert facts.locator("dl.links").get_by_text(re.compile("^sync")).count() == 1
    facts.get_by_text(re.compile("^relist ")).first.click()
    shown.page.wait_for_selector("#facts h2:has-text('relist')")
    relist = shown.facts()["id"]
    event = next(
        row
        for row in shown.api("/api/v1/pleg-events?limit=1000")["items"]
        if row["relist"] == relist and row["pod_uid"] == sync["pod"]["uid"]
    )
    assert event["time"] <= sync["start"]


def test_what_is_not_known_is_said_to_be_unknown(open_page, slowcni):
    shown = open_page(slowcni)
    call = shown.api("/api/v1/calls?status=unknown&method=RunPodSandbox")["items"][0]
    shown.go(f"#item=call:{call['id']}")
    facts = shown.facts()
    assert facts["status"] == "unknown"
    assert facts["deadline_seconds"] == "none"
    assert "0" not in (facts["api"], facts["service"])


def test_a_finding_shows_its_evidence_on_the_lanes(open_page, slowcni):
    shown = open_page(slowcni)
    shown.page.evaluate("() => criscope.view.show(criscope.view.to - 5e6, criscope.view.to)")
    shown.page.get_by_role("tabpanel", name="Findings").get_by_text("cni slow").click()
    shown.page.wait_for_selector("#facts h2:has-text('cni slow')")
    shown.settle()
    finding = shown.ask("item('finding:f1')")
    first, last = shown.window()
    assert first < finding["start"] < finding["end"] < last
    shown.page.locator("#facts").get_by_role("button", name="step", exact=True).first.click()
    shown.page.wait_for_selector("#facts h2:has-text('cni bridge')")
    assert shown.facts()["duration_seconds"] == "5.01 s"


def test_an_address_holds_window_filter_and_item(open_page, slowcni):
    shown = open_page(slowcni)
    call = shown.api("/api/v1/findings/f1")["calls"][0]
    shown.page.get_by_label("Method").select_option("RunPodSandbox")
    shown.click(shown.show(f"call:{call}"))
    shown.facts()
    shown.page.wait_for_timeout(400)
    window, address = shown.window(), shown.page.url
    shown.page.reload()
    shown.ready()
    assert shown.facts()["id"] == call
    assert [round(each) for each in shown.window()] == [round(each) for each in window]
    assert shown.page.get_by_label("Method").input_value() == "RunPodSandbox"
    again = open_page(slowcni, address.partition("/#")[2] and "#" + address.partition("#")[2])
    assert again.facts()["id"] == call


@pytest.mark.parametrize(
    "fragment",
    [
        "#t=9-1",
        "#t=a-b",
        "#item=call:nothing",
        "#item=<img src=x onerror=alert(1)>:1",
        "#min=-1&pod=nobody",
        "#%",
        "#view=table&item=",
    ],
)
def test_an_address_that_means_nothing_does_no_harm(open_page, slowcni, fragment):
    shown = open_page(slowcni, fragment)
    assert shown.ask("lanes()")
    # A thing that is not there is answered with a 404, which the browser's console tells.
    shown.faults[:] = [fault for fault in shown.faults if "404" not in fault and "400" not in fault]


def test_the_start_of_a_pod_is_a_waterfall(open_page, truth):
    shown = open_page(truth)
    shown.page.get_by_role("tab", name="Pod start").click()
    shown.page.get_by_role("tabpanel", name="Pod start").get_by_text("default/app1-node1").click()
    bars = shown.page.locator("#start .waterfall").first.locator("li")
    shown.page.wait_for_selector("#start .waterfall")
    told = shown.api("/api/v1/pods/default/app1-node1/start")["items"][0]["stages"]
    texts = bars.all_inner_texts()
    for word in ("sandbox", "create", "start", "seen by the PLEG"):
        assert any(text.startswith(word) for text in texts), word
    assert any("runc create" in text for text in texts)
    lefts = shown.page.evaluate(
        "() => [...document.querySelectorAll('#start li > .track .piece')].map((each) => parseFloat(each.style.left))"
    )
    assert lefts == sorted(lefts)
    assert len(texts) <= len(told)


def test_the_table_shows_the_same_as_the_lanes(open_page, slowcni):
    shown = open_page(slowcni)
    shown.page.get_by_label("Method").select_option("RunPodSandbox")
    shown.page.get_by_role("button", name="Table").click()
    rows = shown.page.locator("#table tbody tr")
    rows.first.wait_for()
    assert rows.count() == 3
    assert all("RunPodSandbox" in text for text in rows.all_inner_texts())
    rows.first.get_by_role("button").click()
    assert shown.facts()["method"] == "RunPodSandbox"
    assert "view=table" in shown.ask("view.hash")


def test_usage_says_who_calls_the_runtime(open_page, slowcni):
    shown = open_page(slowcni)
    shown.page.get_by_role("tab", name="Usage").click()
    shown.page.get_by_label("Usage by").select_option("activity")
    shown.page.get_by_role("rowheader", name="probe").wait_for()
    assert shown.page.locator("#usage tbody tr").count() > 5


def test_the_file_for_perfetto_is_of_the_window(open_page, slowcni):
    shown = open_page(slowcni)
    shown.show("finding:f1")
    shown.page.wait_for_timeout(400)
    with shown.page.expect_download() as download:
        shown.page.get_by_role("link", name="Perfetto").click()
    assert download.value.path().stat().st_size > 1000
    assert "since=2026-11-30T20:47:3" in download.value.url


def test_text_of_the_wire_is_text(open_page, slowcni):
    """A name that would be markup is written, not made."""
    shown = open_page(slowcni)
    made = shown.page.evaluate(
        """async () => {
          const { h, fill } = await import("/assets/dom.js");
          const box = document.createElement("div");
          const nasty = "<img src=x onerror=alert(1)>";
          fill(box, h("b", { title: nasty }, nasty), nasty);
          return [box.textContent, box.querySelectorAll("img").length];
        }"""
    )
    assert made == ["<img src=x onerror=alert(1)>" * 2, 0]


def test_a_criscope_that_ended_is_said_and_one_that_is_back_is_shown_again(open_page, slowcni):
    shown = open_page(slowcni)
    shown.page.route("**/api/v1/timeline*", lambda route: route.abort())
    shown.page.evaluate("() => criscope.view.show(criscope.view.from - 9e10, criscope.view.to)")
    shown.page.get_by_text("criscope does not answer").wait_for()
    shown.page.unroute("**/api/v1/timeline*")
    shown.page.get_by_text("criscope does not answer").wait_for(state="hidden")
    assert len(shown.ask("items('call')")) == 307
    shown.faults.clear()
