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
  const again = restarted(start.stages);
  const first = start.stages.slice(0, again);
  const end = Math.max(from + 1, ...first.filter((bar) => bar.stage !== "first_probe_answered")
    .map((bar) => micros(bar.start) + (bar.duration_seconds ?? 0) * SECOND));
  const place = (time, seconds, kind) => {
    const piece = h("span", { class: "piece", "data-kind": kind });
    const left = Math.min(Math.max((time - from) / (end - from), 0), 0.995);
    piece.style.left = `${left * 100}%`;
    piece.style.width = `${Math.max(Math.min(((seconds ?? 0) * SECOND) / (end - from), 1 - left), 0.005) * 100}%`;
    return h("span", { class: "track", "aria-hidden": "true" }, piece);
  };
  const row = (bar, track) => {
    const time = micros(bar.start);
    const text = WORDS[bar.stage] ?? bar.stage.replaceAll("_", " ");
    return h("li", null,
      h("span", { class: "row" },
        h("span", { class: "name", title: bar.what }, bar.call
          ? h("button", { type: "button", class: "link", onclick: () => open("call", bar.call) }, text) : text,
        bar.status && bar.status !== "OK" ? ` ${bar.status}` : ""),
        h("span", { class: "when" }, `+${span(time - from)}`),
        h("span", { class: "took" }, bar.duration_seconds === 0 ? "" : bar.duration_seconds === null ? "open" : ofSeconds(bar.duration_seconds))),
      track ? place(time, bar.duration_seconds, bar.stage) : null,
      track ? bar.steps.map((step) => h("span", { class: "row step" },
        h("span", { class: "name" }, `${step.kind === "exec" ? "" : `${step.kind} `}${step.name}`),
        h("span", { class: "when" }, `+${span(micros(step.start) - from)}`),
        h("span", { class: "took" }, ofSeconds(step.duration_seconds)),
        place(micros(step.start), step.duration_seconds, step.kind))) : null);
  };
  return h("section", { "aria-label": `Start at ${clock(from)}` },
    h("p", { class: "muted" }, `${clock(from)} UTC, running after ${span(end - from)}, source ${start.config_source ?? "unknown"}`
      + `${start.complete ? "" : ", parts were not seen"}`),
    h("ol", { class: "waterfall" }, first.map((bar) => row(bar, true))),
    again < start.stages.length ? [h("h3", null, "Restarts, and what came later"),
      h("ol", { class: "waterfall" }, start.stages.slice(again).map((bar) => row(bar, false)))] : null);
}

// Where a container is made that was made before: from its image on it is a restart, and no part of the start.
function restarted(bars) {
  const made = new Set();
  for (const [at, bar] of bars.entries()) {
    if (bar.stage !== "create") continue;
    if (made.has(bar.what)) {
      let begin = at;
      while (bars[begin - 1]?.stage === "image") begin -= 1;
      return begin;
    }
    made.add(bar.what);
  }
  return bars.length;
}
