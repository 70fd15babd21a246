// What the lanes show, as a table: for those who do not see them, and for copying.

import { byId, h, renew } from "./dom.js";
import { kindWord, podName, title } from "./items.js";
import { clock, span } from "./time.js";

const ROWS = 300;

/** Items of the window that pass the filter, newest first. */
export function showTable(lanes, view, now, open) {
  const items = [];
  for (const item of lanes.byKey.values()) {
    if (item.shown && item.start < view.to && (item.end ?? now) >= view.from) items.push(item);
  }
  items.sort((a, b) => b.start - a.start);
  const box = byId("table");
  renew(box,
    h("p", { class: "muted" }, items.length > ROWS ? `The newest ${ROWS} of ${items.length} items in the window; zoom in or filter for the others.`
      : `${items.length} items in the window.`),
    h("table", null,
      h("thead", null, h("tr", null, ["start, UTC", "lasted", "what", "kind", "status", "activity", "pod"].map((word) => h("th", { scope: "col" }, word)))),
      h("tbody", null, items.slice(0, ROWS).map((item) => h("tr", null,
        h("td", null, clock(item.start)),
        h("td", null, item.end === null ? `open ${span(now - item.start)}` : item.end === item.start ? "" : span(item.end - item.start)),
        h("td", null, h("button", { type: "button", class: "link", "data-key": item.key, onclick: () => open(item.kind, item.id) }, title(item))),
        h("td", null, kindWord(item.kind)), h("td", null, item.status ?? ""), h("td", null, item.activity ?? ""),
        h("td", null, podName(item.pod) ?? ""))))));
}
