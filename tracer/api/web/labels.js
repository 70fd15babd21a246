// The names of the lanes, beside (on a phone above) them; a pod's name opens its start, the arrow folds its lane.

import { byId, h } from "./dom.js";

/** Draw them anew; `act`: {fold(lane), name(lane)}. */
export function drawLabels(lanes, phone, act) {
  byId("labels").replaceChildren(...lanes.list.map((lane) => {
    // Buttons are no stops of the tab key: a node has hundreds. On the lanes, j and k go through them, s and c act.
    const made = h("li", { "data-lane": lane.key, "data-group": lane.group, "data-trouble": lane.trouble ? "" : null },
      lane.pod ? h("button", { type: "button", tabindex: "-1", class: "fold", "aria-label": lane.compact ? "Unfold" : "Fold",
        onclick: () => act.fold(lane) }, lane.compact ? "▸" : "▾") : null,
      lane.pod ? h("button", { type: "button", tabindex: "-1", class: "name", title: lane.title, onclick: () => act.name(lane) },
        h("span", { class: "space" }, `${lane.pod.namespace}/`), lane.pod.name)
        : h("span", { class: "name", title: lane.title }, lane.title));
    made.style.top = `${lane.y - (phone ? 15 : 1)}px`;
    return made;
  }));
}
