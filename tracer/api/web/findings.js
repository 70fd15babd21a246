// The list of findings; each opens its facts and shows its evidence on the lanes.

import { ask } from "./data.js";
import { byId, h, renew, say } from "./dom.js";
import { podName } from "./items.js";
import { clock, micros, span } from "./time.js";

const MOST = 100;

export class Findings {
  constructor(open) {
    this.open = open;
    this.rows = new Map();
    this.selected = null;
  }

  async load() {
    const found = await ask(`/api/v1/findings?limit=${MOST}`);
    for (const row of found.items) this.rows.set(row.id, row);
    this.draw();
  }

  /** A row of the stream; a new one is said aloud. */
  told(row) {
    const before = this.rows.get(row.id);
    this.rows.set(row.id, row);
    if (!before) say(`New finding, ${row.severity}: ${row.summary}`);
    else if (before.state !== row.state) say(`Finding ended: ${row.summary}`);
    else if (before.summary === row.summary) return;
    this.draw();
  }

  draw() {
    const rows = [...this.rows.values()].sort((a, b) =>
      (a.state === "active" ? 0 : 1) - (b.state === "active" ? 0 : 1) || micros(b.start) - micros(a.start)).slice(0, MOST);
    const active = rows.filter((row) => row.state === "active").length;
    byId("tab-findings").textContent = active ? `Findings (${active})` : "Findings";
    const box = byId("findings");
    renew(box, rows.length ? h("ol", { class: "findings" }, rows.map((row) => this.#row(row)))
      : h("p", { class: "empty" }, "No finding: nothing was slow or failed that criscope has a name for."));
  }

  #row(row) {
    const lasts = row.duration_seconds === null ? `since ${clock(micros(row.start), 0)}`
      : `${clock(micros(row.start), 0)}, ${span(row.duration_seconds * 1e6)}`;
    return h("li", { "data-severity": row.severity, "data-state": row.state },
      h("button", { type: "button", "data-id": row.id, "aria-current": row.id === this.selected ? "true" : null,
        onclick: () => this.open("finding", row.id) },
      h("span", { class: "top" }, h("b", null, row.kind.replaceAll("_", " ")),
        h("span", { class: "chip" }, row.state === "active" ? row.severity : "ended"), h("time", null, lasts)),
      h("span", { class: "text" }, row.summary),
      h("span", { class: "muted" }, `${row.pods.map(podName).join(", ")}${row.pods.length ? " · " : ""}confidence ${row.confidence}`
        + `${row.completeness === "complete" ? "" : ` · ${row.completeness}`}`)));
  }
}
