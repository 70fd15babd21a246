// Draws lanes on a canvas. Items come from binary searches, rectangles go out in one batch a colour, and what would
// fall on a pixel that has its colour already is left out: the cost follows the pixels, not the items.

import { DIM, TONES, title } from "./items.js";
import { SECOND, ticks } from "./time.js";

const PHONE = 640;
const LABELS = 172;
const NEAR = 4; // pixels beside an item that still hit it

export class Paint {
  constructor(canvas, axis, lanes, view) {
    this.canvas = canvas;
    this.axis = axis;
    this.lanes = lanes;
    this.view = view;
    this.width = 0;
    this.height = 0;
    this.top = 0;
    this.limit = 180 * SECOND; // of the PLEG
    this.cursor = null; // the item under the keyboard
    this.related = new Set(); // keys of items to point out
    this.lane = null; // the lane under the keyboard
    this.drawn = 0; // rectangles of the last frame
    this.buckets = TONES.map(() => []);
    this.wide = new Map(); // widths of titles, which are few
    this.theme();
  }

  /** Colours anew from the style sheet. */
  theme() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    this.tones = TONES.map((name) => of(`--tone-${name}`));
    this.inks = TONES.map((name) => of(`--ink-${name}`) || of("--ink"));
    this.colours = Object.fromEntries(
      ["text", "muted", "grid", "lane", "now", "focus", "limit", "age", "back"].map((name) => [name, of(`--${name}`)]));
  }

  /** Room for the drawing, in CSS pixels. */
  resize(width, height) {
    this.width = width;
    this.height = height;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    for (const [canvas, tall] of [[this.canvas, height], [this.axis, 24]]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(tall * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${tall}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
  }

  get phone() {
    return this.width < PHONE;
  }

  /** Where time begins, in pixels. */
  get left() {
    return this.phone ? 0 : LABELS;
  }

  get head() {
    return this.phone ? 15 : 0;
  }

  x(us) {
    return this.left + ((us - this.view.from) / this.view.span) * (this.width - this.left);
  }

  time(x) {
    return this.view.from + ((x - this.left) / (this.width - this.left)) * this.view.span;
  }

  draw(now) {
    const context = this.canvas.getContext("2d");
    const { from, to } = this.view;
    context.clearRect(0, 0, this.width, this.height);
    for (const bucket of this.buckets) bucket.length = 0;
    const texts = [];
    const marks = [];
    const seen = this.lanes.list.filter((lane) => lane.y + lane.height >= this.top && lane.y - this.top - this.head <= this.height);
    for (const lane of seen) this.#background(context, lane, lane.y - this.top);
    this.#grid(context);
    for (const lane of seen) {
      const y = lane.y - this.top;
      if (lane.gauge && !lane.compact) this.#age(context, lane, y, now);
      for (const band of lane.bands.values()) this.#band(lane, band, from, to, now, texts, marks);
    }
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.width - this.left, this.height);
    context.clip();
    this.drawn = 0;
    for (let tone = 0; tone < TONES.length; tone++) {
      const bucket = this.buckets[tone];
      if (!bucket.length) continue;
      context.fillStyle = this.tones[tone];
      for (let at = 0; at < bucket.length; at += 4) {
        context.fillRect(bucket[at], bucket[at + 1], bucket[at + 2], bucket[at + 3]);
      }
      this.drawn += bucket.length / 4;
    }
    if (now >= from && now <= to) {
      context.fillStyle = this.colours.now;
      context.fillRect(Math.round(this.x(now)), 0, 1, this.height);
    }
    this.#texts(context, texts);
    for (const [colour, x, y, width, height] of marks) {
      context.strokeStyle = this.colours[colour];
      context.lineWidth = 2;
      context.strokeRect(x - 1.5, y - 1.5, width + 3, height + 3);
    }
    context.restore();
  }

  #background(context, lane, y) {
    context.fillStyle = lane === this.lane ? this.colours.grid : this.colours.lane;
    context.fillRect(0, y - 3 - this.head, this.width, lane.height + 6 + this.head);
    if (lane.pod || lane.bands.size < 2 || this.phone) return;
    context.fillStyle = this.colours.muted;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const band of lane.bands.values()) {
      context.fillText(band.name === "pleg" ? "PLEG" : band.name, this.left - 8, band.y - this.top + band.height / 2);
    }
  }

  #band(lane, band, from, to, now, texts, marks) {
    const { view, left } = this;
    const scale = (this.width - left) / view.span;
    const slack = 3 / scale;
    const [first, last] = band.visible(from - slack, to + slack);
    const covered = new Float64Array(band.rows * TONES.length).fill(-1);
    const size = lane.compact ? 10 : band.size - 1;
    for (let at = first; at < last; at++) {
      const item = band.items[at];
      const until = item.end ?? Math.max(now, item.start);
      if (until < from - slack) continue;
      const row = lane.compact ? 0 : band.row[at];
      const tone = item.shown ? item.tone : DIM;
      let x = left + (item.start - from) * scale;
      let right = left + (until - from) * scale;
      const least = item.end === item.start ? 2.5 : 1.5;
      if (right - x < least) right = x + least;
      const key = row * TONES.length + tone;
      const chosen = item.key === view.selected || item === this.cursor || this.related.has(item.key);
      if (!chosen && right <= covered[key]) continue;
      if (x < covered[key]) x = Math.min(covered[key], right);
      if (right - x > 3) right -= 0.5; // a hair between neighbours
      covered[key] = Math.ceil(right);
      if (x < left - 2) x = left - 2;
      if (right > this.width + 2) right = this.width + 2;
      const y = band.y - this.top + row * band.size;
      this.buckets[tone].push(x, y, right - x, size);
      if (right - x > 26 && size >= 9 && item.shown) texts.push(item, Math.max(x, left), y, right - Math.max(x, left), size);
      else if (item.kind === "node_event" && item.shown) texts.push(item, x + 4, y, 160, -size);
      if (chosen) {
        marks.push([item === this.cursor || item.key === view.selected ? "focus" : "text", x, y, right - x, size]);
      }
    }
  }

  #texts(context, texts) {
    context.font = "10.5px system-ui, sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (let at = 0; at < texts.length; at += 5) {
      const [item, x, y, room, size] = texts.slice(at, at + 5);
      const beside = size < 0;
      context.fillStyle = beside ? this.colours.text : this.inks[item.tone];
      const text = title(item);
      let wide = this.wide.get(text);
      if (wide === undefined) this.wide.set(text, (wide = context.measureText(text).width));
      const fits = Math.floor((text.length * (room - 8)) / wide);
      context.fillText(fits < text.length ? `${text.slice(0, Math.max(fits - 1, 1))}…` : text, x + 4, y + Math.abs(size) / 2 + 0.5);
    }
  }

  #grid(context) {
    const { from, to } = this.view;
    const axis = this.axis.getContext("2d");
    axis.clearRect(0, 0, this.width, 24);
    axis.font = "11px system-ui, sans-serif";
    axis.textBaseline = "middle";
    axis.fillStyle = this.colours.muted;
    context.fillStyle = this.colours.grid;
    const { step, first, label } = ticks(from, to, this.width - this.left);
    for (let time = first; time <= to; time += step) {
      const x = Math.round(this.x(time));
      context.fillRect(x, 0, 1, this.height);
      axis.fillRect(x, 18, 1, 6);
      axis.fillText(label(time), x + 4, 12);
    }
  }

  // How long ago the last relist began, as a share of the limit at which the kubelet calls its PLEG unhealthy.
  #age(context, lane, y, now) {
    const { from, to } = this.view;
    const band = this.lanes.pleg.bands.get("relists");
    const floor = y + lane.gauge - 4;
    const tall = lane.gauge - 7;
    const height = (age) => floor - Math.min(age / this.limit, 1) * tall;
    context.save();
    context.beginPath();
    context.rect(this.left, y - 3, this.width - this.left, lane.gauge);
    context.clip();
    context.strokeStyle = this.colours.limit;
    context.setLineDash([4, 4]);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(this.left, Math.round(floor - tall) + 0.5);
    context.lineTo(this.width, Math.round(floor - tall) + 0.5);
    context.stroke();
    context.setLineDash([]);
    context.strokeStyle = this.colours.age;
    context.lineWidth = 1.25;
    context.beginPath();
    // One before and one behind the window; peaks that share a pixel become the highest.
    const [first, last] = [Math.max(band.visible(from, to)[0] - 1, 0), Math.min(band.visible(from, to)[1] + 1, band.items.length)];
    let before = null;
    let pixel = -Infinity;
    let peak = 0;
    for (let at = first; at < last; at++) {
      const item = band.items[at];
      if (item.activity !== "relist" || item.status === "failed") continue;
      const x = this.x(item.start);
      if (before !== null) {
        const age = item.start - before;
        const from = this.x(before);
        if (x - from >= 1.5) {
          context.moveTo(from, floor);
          context.lineTo(x, height(age));
          context.lineTo(x, floor);
        } else {
          peak = Math.max(peak, age);
          if (x - pixel >= 1) {
            context.moveTo(x, floor);
            context.lineTo(x, height(peak));
            pixel = x;
            peak = 0;
          }
        }
      }
      before = item.start;
    }
    if (before !== null && last === band.items.length && now > before) {
      context.moveTo(this.x(before), floor);
      context.lineTo(this.x(now), height(now - before));
    }
    context.stroke();
    context.restore();
    context.fillStyle = this.colours.muted;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    if (!this.phone) context.fillText(`limit ${Math.round(this.limit / SECOND)} s`, this.left - 8, floor - tall);
  }

  /** The item at a place, or the lane alone: {lane, item}. */
  at(x, y) {
    const deep = y + this.top;
    const lane = this.lanes.list.find((each) => deep >= each.y - 3 - this.head && deep < each.y + each.height + 3);
    if (!lane || x < this.left) return { lane: lane ?? null, item: null };
    const [from, to] = [this.time(x - NEAR), this.time(x + NEAR)];
    const exact = this.time(x);
    let best = null;
    let score = Infinity;
    for (const band of lane.bands.values()) {
      const row = lane.compact ? 0 : Math.floor((deep - band.y) / band.size);
      if (!lane.compact && (row < 0 || row >= band.rows)) continue;
      const [first, last] = band.visible(from, to);
      for (let at = first; at < last; at++) {
        const item = band.items[at];
        const until = item.end ?? Infinity;
        if ((!lane.compact && band.row[at] !== row) || until < from || !item.shown) continue;
        const far = exact < item.start ? item.start - exact : exact > until ? exact - until : 0;
        const weight = far * 1000 + Math.min(until - item.start, 1e9);
        if (weight < score) [best, score] = [item, weight];
      }
    }
    return { lane, item: best };
  }
}
