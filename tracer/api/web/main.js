// Begins: the address says which window, the interface whether time stands (a replay) or goes on.

import { wire } from "./controls.js";
import { byId } from "./dom.js";
import { hook } from "./hook.js";
import { Page } from "./page.js";
import { theme } from "./theme.js";
import { SECOND } from "./time.js";

const LIVE_SPAN = 120 * SECOND; // shown at first
const LIVE_BACK = 600 * SECOND; // read at first
const REPLAY_BACK = 6 * 3600 * SECOND;
const FRAME_MS = 100; // while time goes on: calm, and little load
const ASK_MS = 2000;
const STILL_MS = 20_000; // of a replay
const VERDICT_MS = 10_000;
const AGAIN_MS = 5000;

const page = new Page();
const { view, data } = page;

function restore() {
  const told = view.read(location.hash);
  page.filtered();
  page.table(view.table);
  if (view.selected) {
    const at = view.selected.indexOf(":");
    page.tab("facts");
    page.facts.show(view.selected.slice(0, at), view.selected.slice(at + 1));
  }
  return told;
}

async function refresh() {
  try {
    await page.header.refresh(data);
    page.trouble("header");
  } catch (error) {
    page.trouble("header", error);
  }
  setTimeout(refresh, data.live ? ASK_MS : STILL_MS);
}

// While time goes on the window may follow, and what is open grows.
function tick() {
  if (document.visibilityState === "visible") {
    if (view.follow) page.step();
    page.redraw();
  }
  setTimeout(tick, FRAME_MS);
}

async function begin() {
  try {
    await data.begin();
    byId("follow").hidden = !data.live;
    data.follow();
    const now = data.now();
    const told = restore();
    if (told) await data.load(view.from - view.span / 2, view.to + view.span / 2);
    else {
      await data.load(now - (data.live ? LIVE_BACK : REPLAY_BACK), now + SECOND);
      if (data.live) {
        view.from = now - LIVE_SPAN;
        view.to = now;
        page.follow(true);
      } else page.fit();
    }
    await Promise.all([page.findings.load(), page.verdict()]);
    page.trouble("begin");
  } catch (error) {
    page.trouble("begin", error);
    setTimeout(begin, AGAIN_MS);
    return;
  }
  refresh();
  if (data.live) {
    setTimeout(tick, FRAME_MS);
    setInterval(() => view.table && view.follow && page.showTable(), ASK_MS);
    setInterval(() => page.verdict(), VERDICT_MS);
  }
  document.documentElement.dataset.ready = "";
}

theme(() => {
  page.paint.theme();
  page.redraw();
});
wire(page);
hook(page);
page.facts.clear();
window.addEventListener("hashchange", () => {
  if (location.hash !== view.hash) restore();
});
begin();
