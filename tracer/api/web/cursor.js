// The keyboard's place on the lanes: one lane, one item in it, told aloud.

import { say } from "./dom.js";
import { kindWord, podName, title } from "./items.js";
import { clock, span } from "./time.js";

export class Cursor {
  constructor(lanes, paint, view, now) {
    Object.assign(this, { lanes, paint, view, now });
  }

  /** The next (+1) or previous (-1) lane. */
  lane(step) {
    const { list } = this.lanes;
    const at = list.indexOf(this.paint.lane);
    this.paint.lane = list[Math.min(Math.max(at + step, 0), list.length - 1)] ?? null;
    this.paint.cursor = null;
    if (this.paint.lane) say(`Lane ${this.paint.lane.title}, ${this.#items().length} items in view`);
  }

  /** The next or previous item of the lane in the window. */
  item(step) {
    if (!this.paint.lane || !this.lanes.list.includes(this.paint.lane)) this.lane(1);
    const items = this.#items();
    if (!items.length) {
      say("No item of this lane in view");
      return;
    }
    const at = items.indexOf(this.paint.cursor);
    const next = at < 0 ? (step > 0 ? 0 : items.length - 1) : Math.min(Math.max(at + step, 0), items.length - 1);
    this.paint.cursor = items[next];
    say(`${next + 1} of ${items.length}: ${describe(this.paint.cursor, this.now())}`);
  }

  #items() {
    const { from, to } = this.view;
    const found = [];
    for (const band of this.paint.lane?.bands.values() ?? []) {
      const [first, last] = band.visible(from, to);
      for (const item of band.items.slice(first, last)) if (item.shown && (item.end ?? Infinity) >= from) found.push(item);
    }
    return found.sort((a, b) => a.start - b.start);
  }
}

/** An item in one line. */
export function describe(item, now) {
  const lasted = item.end === null ? `, open for ${span(now - item.start)}` : item.end > item.start ? `, ${span(item.end - item.start)}` : "";
  const pod = podName(item.pod);
  return `${title(item)}, ${kindWord(item.kind)}${item.status ? `, ${item.status}` : ""}${lasted}, at ${clock(item.start)}${pod ? `, ${pod}` : ""}`;
}
