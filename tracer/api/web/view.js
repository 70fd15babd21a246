// The window that is shown, and what is chosen in it; kept in the address, so that it can be sent to someone.

import { SECOND } from "./time.js";

const NARROWEST = 20; // microseconds
const WIDEST = 7 * 86400 * SECOND;

export class View {
  constructor() {
    this.from = 0;
    this.to = 1;
    this.follow = false;
    this.selected = null; // key of an item
    this.filter = { q: "", pod: "", method: "", status: "", min: "" };
    this.table = false;
    this.listeners = [];
  }

  get span() {
    return this.to - this.from;
  }

  onchange(listener) {
    this.listeners.push(listener);
  }

  changed(what) {
    for (const listener of this.listeners) listener(what);
  }

  show(from, to) {
    const span = Math.min(Math.max(to - from, NARROWEST), WIDEST);
    const middle = (from + to) / 2;
    this.from = middle - span / 2;
    this.to = middle + span / 2;
    this.changed("window");
  }

  /** `share` of the window's width to the right. */
  pan(share) {
    this.follow = false;
    this.show(this.from + this.span * share, this.to + this.span * share);
  }

  /** Larger than 1 shows more time; `at` stays where it is. While following, that is the right edge. */
  zoom(factor, at) {
    if (this.follow) at = this.to;
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  select(key) {
    this.selected = key;
    this.changed("selected");
  }

  /** The part of the address behind #. */
  get hash() {
    const words = new URLSearchParams();
    words.set("t", `${Math.round(this.from)}-${Math.round(this.to)}`);
    if (this.follow) words.set("live", "1");
    if (this.table) words.set("view", "table");
    for (const [name, value] of Object.entries(this.filter)) if (value) words.set(name, value);
    if (this.selected) words.set("item", this.selected);
    return `#${words}`;
  }

  /** What an address says; false when it says nothing of a window. */
  read(hash) {
    const words = new URLSearchParams(hash.slice(1));
    for (const name of Object.keys(this.filter)) this.filter[name] = (words.get(name) ?? "").slice(0, 253);
    this.table = words.get("view") === "table";
    this.selected = words.get("item");
    const window = /^(\d{1,16})-(\d{1,16})$/.exec(words.get("t") ?? "");
    if (!window || Number(window[1]) >= Number(window[2])) return false;
    this.follow = words.get("live") === "1";
    this.show(Number(window[1]), Number(window[2]));
    return true;
  }
}
