// Search and filter: what does not pass stays as a shadow, so that its place is not mistaken for silence.

import { h } from "./dom.js";
import { podName, title } from "./items.js";
import { duration } from "./time.js";

/** Does an item pass `filter`? Made once for a filter, asked for each item. */
export function test(filter) {
  const words = filter.q.toLowerCase().split(/\s+/).filter(Boolean);
  const least = duration(filter.min);
  return (item, now) => {
    const { kind } = item;
    if (filter.pod && podName(item.pod) !== filter.pod) return false;
    if (filter.method && item.name !== filter.method) return false;
    if (filter.status && item.status !== filter.status) return false;
    if (least && (item.end ?? now) - item.start < least) return false;
    if (!words.length) return true;
    const text = `${title(item)} ${kind} ${item.id} ${item.status ?? ""} ${item.activity ?? ""} ${podName(item.pod) ?? ""}`;
    const low = text.toLowerCase();
    return words.every((word) => low.includes(word));
  };
}

/** Offer what is there in the lists of the form, keeping what is chosen. */
export function offer(form, items, filter) {
  const found = { pod: new Set(), method: new Set(), status: new Set() };
  for (const item of items) {
    if (item.pod) found.pod.add(podName(item.pod));
    if ((item.kind === "call" || item.kind === "step") && item.name) found.method.add(item.name);
    if (item.status) found.status.add(item.status);
  }
  for (const [name, values] of Object.entries(found)) {
    if (filter[name]) values.add(filter[name]);
    const select = form.elements[name];
    const wanted = ["", ...[...values].sort()];
    if (wanted.length !== select.options.length || wanted.some((value, at) => select.options[at].value !== value)) {
      select.replaceChildren(...wanted.map((value) => h("option", { value }, value || select.dataset.all)));
    }
    select.value = filter[name];
  }
  for (const name of ["q", "min"]) if (document.activeElement !== form.elements[name]) form.elements[name].value = filter[name];
}

/** What the form says, into `filter`; false when the duration is none. */
export function take(form, filter) {
  for (const name of Object.keys(filter)) filter[name] = form.elements[name].value.trim();
  const fine = !Number.isNaN(duration(filter.min));
  form.elements.min.setAttribute("aria-invalid", String(!fine));
  if (!fine) filter.min = "";
  return fine;
}
