// The page: puts the parts together.

import { Cursor, describe } from "./cursor.js";
import { Data } from "./data.js";
import { byId, h } from "./dom.js";
import { Facts } from "./facts.js";
import { offer, take, test } from "./filter.js";
import { Findings } from "./findings.js";
import { Header } from "./header.js";
import { listen } from "./input.js";
import { TONES, podName } from "./items.js";
import { drawLabels } from "./labels.js";
import { Lanes } from "./lanes.js";
import { Paint } from "./paint.js";
import { showStart } from "./start.js";
import { showTable } from "./table.js";
import { theme } from "./theme.js";
import { SECOND, clock, day, rfc3339, span } from "./time.js";
import { showUsage } from "./usage.js";
import { View } from "./view.js";

const LIVE_SPAN = 120 * SECOND; // shown at first
const LIVE_BACK = 600 * SECOND; // read at first
const REPLAY_BACK = 6 * 3600 * SECOND;
const AHEAD = 0.02; // of the window, free on the right while following
const FRAME_MS = 100; // while following: calm, and no load on the node's own browser
const ASK_MS = 2000;
const TABLE_MS = 1000;

const lanes = new Lanes();
const view = new View();
const paint = new Paint(byId("canvas"), byId("ticks"), lanes, view);
const data = new Data(lanes, arrived, told);
const findings = new Findings(open);
const header = new Header(open, (limit) => (paint.limit = limit));
const cursor = new Cursor(lanes, paint, view, () => data.now());
const facts = new Facts(lanes, { open, pod: only, start: startOf, now: () => data.now(), found });
const scroller = byId("scroll");
const form = byId("filter");
let passes = test(view.filter);
let dirty = false;
let labelled = null;
let offered = 0;

// --- drawing ---------------------------------------------------------------------------------------------------

function redraw() {
  if (dirty) return;
  dirty = true;
  requestAnimationFrame(frame);
}

function frame() {
  dirty = false;
  if (lanes.layout(view.filter.pod, paint.head)) {
    byId("canvas").parentElement.style.setProperty("--deep", `${lanes.height}px`);
    relabel();
  }
  paint.top = scroller.scrollTop;
  paint.draw(data.now());
}

function relabel() {
  const shape = lanes.list.map((lane) => `${lane.key}@${lane.y}${lane.compact}`).join() + paint.phone;
  if (shape === labelled) return;
  labelled = shape;
  drawLabels(lanes, paint.phone, {
    fold: (lane) => {
      lanes.toggle(lane);
      redraw();
    },
    name: (lane) => startOf(lane.pod),
  });
}

function counts() {
  const { loaded } = data;
  byId("counts").textContent = !loaded ? "loading" : loaded.thinned
    ? `the most telling ${lanes.size.toLocaleString("en")} of ${loaded.total.toLocaleString("en")}; zoom in for all`
    : `${lanes.size.toLocaleString("en")} items`;
  byId("axis-label").textContent = `${day(view.from)} UTC · ${span(view.span)}`;
}

function trouble(text) {
  const box = byId("trouble");
  box.hidden = !text;
  box.textContent = text ?? "";
}

// --- what comes ------------------------------------------------------------------------------------------------

// Lines or rows came; `error` instead, when asking failed.
function arrived(error) {
  if (error) {
    trouble(error.message);
    return;
  }
  trouble(null);
  const now = Date.now();
  if (now - offered > ASK_MS || !data.live) {
    offered = now;
    offer(form, lanes.byKey.values(), view.filter);
    counts();
  }
  if (data.loaded && !data.loading) sieve();
  redraw();
}

function told(item, row) {
  item.shown = passes(item, data.now());
  if (item.kind === "finding") {
    findings.told(row);
    header.verdict().catch((error) => trouble(error.message));
  }
  facts.refresh(item);
}

let sieved = 0;

// Items anew through the filter; for a stream of rows `told` does it for each.
function sieve(force = false) {
  if (!force && sieved === lanes.size) return;
  sieved = lanes.size;
  const now = data.now();
  for (const item of lanes.byKey.values()) item.shown = passes(item, now);
}

// --- choosing --------------------------------------------------------------------------------------------------

function tab(name) {
  for (const button of document.querySelectorAll("[role=tab]")) {
    const mine = button.id === `tab-${name}`;
    button.setAttribute("aria-selected", String(mine));
    button.tabIndex = mine ? 0 : -1;
    byId(button.getAttribute("aria-controls")).hidden = !mine;
  }
}

/** Show a thing's facts, and where it is. */
function open(kind, id) {
  view.select(`${kind}:${id}`);
  tab("facts");
  facts.show(kind, id);
  const item = lanes.byKey.get(view.selected);
  if (item) reveal(item);
}

// Its facts are here: what they rest on is pointed out, and where nothing drew it yet, its time is shown.
function found(kind, row) {
  paint.related = new Set([
    ...(row.evidence ?? []).flatMap((each) => [each.call && `call:${each.call}`, each.step && `step:${each.step}`]),
    ...(row.calls ?? []).map((call) => `call:${call}`), ...(row.events ?? []).map((each) => `pleg_event:${each.id}`),
  ].filter(Boolean));
  findings.selected = kind === "finding" ? row.id : null;
  findings.draw();
  if (!lanes.byKey.has(`${kind}:${row.id}`)) {
    const start = Date.parse(row.start ?? row.time) * 1000;
    const end = start + (row.duration_seconds ?? 0) * SECOND;
    if (end < view.from || start > view.to) around(start, end);
  }
  redraw();
}

function around(start, end) {
  view.follow = false;
  const room = Math.max((end - start) * 0.6, view.span > 60 * SECOND ? 5 * SECOND : view.span / 2);
  view.show(start - room, end + room);
}

function reveal(item) {
  const end = item.end ?? data.now();
  if (item.start > view.to || end < view.from) around(item.start, end);
  lanes.layout(view.filter.pod, paint.head);
  const lane = lanes.list.find((each) => [...each.bands.values()].some((band) => item.bands.includes(band)));
  if (lane && (lane.y < scroller.scrollTop || lane.y + lane.height > scroller.scrollTop + paint.height)) {
    scroller.scrollTop = lane.y - paint.height / 3;
  }
  redraw();
}

function only(pod) {
  view.filter.pod = view.filter.pod === podName(pod) ? "" : podName(pod);
  filtered();
}

function startOf(pod) {
  tab("start");
  showStart(pod, open);
}

function filtered() {
  passes = test(view.filter);
  offer(form, lanes.byKey.values(), view.filter);
  sieve(true);
  view.changed("filter");
  redraw();
}

function fit() {
  let from = Infinity;
  let to = -Infinity;
  const now = data.now();
  for (const item of lanes.byKey.values()) {
    if (!item.shown) continue;
    from = Math.min(from, item.start);
    to = Math.max(to, item.end ?? now);
  }
  if (from > to) return;
  const room = Math.max((to - from) * 0.02, 1000);
  view.follow = false;
  view.show(from - room, to + room);
}

function follow(on) {
  view.follow = on && data.live;
  if (view.follow) view.show(data.now() - Math.min(view.span, LIVE_BACK) * (1 - AHEAD), data.now() + Math.min(view.span, LIVE_BACK) * AHEAD);
  else view.changed("window");
}

function table(on) {
  view.table = on;
  byId("table").hidden = !on;
  byId("lanes").hidden = on;
  byId("axis").hidden = on;
  byId("table-toggle").setAttribute("aria-pressed", String(on));
  if (on) showTable(lanes, view, data.now(), open);
  view.changed("table");
}

// --- wiring ----------------------------------------------------------------------------------------------------

const KEYS = [
  ["← →", "pan; with Shift a window"], ["↑ ↓", "scroll the lanes"], ["+ −", "zoom"], ["0", "fit all"], ["f", "follow live"],
  ["/", "search"], ["n p", "next, previous item of the lane"], ["j k", "next, previous lane"], ["Enter", "facts of the item"],
  ["s", "the lane's pod start"], ["c", "fold the lane"], ["t", "table instead of lanes"], ["?", "these keys"], ["Esc", "let go"],
  ["wheel", "zoom; with Shift or sideways pan; over the names scroll"], ["drag, pinch", "pan and scroll, zoom"],
];

function help(on) {
  byId("keys").hidden = !on;
  byId("help").setAttribute("aria-expanded", String(on));
}

function key(name) {
  switch (name) {
    case "0": fit(); break;
    case "f": follow(!view.follow); break;
    case "/": form.elements.q.focus(); break;
    case "n": cursor.item(1); break;
    case "p": cursor.item(-1); break;
    case "j": cursor.lane(1); break;
    case "k": cursor.lane(-1); break;
    case "Enter":
      if (!paint.cursor) return false;
      open(paint.cursor.kind, paint.cursor.id);
      break;
    case "s":
      if (!paint.lane?.pod) return false;
      startOf(paint.lane.pod);
      break;
    case "c":
      if (!paint.lane?.pod) return false;
      lanes.toggle(paint.lane);
      break;
    case "t": table(!view.table); break;
    case "?": help(byId("keys").hidden); break;
    case "Escape":
      if (!byId("keys").hidden) help(false);
      else if (view.selected) {
        view.select(null);
        paint.related.clear();
        facts.clear();
        byId("lanes").focus({ preventScroll: true });
      } else return false;
      break;
    default: return false;
  }
  if ("jkn p".includes(name) && paint.lane) {
    const { lane } = paint;
    if (lane.y < scroller.scrollTop || lane.y + lane.height > scroller.scrollTop + paint.height) {
      scroller.scrollTop = lane.y - paint.height / 3;
    }
  }
  redraw();
  return true;
}

function tip(x, y) {
  const { item } = paint.at(x, y);
  const box = byId("tip");
  byId("lanes").style.cursor = item ? "pointer" : "";
  box.hidden = !item;
  if (!item) return;
  box.replaceChildren(...describe(item, data.now()).split(", ").map((part, at) => h(at ? "span" : "b", null, part)));
  box.style.left = `${Math.min(x + 14, paint.width - box.offsetWidth - 8)}px`;
  box.style.top = `${y + 40 + box.offsetHeight > paint.height + 24 ? y - box.offsetHeight + 12 : y + 40}px`;
}

function wire() {
  byId("keys").replaceChildren(h("dl", null, KEYS.map(([name, what]) => h("div", null, h("dt", null, h("kbd", null, name)), h("dd", null, what)))));
  byId("legend").replaceChildren(...[
    ["relist", "relist"], ["list", "list, inspection"], ["pass", "sync pass"], ["call", "CRI call"], ["probe", "probe"], ["pull", "pull"],
    ["shim", "shim"], ["runc", "runc"], ["cni", "CNI"], ["exec", "process"], ["good", "started"], ["died", "died"], ["open", "open"],
    ["bad", "failed"], ["odd", "not found, cancelled"], ["unknown", "unknown"], ["dim", "filtered out"],
  ].map(([tone, word]) => h("span", null, h("i", { "data-tone": tone }), word)));
  listen(byId("lanes"), paint, view, {
    hover: tip,
    leave: () => (byId("tip").hidden = true),
    click: (x, y) => {
      const { lane, item } = paint.at(x, y);
      paint.lane = lane;
      paint.cursor = item;
      if (item) open(item.kind, item.id);
      redraw();
    },
    key,
  });
  scroller.addEventListener("scroll", redraw, { passive: true });
  new ResizeObserver(() => {
    const box = byId("lanes").getBoundingClientRect();
    if (!box.width) return;
    paint.resize(Math.floor(scroller.clientWidth), Math.floor(scroller.clientHeight));
    lanes.stale = true;
    frame();
  }).observe(byId("lanes"));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    take(form, view.filter);
    filtered();
  });
  form.addEventListener("reset", () => {
    for (const name of Object.keys(view.filter)) view.filter[name] = "";
    // After the form's own reset.
    setTimeout(filtered);
  });
  byId("in").addEventListener("click", () => view.zoom(1 / 1.6, (view.from + view.to) / 2));
  byId("out").addEventListener("click", () => view.zoom(1.6, (view.from + view.to) / 2));
  byId("fit").addEventListener("click", fit);
  byId("follow").addEventListener("click", () => follow(!view.follow));
  byId("table-toggle").addEventListener("click", () => table(!view.table));
  byId("help").addEventListener("click", () => help(byId("keys").hidden));
  const tabs = [...document.querySelectorAll("[role=tab]")];
  for (const [at, button] of tabs.entries()) {
    const name = button.id.slice(4);
    button.addEventListener("click", () => {
      tab(name);
      if (name === "usage") showUsage();
      if (name === "start" && !byId("start").dataset.pod) suggest();
    });
    button.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = tabs[(at + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  }
  view.onchange((what) => {
    counts();
    byId("follow").setAttribute("aria-pressed", String(view.follow));
    byId("export").href = `/api/v1/export/perfetto?since=${rfc3339(Math.max(view.from, 0))}&until=${rfc3339(Math.max(view.to, 1))}`;
    if (what === "window") data.want(view.from, view.to);
    clearTimeout(saved);
    saved = setTimeout(() => history.replaceState(null, "", view.hash), 200);
    if (view.table && what !== "table") retable();
    redraw();
  });
  window.addEventListener("hashchange", () => {
    if (location.hash !== view.hash) restore();
  });
}
let saved = 0;
let tabled = 0;

function retable() {
  clearTimeout(tabled);
  tabled = setTimeout(() => view.table && showTable(lanes, view, data.now(), open), 200);
}

// No pod is chosen yet: offer those that are here.
function suggest() {
  const pods = lanes.list.filter((lane) => lane.pod).map((lane) => lane.pod);
  byId("start").replaceChildren(h("h2", null, "Start of which pod?"), pods.length
    ? h("ul", { class: "parts" }, pods.map((pod) => h("li", null,
      h("button", { type: "button", class: "link", onclick: () => startOf(pod) }, podName(pod)))))
    : h("p", { class: "empty" }, "No pod is in the window."));
}

function restore() {
  const told = view.read(location.hash);
  passes = test(view.filter);
  sieve(true);
  table(view.table);
  if (view.selected) {
    const at = view.selected.indexOf(":");
    tab("facts");
    facts.show(view.selected.slice(0, at), view.selected.slice(at + 1));
  }
  return told;
}

async function refresh() {
  try {
    await header.refresh(data);
  } catch (error) {
    trouble(error.message);
  }
  counts();
  setTimeout(refresh, data.live ? ASK_MS : ASK_MS * 10);
}

// While something moves by itself: the window follows, what is open grows.
function tick() {
  const now = data.now();
  if (data.live && document.visibilityState === "visible") {
    if (view.follow) {
      const { span: wide } = view;
      view.from = now - wide * (1 - AHEAD);
      view.to = now + wide * AHEAD;
      data.want(view.from, view.to);
    }
    redraw();
  }
  setTimeout(tick, FRAME_MS);
}

async function begin() {
  theme(() => {
    paint.theme();
    redraw();
  });
  wire();
  facts.clear();
  const told = restore();
  try {
    await data.begin();
    byId("follow").hidden = !data.live;
    data.follow();
    const now = data.now();
    if (told) {
      await data.load(view.from - view.span / 2, view.to + view.span / 2);
    } else {
      await data.load(now - (data.live ? LIVE_BACK : REPLAY_BACK), now + SECOND);
      view.from = now - LIVE_SPAN;
      view.to = now;
      if (data.live) follow(true);
      else fit();
    }
    await Promise.all([findings.load(), header.verdict()]);
  } catch (error) {
    trouble(error.message);
    setTimeout(() => location.reload(), 5000);
    return;
  }
  refresh();
  setTimeout(tick, FRAME_MS);
  setInterval(() => view.table && view.follow && showTable(lanes, view, data.now(), open), TABLE_MS);
  setInterval(() => data.live && header.verdict().catch((error) => trouble(error.message)), ASK_MS * 5);
  document.documentElement.dataset.ready = "";
}

/** For tests and the curious (docs/web.md): what is drawn, without reading pixels. */
window.criscope = {
  view,
  tones: TONES,
  lanes: () => lanes.list.map((lane) => ({
    key: lane.key, title: lane.title, y: lane.y - paint.top, height: lane.height, compact: lane.compact,
    items: [...lane.bands.values()].reduce((sum, band) => sum + band.items.length, 0),
  })),
  item: (key_) => {
    const item = lanes.byKey.get(key_);
    if (!item) return null;
    const band = item.bands[0];
    const row = band.row[band.items.indexOf(item)] ?? 0;
    const end = item.end ?? data.now();
    return { ...item, bands: null, x: paint.x(item.start), right: paint.x(end), y: band.y - paint.top + row * band.size + band.size / 2 };
  },
  items: (kind) => [...lanes.byKey.values()].filter((item) => item.kind === kind).map((item) => item.key),
  shown: () => [...lanes.byKey.values()].filter((item) => item.shown).length,
  clock: (us) => clock(us),
  /** Draw now; milliseconds it took and rectangles it made. */
  draw: () => {
    const begun = performance.now();
    frame();
    // Reading a pixel waits until the drawing is done.
    byId("canvas").getContext("2d").getImageData(0, 0, 1, 1);
    return { ms: performance.now() - begun, rectangles: paint.drawn };
  },
};

begin();
