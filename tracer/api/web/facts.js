// All facts of one thing, and the way to what it belongs to: call, relist, PLEG event, sync pass, steps.

import { ask, stepsOf } from "./data.js";
import { byId, h, renew } from "./dom.js";
import { kindWord, path, podName, title } from "./items.js";
import { clock, day, micros, ofSeconds, span } from "./time.js";

// Where null means that there is none, and not that it is not known.
const NONE = new Set(["error", "deadline_seconds", "image", "parent", "signal", "exec_id", "command", "config_source"]);
const LATER = new Set(["duration_seconds", "ended_by", "status", "end", "exit_code"]);
const STAGES = ["sending", "request_wait", "service", "response_wait"];
// Shown in a form of their own.
const APART = new Set(["stages", "inspections", "events", "calls", "evidence", "next_steps", "unknown", "pods", "summary", "text"]);
const CALLS_SHOWN = 200;
const CALM_MS = 2000; // between two drawings of what grows

export class Facts {
  /** `lanes` to find neighbours; `open(kind, id)`; `pod(pod)` shows only that pod; `start(pod)` its start. */
  constructor(lanes, { open, pod, start, now, found }) {
    Object.assign(this, { lanes, open, pod, start, now, found });
    this.shown = null;
    this.drawn = 0;
    this.filled = null;
  }

  async show(kind, id) {
    const key = `${kind}:${id}`;
    this.shown = key;
    try {
      const row = await ask(path(kind, id));
      if (this.shown !== key) return;
      this.#fill(kind, row);
      this.found(kind, row);
      byId("facts").scrollTop = 0;
      if (kind === "call") await this.#steps(row, key);
    } catch (error) {
      if (this.shown === key) byId("facts").replaceChildren(h("p", { class: "empty", role: "alert" }, error.message));
    }
  }

  /** A row of the stream; while the thing only grows, not each one. */
  refresh(item, row) {
    if (item.key !== this.shown || (item.end === null && Date.now() - this.drawn < CALM_MS)) return;
    this.#fill(item.kind, row);
    if (item.kind === "call") this.#steps(row, item.key).catch(() => {}); // they come with the next row, or when it is opened again
  }

  #fill(kind, row) {
    const key = `${kind}:${row.id}`;
    const steps = this.filled === key && byId("steps-of-call");
    this.filled = key;
    this.drawn = Date.now();
    renew(byId("facts"), this.#draw(kind, row));
    // Those that are known stay until they are asked for again.
    if (steps) byId("steps-of-call")?.replaceWith(steps);
  }

  clear() {
    this.shown = null;
    byId("facts").replaceChildren(h("p", { class: "empty" }, "Choose an item on the timeline: click it, or n and Enter."));
  }

  #draw(kind, row) {
    const item = this.lanes.byKey.get(`${kind}:${row.id}`);
    const start = micros(row.start ?? row.time);
    const name = item ? title(item) : row.method ?? row.name ?? row.type ?? (row.kind ?? kind).replaceAll("_", " ");
    const lasts = kind === "pleg_event" || kind === "node_event" ? ""
      : row.duration_seconds === undefined ? "" : row.duration_seconds === null
        ? `, open for ${span(this.now() - start)}` : `, ${ofSeconds(row.duration_seconds)}`;
    return [
      h("h2", null, name, " ", h("span", { class: "chip" }, kindWord(kind))),
      h("p", { class: "muted" }, `${day(start)} ${clock(start, 6)} UTC${lasts}`),
      row.summary || row.text ? h("p", { class: "sentence" }, row.summary ?? row.text) : null,
      kind === "call" ? waits(row) : null,
      this.#links(kind, row),
      ...this.#parts(kind, row),
      kind === "call" ? h("div", { id: "steps-of-call" }) : null,
      h("h3", null, "All facts"),
      h("dl", { class: "facts" }, flat(row).map(([field, value]) => [
        h("dt", null, field), h("dd", { class: value === null ? "muted" : null }, words(field, value, row))])),
    ];
  }

  #link(kind, id, text) {
    const item = this.lanes.byKey.get(`${kind}:${id}`);
    const label = text ?? (item ? `${title(item)}${item.end !== null && item.end > item.start ? ` ${span(item.end - item.start)}` : ""}` : id);
    return h("button", { type: "button", class: "link", onclick: () => this.open(kind, id) }, label);
  }

  #links(kind, row) {
    const rows = [];
    const add = (word, ...links) => rows.push(h("dt", null, word), h("dd", null, ...links));
    const activity = row.activity;
    if (activity?.id) {
      if (activity.kind === "relist" || activity.kind === "pod_relist") add("relist", this.#link("relist", activity.id));
      else if (activity.kind === "sync" || activity.kind === "terminate" || activity.kind === "lifecycle_hook") {
        add("sync pass", this.#link("sync_pass", activity.id));
      }
    }
    if (kind === "step" && row.call) add("call", this.#link("call", row.call));
    if (kind === "step" && row.parent) add("part of", this.#link("step", row.parent));
    if (kind === "pleg_event") {
      add("relist", this.#link("relist", row.relist));
      const next = this.#passes(row.pod.uid).find((item) => item.start >= micros(row.time));
      add("next sync pass", next ? this.#link("sync_pass", next.id) : "none that made calls is loaded");
    }
    if (kind === "sync_pass") {
      const before = this.#events(row.pod.uid).filter((item) => item.start <= micros(row.start)).at(-1);
      if (before) add("PLEG event before", this.#link("pleg_event", before.id));
    }
    const pods = row.pods ?? (row.pod ? [row.pod] : []);
    for (const pod of pods) {
      add("pod", podName(pod), " ",
        h("button", { type: "button", class: "link", onclick: () => this.pod(pod) }, "only this pod"), " ",
        h("button", { type: "button", class: "link", onclick: () => this.start(pod) }, "its start"));
    }
    return rows.length ? h("dl", { class: "links" }, rows) : null;
  }

  #passes(uid) {
    return this.lanes.lanes.get(`pod:${uid}`)?.bands.get("passes").items ?? [];
  }

  #events(uid) {
    return this.lanes.lanes.get(`pod:${uid}`)?.bands.get("events").items ?? [];
  }

  #parts(kind, row) {
    const parts = [];
    const list = (heading, items) => items.length && parts.push(h("h3", null, heading), h("ul", { class: "parts" }, items));
    if (row.evidence) {
      list("Evidence", row.evidence.map((each) => h("li", null,
        each.time ? h("time", null, clock(micros(each.time)), " ") : null, each.text, " ",
        each.call ? this.#link("call", each.call, "call") : null, " ",
        each.step ? this.#link("step", each.step, "step") : null)));
    }
    if (row.next_steps) list("What to try", row.next_steps.map((text) => h("li", null, text)));
    if (row.unknown) list("What cannot be told", row.unknown.map((text) => h("li", null, text)));
    if (row.stages) {
      list("Stages", row.stages.map((stage) => h("li", null, h("b", null, stage.name.replaceAll("_", " ")),
        ` ${ofSeconds(stage.duration_seconds)} `, stage.calls.map((id) => [this.#link("call", id), " "]))));
    }
    if (row.inspections) {
      list("Inspections", row.inspections.map((each) => h("li", null, `${podName(each.pod)} ${ofSeconds(each.duration_seconds)} `,
        each.calls.map((id) => [this.#link("call", id), " "]))));
    }
    if (row.events) {
      list("PLEG events", row.events.map((each) => h("li", null, this.#link("pleg_event", each.id, each.type), ` ${podName(each.pod)}`)));
    }
    if (row.calls) {
      list(row.calls.length > CALLS_SHOWN ? `Calls, the first ${CALLS_SHOWN} of ${row.calls.length}` : "Calls",
        row.calls.slice(0, CALLS_SHOWN).map((id) => h("li", null, this.#link("call", id))));
    }
    return parts;
  }

  async #steps(row, key) {
    const steps = await stepsOf(row);
    const box = byId("steps-of-call");
    if (this.shown !== key || !box || !steps.length) return;
    box.replaceChildren(h("h3", null, "Steps inside the runtime"), h("ul", { class: "parts" }, steps.map((step) =>
      h("li", { class: step.parent ? "deeper" : null },
        this.#link("step", step.id, `${step.kind} ${step.name}${step.command ? ` ${step.command}` : ""}`),
        ` ${ofSeconds(step.duration_seconds)}`, step.exit_code ? ` exit code ${step.exit_code}` : ""))));
  }
}

// Where the time of a call went, as a bar and in words.
function waits(row) {
  const parts = [["request_wait", "unread by the runtime"], ["service", "in the runtime"], ["response_wait", "unread by the client"]]
    .map(([name, word]) => [name, word, row[`${name}_seconds`]]);
  const total = parts.reduce((sum, [, , seconds]) => sum + (seconds ?? 0), 0);
  const bar = h("div", { class: "waits", "aria-hidden": "true" }, parts.map(([name, , seconds]) => {
    const part = h("span", { "data-wait": name });
    part.style.flexGrow = total && seconds ? Math.max(seconds / total, 0.004) : 0;
    return part;
  }));
  return h("div", null, bar, h("p", { class: "waits-words" }, parts.map(([name, word]) =>
    h("span", { "data-wait": name }, `${word} ${words(`${name}_seconds`, row[`${name}_seconds`], row)}`))));
}

// Of an open call: a wait behind the stage it is in.
function ahead(field, row) {
  const at = STAGES.indexOf(row.stage);
  return row.duration_seconds === null && at >= 0 && STAGES.indexOf(field.replace("_seconds", "")) > at;
}

function flat(row, prefix = "") {
  return Object.entries(row).flatMap(([name, value]) => {
    if (!prefix && APART.has(name)) return [];
    const field = prefix + name;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return flat(value, `${field}.`);
    return [[field, value]];
  });
}

function words(field, value, row) {
  const name = field.slice(field.lastIndexOf(".") + 1);
  if (value === null) {
    if (ahead(name, row)) return "not yet";
    if (LATER.has(name) && row.duration_seconds === null) return "open";
    if (name === "stage") return row.duration_seconds === null ? "unknown" : "over";
    return NONE.has(name) ? "none" : "unknown";
  }
  if (name.endsWith("_seconds")) return ofSeconds(value);
  if (name.endsWith("_bytes")) return `${value.toLocaleString("en")} bytes`;
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(Array.isArray(value) ? value.join(", ") : value);
}
