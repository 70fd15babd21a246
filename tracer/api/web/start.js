// The start of a pod as a waterfall.

import { ask } from "./data.js";
import { byId, h } from "./dom.js";
import { podName } from "./items.js";
import { SECOND, clock, micros, ofSeconds, span } from "./time.js";

const WORDS = { pleg_sight: "seen by the PLEG", first_probe_answered: "first probe answered", seen: "seen by the kubelet" };

/** Ask for and draw the latest starts of the pods of this name; `open(kind, id)` shows a bar's call. */
export async function showStart(pod, open) {
  const box = byId("start");
  box.dataset.pod = podName(pod);
  try {
    const found = await ask(`/api/v1/pods/${encodeURIComponent(pod.namespace)}/${encodeURIComponent(pod.name)}/start`);
    if (box.dataset.pod !== podName(pod)) return;
    box.replaceChildren(h("h2", null, podName(pod)), ...found.items.map((each) => draw(each, open)));
  } catch (error) {
    box.replaceChildren(h("h2", null, podName(pod)), h("p", { class: "empty" }, error.message));
  }
}

function draw(start, open) {
  const from = micros(start.start);
  // What comes later (probes, restarts) would press the start itself to nothing.
  const marks = start.stages.filter((bar) => bar.stage !== "first_probe_answered" && bar.stage !== "image");
  const end = Math.max(...marks.map((bar) => micros(bar.start) + (bar.duration_seconds ?? 0) * SECOND), from + 1);
  const whole = end - from;
  const place = (element, time, seconds) => {
    const left = Math.min(Math.max((time - from) / whole, 0), 0.995);
    element.style.left = `${left * 100}%`;
    element.style.width = `${Math.max(Math.min(((seconds ?? 0) * SECOND) / whole, 1 - left), 0.004) * 100}%`;
    return element;
  };
  return h("section", { "aria-label": `Start at ${clock(from)}` },
    h("p", { class: "muted" }, `${clock(from)} UTC, ${ofSeconds(start.duration_seconds)} in all, source ${start.config_source ?? "unknown"}`
      + `${start.complete ? "" : ", parts were not seen"}`),
    h("ol", { class: "waterfall" }, start.stages.map((bar) => {
      const time = micros(bar.start);
      const text = `${WORDS[bar.stage] ?? bar.stage.replaceAll("_", " ")}`;
      return h("li", null,
        h("span", { class: "row" }, h("span", { class: "name" },
          bar.call ? h("button", { type: "button", class: "link", onclick: () => open("call", bar.call) }, text) : text),
        h("span", { class: "when" }, `+${span(time - from)}`),
        h("span", { class: "took" }, bar.duration_seconds === 0 ? "" : bar.duration_seconds === null ? "open" : ofSeconds(bar.duration_seconds))),
        h("span", { class: "track", "aria-hidden": "true" },
          place(h("span", { class: "piece", "data-stage": bar.stage }), time, bar.duration_seconds)),
        bar.steps.map((step) => h("span", { class: "row step" },
          h("span", { class: "name" }, `${step.kind} ${step.name}`), h("span", { class: "when" }, `+${span(micros(step.start) - from)}`),
          h("span", { class: "took" }, ofSeconds(step.duration_seconds)),
          h("span", { class: "track", "aria-hidden": "true" },
            place(h("span", { class: "piece", "data-kind": step.kind }), micros(step.start), step.duration_seconds)))));
    })));
}
