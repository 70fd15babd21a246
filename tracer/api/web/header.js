// The node now: PLEG, open calls with their ages, completeness, and the verdict.

import { ask } from "./data.js";
import { byId, fill, h } from "./dom.js";
import { podName } from "./items.js";
import { ofSeconds, SECOND, micros, span } from "./time.js";

const OPEN_SHOWN = 3;
const STAGES = {
  idle: "idle", list_sandboxes: "lists sandboxes", list_containers: "lists containers", inspect: "inspects a pod",
  kubelet: "works in the kubelet",
};
const WHERE = {
  sending: "is being sent", request_wait: "unread by the runtime", service: "the runtime works on it",
  response_wait: "answer unread by the client",
};

export class Header {
  /** `open(kind, id)` shows a thing's facts; `relists(limit, lasts)` is told the PLEG's limit and last relists. */
  constructor(open, relists) {
    this.open = open;
    this.relists = relists;
  }

  /** Ask again; raises what `ask` raises. */
  async refresh(data) {
    const [pleg, calls, health] = await Promise.all([
      ask("/api/v1/pleg"), ask("/api/v1/calls?status=open&limit=100"), ask("/healthz"),
    ]);
    this.#pleg(pleg);
    this.#open(calls, data.now());
    this.#loss(health, data);
    const source = byId("source");
    source.textContent = data.live ? `live, ${data.state === "live" ? "connected" : data.state}` : health.source;
    source.dataset.state = data.state;
  }

  async verdict() {
    const why = await ask("/api/v1/why?since=1h");
    const box = byId("verdict");
    box.dataset.state = why.state;
    fill(box,
      h("strong", null, { trouble: "Trouble", past_trouble: "Over", quiet: "Quiet" }[why.state] ?? why.state), " ",
      h("span", null, why.sentence));
  }

  #pleg(pleg) {
    const left = pleg.seconds_until_unhealthy;
    const known = left !== null && left !== undefined;
    if (known) {
      this.relists(Math.round(left + pleg.age_seconds) * SECOND,
        pleg.kubelets.filter((each) => each.last_relist_start).map((each) => micros(each.last_relist_start)));
    }
    const wait = pleg.waiting_for;
    const box = byId("pleg");
    box.dataset.state = !known ? "unknown" : left <= 0 ? "bad" : left < 120 || wait?.age_seconds > 5 ? "warn" : "good";
    const limit = known ? left + pleg.age_seconds : 1;
    const meter = h("meter", { min: 0, max: limit, value: known ? Math.max(left, 0) : 0, "aria-label": "seconds until unhealthy" });
    fill(box,
      h("b", null, pleg.kubelets.length > 1 ? `PLEG, worst of ${pleg.kubelets.length}` : "PLEG"),
      h("span", null, pleg.stage === null || pleg.stage === undefined ? "unknown" : STAGES[pleg.stage] ?? pleg.stage),
      known ? meter : null,
      h("span", { class: "value" }, !known ? "no relist seen" : left <= 0 ? `unhealthy for ${ofSeconds(-left)}`
        : `unhealthy in ${Math.floor(left)} s`),
      wait ? h("button", { type: "button", onclick: () => this.open("call", wait.id) },
        `waits for ${wait.method ?? "unknown method"} ${ofSeconds(wait.age_seconds)}`
        + `${wait.pod ? ` of ${podName(wait.pod)}` : ""}${wait.stage ? `, ${WHERE[wait.stage]}` : ""}`) : null);
  }

  #open(calls, now) {
    // A stream lasts as long as it likes; it is not late.
    const open = calls.items.filter((call) => !call.streaming).reverse();
    const oldest = open.length ? now - micros(open[0].start) : 0;
    const box = byId("open");
    box.dataset.state = oldest > 30 * SECOND ? "bad" : oldest > 5 * SECOND ? "warn" : "good";
    fill(box, h("b", null, "Open calls"), h("span", null, `${open.length}${calls.next ? " or more" : ""}`),
      ...open.slice(0, OPEN_SHOWN).map((call) =>
        h("button", { type: "button", title: podName(call.pod) ?? "", onclick: () => this.open("call", call.id) },
          `${call.method ?? "unknown method"} ${span(now - micros(call.start))}`)));
  }

  #loss(health, data) {
    const parts = [
      [health.lost_records, "records lost"], [health.gaps, "gaps"], [health.store?.dropped, "rows not stored"],
      [data.losses, "rows not shown"],
    ].filter(([count]) => count !== 0);
    const box = byId("loss");
    box.dataset.state = health.status === "ok" && !parts.length ? "good" : health.tracing ? "warn" : "bad";
    fill(box, h("b", null, "Loss"),
      h("span", null, parts.length
        ? parts.map(([count, word]) => `${count === null || count === undefined ? "unknown" : count} ${word}`).join(", ")
        : health.tracing ? "none" : health.failure ?? "tracing has ended"));
    box.title = health.reasons.join("; ");
  }
}
