// The page's parts and what they do together.

import { Cursor } from "./cursor.js";
import { Data } from "./data.js";
import { byId, h } from "./dom.js";
import { Facts } from "./facts.js";
import { offer, test } from "./filter.js";
import { Findings } from "./findings.js";
import { Header } from "./header.js";
import { podName } from "./items.js";
import { drawLabels } from "./labels.js";
import { Lanes } from "./lanes.js";
import { Paint } from "./paint.js";
import { showStart } from "./start.js";
import { showTable } from "./table.js";
import { SECOND, day, micros, rfc3339, span } from "./time.js";
import { View } from "./view.js";

const FOLLOWED = 600 * SECOND; // the widest window that follows
const AHEAD = 0.02; // of the window, free on the right while following
const CALM_MS = 2000;
const TABLE_MS = 200;
const SAVE_MS = 200;

const grouped = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");

export class Page {
  constructor() {
    this.lanes = new Lanes();
    this.view = new View();
    this.paint = new Paint(byId("canvas"), byId("ticks"), this.lanes, this.view);
    this.data = new Data(this.lanes, (error) => this.#arrived(error), (item, row) => this.#told(item, row));
    const open = (kind, id) => this.open(kind, id);
    const now = () => this.data.now();
    this.findings = new Findings(open);
    this.header = new Header(open, (limit, lasts) => Object.assign(this.paint, { limit, lasts }));
    this.cursor = new Cursor(this.lanes, this.paint, this.view, now);
    this.facts = new Facts(this.lanes, {
      open, now, pod: (pod) => this.only(pod), start: (pod) => this.start(pod), found: (kind, row) => this.#found(kind, row),
    });
    this.passes = test(this.view.filter);
    this.scroller = byId("lanes");
    this.form = byId("filter");
    this.dirty = false;
    this.labelled = null;
    this.offered = 0;
    this.timers = {};
    this.troubles = new Map();
    this.view.onchange((what) => this.#viewed(what));
  }

  // --- drawing -----------------------------------------------------------------------------------------------------

  /** Draw soon; `moved`: nothing but the window is another. */
  redraw(moved = false) {
    if (!moved) this.paint.stale = true;
    if (this.dirty) return;
    this.dirty = true;
    requestAnimationFrame(() => this.frame());
  }

  frame() {
    this.dirty = false;
    const { lanes, paint } = this;
    if (lanes.layout(this.view.filter.pod, paint.head)) {
      paint.stale = true;
      this.scroller.style.setProperty("--deep", `${lanes.height}px`);
      this.#label();
    }
    paint.top = Math.round(this.scroller.scrollTop);
    paint.draw(this.data.now());
  }

  resize() {
    this.paint.resize(Math.floor(this.scroller.clientWidth), Math.floor(this.scroller.clientHeight));
    this.frame();
  }

  #label() {
    const { lanes, paint } = this;
    const shape = `${lanes.list.map((lane) => `${lane.key}@${lane.y}${lane.compact}`).join()} ${paint.phone}`;
    if (shape === this.labelled) return;
    this.labelled = shape;
    drawLabels(lanes, paint.phone, { fold: (lane) => this.fold(lane), name: (lane) => this.start(lane.pod) });
  }

  counts() {
    const { loaded } = this.data;
    byId("follow").setAttribute("aria-pressed", String(this.view.follow));
    const show = (element, text) => element.textContent === text || (element.textContent = text);
    show(byId("counts"), !loaded ? "loading" : loaded.thinned
      ? `the most telling ${grouped(this.lanes.size)} of ${grouped(loaded.total)}; zoom in for all` : `${grouped(this.lanes.size)} items`);
    show(byId("axis-label"), `${day(this.view.from)} UTC · ${span(this.view.span)}`);
  }

  /** What went wrong at `where`, until it goes right there; nothing: it went right. */
  trouble(where, error) {
    if (error) this.troubles.set(where, error.message);
    else this.troubles.delete(where);
    const [text] = this.troubles.values();
    byId("trouble").hidden = !text;
    byId("trouble").textContent = text ?? "";
  }

  async verdict() {
    try {
      await this.header.verdict();
      this.trouble("verdict");
    } catch (error) {
      this.trouble("verdict", error);
    }
  }

  // --- what comes --------------------------------------------------------------------------------------------------

  #arrived(error) {
    this.trouble("window", error);
    if (error) return;
    this.sieve();
    this.offer();
    this.counts();
    if (this.view.table) this.#retable();
    this.redraw();
  }

  #told(item, row) {
    item.shown = this.passes(item, this.data.now());
    if (item.kind === "finding") {
      this.findings.told(row);
      this.verdict();
    }
    this.facts.refresh(item, row);
    if (Date.now() - this.offered > CALM_MS) {
      this.offer();
      this.counts();
    }
    this.redraw();
  }

  offer() {
    this.offered = Date.now();
    offer(this.form, this.lanes.byKey.values(), this.view.filter);
  }

  /** Every item anew through the filter. */
  sieve() {
    const now = this.data.now();
    for (const item of this.lanes.byKey.values()) item.shown = this.passes(item, now);
  }

  /** The filter is another. */
  filtered() {
    this.passes = test(this.view.filter);
    this.sieve();
    this.offer();
    this.view.changed("filter");
  }

  #viewed(what) {
    const { view } = this;
    this.counts();
    if (what === "window") this.data.want(view.from, view.to);
    this.#soon("save", SAVE_MS, () => this.#save());
    if (view.table && what !== "table") this.#retable();
    this.redraw(what === "window");
  }

  #save() {
    const { view } = this;
    history.replaceState(null, "", view.hash);
    byId("export").href = `/api/v1/export/perfetto?since=${rfc3339(Math.max(view.from, 0))}&until=${rfc3339(Math.max(view.to, 1))}`;
  }

  #soon(name, ms, action) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(action, ms);
  }

  // --- choosing ----------------------------------------------------------------------------------------------------

  tab(name) {
    for (const button of document.querySelectorAll("[role=tab]")) {
      const mine = button.id === `tab-${name}`;
      button.setAttribute("aria-selected", String(mine));
      button.tabIndex = mine ? 0 : -1;
      byId(button.getAttribute("aria-controls")).hidden = !mine;
    }
  }

  /** Show a thing's facts, and where it is. */
  open(kind, id) {
    this.view.select(`${kind}:${id}`);
    this.tab("facts");
    this.facts.show(kind, id);
    const item = this.lanes.byKey.get(this.view.selected);
    if (item) this.reveal(item);
  }

  /** Nothing is chosen any more; false when nothing was. */
  close() {
    if (!this.view.selected) return false;
    this.view.select(null);
    this.paint.related.clear();
    this.facts.clear();
    return true;
  }

  // Its facts are here: what it rests on is pointed out, and where nothing drew it yet, its time is shown.
  #found(kind, row) {
    this.paint.related = new Set([
      ...(row.evidence ?? []).flatMap((each) => [each.call && `call:${each.call}`, each.step && `step:${each.step}`]),
      ...(row.calls ?? []).map((call) => `call:${call}`), ...(row.events ?? []).map((each) => `pleg_event:${each.id}`),
    ].filter(Boolean));
    this.findings.selected = kind === "finding" ? row.id : null;
    this.findings.draw();
    if (!this.lanes.byKey.has(`${kind}:${row.id}`)) {
      const start = micros(row.start ?? row.time);
      this.#around(start, start + (row.duration_seconds ?? 0) * SECOND);
    }
    this.redraw();
  }

  #around(start, end) {
    const { view } = this;
    if (end >= view.from && start <= view.to) return;
    view.follow = false;
    const room = Math.max((end - start) * 0.6, view.span > 60 * SECOND ? 5 * SECOND : view.span / 2);
    view.show(start - room, end + room);
  }

  reveal(item) {
    this.#around(item.start, item.end ?? this.data.now());
    this.lanes.layout(this.view.filter.pod, this.paint.head);
    const lane = this.lanes.list.find((each) => [...each.bands.values()].some((band) => item.bands.includes(band)));
    if (lane) this.scrollTo(lane);
    this.redraw();
  }

  scrollTo(lane) {
    const { scroller, paint } = this;
    if (lane.y < scroller.scrollTop || lane.y + lane.height > scroller.scrollTop + paint.height) {
      scroller.scrollTop = lane.y - paint.height / 3;
    }
  }

  fold(lane) {
    this.lanes.toggle(lane);
    this.redraw();
  }

  /** Only the lanes of this pod, or all again. */
  only(pod) {
    const name = podName(pod);
    this.view.filter.pod = this.view.filter.pod === name ? "" : name;
    this.filtered();
  }

  start(pod) {
    this.tab("start");
    showStart(pod, (kind, id) => this.open(kind, id));
  }

  /** No pod is chosen yet: offer those that are here. */
  suggest() {
    const pods = this.lanes.list.filter((lane) => lane.pod).map((lane) => lane.pod);
    byId("start").replaceChildren(h("h2", null, "Start of which pod?"), pods.length
      ? h("ul", { class: "parts" }, pods.map((pod) => h("li", null,
        h("button", { type: "button", class: "link", onclick: () => this.start(pod) }, podName(pod)))))
      : h("p", { class: "empty" }, "No pod is in the window."));
  }

  fit() {
    let from = Infinity;
    let to = -Infinity;
    for (const item of this.lanes.byKey.values()) {
      if (!item.shown) continue;
      from = Math.min(from, item.start);
      to = Math.max(to, item.end ?? this.data.now());
    }
    if (from > to) return;
    const room = Math.max((to - from) * 0.02, 1000);
    this.view.follow = false;
    this.view.show(from - room, to + room);
  }

  follow(on) {
    this.view.follow = on && this.data.live;
    if (this.view.follow) this.step();
    this.view.changed("follow");
  }

  /** The window moves with the time. */
  step() {
    const wide = Math.min(this.view.span, FOLLOWED);
    const now = this.data.now();
    this.view.from = now - wide * (1 - AHEAD);
    this.view.to = now + wide * AHEAD;
    this.data.want(this.view.from, this.view.to);
  }

  table(on) {
    this.view.table = on;
    byId("table").hidden = !on;
    byId("field").hidden = on;
    byId("axis").hidden = on;
    byId("table-toggle").setAttribute("aria-pressed", String(on));
    if (on) this.showTable();
    this.view.changed("table");
  }

  showTable() {
    showTable(this.lanes, this.view, this.data.now(), (kind, id) => this.open(kind, id));
  }

  #retable() {
    this.#soon("table", TABLE_MS, () => this.view.table && this.showTable());
  }
}
