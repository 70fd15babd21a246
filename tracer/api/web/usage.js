// Who calls the runtime, and what it costs.

import { ask } from "./data.js";
import { byId, h, renew } from "./dom.js";
import { clock, micros, ofSeconds } from "./time.js";

const SHOWN = 30;

export async function showUsage(by = "client") {
  const box = byId("usage");
  try {
    const found = await ask(`/api/v1/usage?since=1h&by=${by}`);
    const select = h("select", { "aria-label": "Usage by", onchange: (event) => showUsage(event.target.value) },
      ["client", "activity", "pod", "method"].map((name) => h("option", { value: name, selected: name === by }, `by ${name}`)));
    const share = (value) => `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
    renew(box, h("p", null, select, h("span", { class: "muted" },
      ` calls that ended ${clock(micros(found.since), 0)} to ${clock(micros(found.until), 0)} UTC`)),
    found.items.length ? h("table", null,
      h("thead", null, h("tr", null, [by, "calls", "not OK", "in the runtime", "share"].map((word) => h("th", { scope: "col" }, word)))),
      h("tbody", null, found.items.slice(0, SHOWN).map((each) => h("tr", null, h("th", { scope: "row" }, each.name),
        h("td", null, each.calls), h("td", null, each.failed), h("td", null, ofSeconds(each.service_seconds)),
        h("td", null, share(each.service_share)))))) : h("p", { class: "empty" }, "No call ended in that time."));
  } catch (error) {
    box.replaceChildren(h("p", { class: "empty" }, error.message));
  }
}
