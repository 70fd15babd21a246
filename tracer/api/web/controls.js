// Buttons, tabs, keys and the pointer.

import { describe } from "./cursor.js";
import { byId, h } from "./dom.js";
import { take } from "./filter.js";
import { listen } from "./input.js";
import { showUsage } from "./usage.js";

const STEP = 1.6; // a zoom button

const KEYS = [
  ["← →", "pan; with Shift a window"], ["↑ ↓", "scroll the lanes"], ["+ −", "zoom"], ["0", "fit all"], ["f", "follow live"],
  ["/", "search"], ["n p", "next, previous item of the lane"], ["j k", "next, previous lane"], ["Enter", "facts of the item"],
  ["s", "the lane's pod start"], ["c", "fold the lane"], ["t", "table instead of lanes"], ["?", "these keys"], ["Esc", "let go"],
  ["wheel", "zoom; with Shift or sideways pan; over the names scroll"], ["drag, pinch", "pan and scroll, zoom"],
];

const LEGEND = [
  ["relist", "relist"], ["list", "list, inspection"], ["pass", "sync pass"], ["call", "CRI call"], ["probe", "probe"], ["pull", "pull"],
  ["shim", "shim"], ["runc", "runc"], ["cni", "CNI"], ["exec", "process"], ["good", "started"], ["died", "died"], ["exit", "exit"],
  ["open", "open"], ["bad", "failed"], ["odd", "not found, cancelled"], ["unknown", "unknown"], ["dim", "filtered out"],
];

export function wire(page) {
  byId("keys").replaceChildren(h("dl", null, KEYS.map(([name, what]) =>
    h("div", null, h("dt", null, h("kbd", null, name)), h("dd", null, what)))));
  byId("legend").replaceChildren(...LEGEND.map(([tone, word]) => h("span", null, h("i", { "data-tone": tone }), word)));
  pointer(page);
  form(page);
  buttons(page);
  tabs(page);
  page.scroller.addEventListener("scroll", () => page.redraw(), { passive: true });
  new ResizeObserver(() => byId("lanes").clientWidth && page.resize()).observe(byId("lanes"));
}

function pointer(page) {
  const { paint } = page;
  const box = byId("tip");
  listen(byId("lanes"), paint, page.view, {
    key: (name) => key(page, name),
    leave: () => (box.hidden = true),
    click: (x, y) => {
      const { lane, item } = paint.at(x, y);
      Object.assign(paint, { lane, cursor: item });
      if (item) page.open(item.kind, item.id);
      page.redraw();
    },
    hover: (x, y) => {
      const { item } = paint.at(x, y);
      byId("lanes").style.cursor = item ? "pointer" : "";
      box.hidden = !item;
      if (!item) return;
      box.replaceChildren(...describe(item, page.data.now()).split(", ").map((part, at) => h(at ? "span" : "b", null, part)));
      box.style.left = `${Math.max(Math.min(x + 14, paint.width - box.offsetWidth - 8), 0)}px`;
      box.style.top = `${y + 40 + box.offsetHeight > paint.height + 24 ? y - box.offsetHeight + 12 : y + 40}px`;
    },
  });
}

/** A key on the timeline; false when it means nothing here. */
function key(page, name) {
  const { paint, cursor } = page;
  switch (name) {
    case "0": page.fit(); break;
    case "f": page.follow(!page.view.follow); break;
    case "/":
      if (byId("filter-toggle").offsetParent) fold(true);
      page.form.elements.q.focus();
      break;
    case "n": case "p": cursor.item(name === "n" ? 1 : -1); break;
    case "j": case "k": cursor.lane(name === "j" ? 1 : -1); break;
    case "Enter":
      if (!paint.cursor) return false;
      page.open(paint.cursor.kind, paint.cursor.id);
      break;
    case "s": case "c":
      if (!paint.lane?.pod) return false;
      if (name === "s") page.start(paint.lane.pod);
      else page.fold(paint.lane);
      break;
    case "t": page.table(!page.view.table); break;
    case "?": help(byId("keys").hidden); break;
    case "Escape":
      if (!byId("keys").hidden) help(false);
      else if (page.close()) byId("lanes").focus({ preventScroll: true });
      else return false;
      break;
    default: return false;
  }
  if ("npjk".includes(name) && paint.lane) page.scrollTo(paint.lane);
  page.redraw();
  return true;
}

function help(on) {
  byId("keys").hidden = !on;
  byId("help").setAttribute("aria-expanded", String(on));
}

// On a phone the filter is out of the way until it is wanted.
function fold(on) {
  byId("filter").toggleAttribute("data-open", on);
  byId("filter-toggle").setAttribute("aria-expanded", String(on));
}

function form(page) {
  const { form, view } = page;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    take(form, view.filter);
    page.filtered();
  });
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const name of Object.keys(view.filter)) view.filter[name] = form.elements[name].value = "";
    form.elements.min.setAttribute("aria-invalid", "false");
    page.filtered();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") byId("lanes").focus();
  });
  byId("filter-toggle").addEventListener("click", () => fold(!byId("filter").hasAttribute("data-open")));
}

function buttons(page) {
  const { view } = page;
  const on = (id, action) => byId(id).addEventListener("click", action);
  on("in", () => view.zoom(1 / STEP, (view.from + view.to) / 2));
  on("out", () => view.zoom(STEP, (view.from + view.to) / 2));
  on("fit", () => page.fit());
  on("follow", () => page.follow(!view.follow));
  on("table-toggle", () => page.table(!view.table));
  on("help", () => help(byId("keys").hidden));
}

function tabs(page) {
  const all = [...document.querySelectorAll("[role=tab]")];
  for (const [at, button] of all.entries()) {
    const name = button.id.slice("tab-".length);
    button.addEventListener("click", () => {
      page.tab(name);
      if (name === "usage") showUsage();
      if (name === "start" && !byId("start").dataset.pod) page.suggest();
    });
    button.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = all[(at + step + all.length) % all.length];
      next.focus();
      next.click();
    });
  }
}
