// Draws lanes on a canvas. Items come from binary searches, rectangles go out in one batch a colour, and what would
// fall on a pixel that has its colour already is left out: the cost follows the pixels, not the items. Bars are drawn
// on a layer that is kept: a pan shifts it and draws only the strip that came into view.

import { drawAge } from "./age.js";
import { DIM, TONES, title } from "./items.js";
import { SECOND, ticks } from "./time.js";

const PHONE = 640;
const LABELS = 172;
const NEAR = 4; // pixels beside an item that still hit it
const AXIS = 24;
const TEXT_FROM = 26; // pixels a bar must have for its name
const BESIDE = 160; // pixels for a name beside a mark
const FONT = "system-ui, sans-serif";

export class Paint {
  constructor(canvas, axis, lanes, view) {
    this.canvas = canvas;
    this.axis = axis;
    this.lanes = lanes;
    this.view = view;
    this.context = canvas.getContext("2d", { alpha: false });
    this.layer = document.createElement("canvas").getContext("2d", { alpha: false });
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    this.top = 0;
    this.limit = 180 * SECOND; // of the PLEG
    this.lasts = []; // start of each kubelet's last relist
    this.cursor = null; // the item under the keyboard
    this.related = new Set(); // keys of items to point out
    this.lane = null; // the lane under the keyboard
    this.stale = true; // more than the window's place is another
    this.kept = { from: 0, span: 0, top: 0 }; // the window on the layer
    this.over = new Map(); // names and outlines to draw above the bars, by band
    this.buckets = TONES.map(() => []);
    this.wide = new Map(); // widths of titles, which are few
    this.drawn = 0; // rectangles of the last whole drawing
    this.theme();
  }

  /** Colours anew from the style sheet. */
  theme() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    this.tones = TONES.map((name) => of(`--tone-${name}`));
    this.colours = Object.fromEntries(
      ["text", "muted", "grid", "lane", "now", "focus", "limit", "age", "back", "ink"].map((name) => [name, of(`--${name}`)]));
  }

  /** Room for the drawing, in CSS pixels. */
  resize(width, height) {
    this.width = width;
    this.height = height;
    const ratio = (this.ratio = Math.min(window.devicePixelRatio || 1, 2));
    for (const [canvas, tall] of [[this.canvas, height], [this.layer.canvas, height], [this.axis, AXIS]]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(tall * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${tall}px`;
    }
    for (const context of [this.context, this.layer, this.axis.getContext("2d")]) context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.stale = true;
  }

  get phone() {
    return this.width < PHONE;
  }

  /** Where time begins, in pixels. */
  get left() {
    return this.phone ? 0 : LABELS;
  }

  /** Room above each lane for its name. */
  get head() {
    return this.phone ? 15 : 0;
  }

  x(us) {
    return this.left + ((us - this.kept.from) / this.view.span) * (this.width - this.left);
  }

  time(x) {
    return this.view.from + ((x - this.left) / (this.width - this.left)) * this.view.span;
  }

  draw(now) {
    const { context, layer, left, width, height, ratio } = this;
    if (!width) return;
    const seen = this.lanes.list.filter((lane) => lane.y + lane.height >= this.top && lane.y - this.top - this.head <= height);
    this.#layer(seen, now);
    context.drawImage(layer.canvas, 0, 0, width, height);
    if (left) this.#names(seen);
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, height);
    context.clip();
    const { from, to } = this.view;
    if (now >= from && now <= to) {
      context.fillStyle = this.colours.now;
      context.fillRect(Math.round(this.x(now) * ratio) / ratio, 0, 1, height);
    }
    this.#above(now);
    context.restore();
    this.#axis();
  }

  // The bars as they are in the window: all of them, or after a pan those of the strip that came into view.
  #layer(seen, now) {
    const { layer, view, kept, left, width, height, ratio } = this;
    const shift = Math.round(((view.from - kept.from) / view.span) * (width - left) * ratio) / ratio;
    const same = !this.stale && kept.span === view.span && kept.top === this.top && Math.abs(shift) < width - left;
    if (same) {
      if (!shift) return;
      // By whole pixels, so that what is kept stays sharp; less than one is left over and never adds up.
      kept.from += (shift / (width - left)) * view.span;
      const copied = width - left - Math.abs(shift);
      layer.drawImage(layer.canvas, (left + Math.max(shift, 0)) * ratio, 0, copied * ratio, height * ratio,
        left + Math.max(-shift, 0), 0, copied, height);
      this.#strip(seen, now, shift > 0 ? width - shift : left, shift > 0 ? width : left - shift);
      return;
    }
    this.stale = false;
    Object.assign(kept, { from: view.from, span: view.span, top: this.top });
    this.over.clear();
    this.#strip(seen, now, 0, width);
    this.drawn = this.buckets.reduce((sum, bucket) => sum + bucket.length / 4, 0);
  }

  #strip(seen, now, x0, x1) {
    const { layer, kept, view, left, width, height, ratio } = this;
    const at = (x) => kept.from + ((x - left) / (width - left)) * view.span;
    const slack = 4 * (view.span / (width - left));
    const [from, to] = [at(Math.max(x0, left)) - slack, at(x1) + slack];
    layer.save();
    layer.beginPath();
    layer.rect(x0, 0, x1 - x0, height);
    layer.clip();
    layer.fillStyle = this.colours.back;
    layer.fillRect(x0, 0, x1 - x0, height);
    for (const lane of seen) {
      layer.fillStyle = lane === this.lane ? this.colours.grid : this.colours.lane;
      layer.fillRect(x0, lane.y - this.top - 3 - this.head, x1 - x0, lane.height + 6 + this.head);
    }
    layer.fillStyle = this.colours.grid;
    const { step } = ticks(view.from, view.to, width - left);
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = Math.round(this.x(time) * ratio) / ratio;
      if (x >= left) layer.fillRect(x, 0, 1, height);
    }
    for (const bucket of this.buckets) bucket.length = 0;
    for (const lane of seen) {
      if (lane.gauge) this.#gauge(lane, now, from, to, Math.max(x0, left), x1);
      for (const band of lane.bands.values()) if (band.items.length) this.#band(lane, band, from, to, now);
    }
    for (let tone = 0; tone < TONES.length; tone++) {
      const bucket = this.buckets[tone];
      layer.fillStyle = this.tones[tone];
      for (let each = 0; each < bucket.length; each += 4) {
        layer.fillRect(bucket[each], bucket[each + 1], bucket[each + 2], bucket[each + 3]);
      }
    }
    layer.restore();
  }

  #gauge(lane, now, from, to, x0, x1) {
    const { layer, colours, limit, lasts } = this;
    const y = lane.y - this.top;
    const [floor, tall] = [y + lane.gauge - 4, lane.gauge - 7];
    layer.save();
    layer.beginPath();
    layer.rect(x0, y - 3, x1 - x0, lane.gauge);
    layer.clip();
    layer.fillStyle = colours.limit;
    // Dashes at fixed times of the screen would crawl while it pans; a thin line does not.
    layer.fillRect(x0, Math.round(floor - tall), x1 - x0, 1);
    drawAge(layer, (us) => this.x(us), lane.bands.get("relists"), { lasts, limit, now, floor, tall, from, to, colour: colours.age });
    layer.restore();
  }

  #band(lane, band, from, to, now) {
    const { view, left, ratio, buckets, width } = this;
    const origin = this.kept.from;
    const scale = (width - left) / view.span;
    const [first, last] = band.visible(from, to);
    // Of each row and tone: where its last rectangle ends, and where in the bucket it is.
    const covered = new Float64Array(band.rows * TONES.length).fill(-9);
    const rectangle = new Int32Array(covered.length);
    const size = lane.compact ? 10 : band.size - 1;
    const over = this.over.get(band) ?? new Map();
    if (!over.size) this.over.set(band, over);
    for (let at = first; at < last; at++) {
      const item = band.items[at];
      const until = item.end ?? Math.max(now, item.start);
      if (until < from) continue;
      const row = lane.compact ? 0 : band.row[at];
      const tone = item.shown ? item.tone : DIM;
      // On whole pixels: sharp, and many times cheaper for a drawing without a graphics card.
      let x = Math.round((left + (item.start - origin) * scale) * ratio) / ratio;
      let right = Math.round((left + (until - origin) * scale) * ratio) / ratio;
      const least = item.end === item.start ? 3 : 2;
      if (right - x < least) right = x + least;
      else if (right - x > 3) right -= 1 / ratio; // a hair between neighbours
      const chosen = item.key === view.selected || item === this.cursor || this.related.has(item.key);
      const named = item.shown && (item.kind === "node_event" || (right - x > TEXT_FROM && size >= 9 && !lane.compact));
      if (chosen || named) over.set(item, { y: band.y + row * band.size, size, named, chosen });
      const key = row * TONES.length + tone;
      if (right <= covered[key]) continue;
      if (x < left) x = left;
      if (right > width + 2) right = width + 2;
      const bucket = buckets[tone];
      if (x <= covered[key] && right - x <= 3) bucket[rectangle[key] + 2] = right - bucket[rectangle[key]];
      else {
        rectangle[key] = bucket.length;
        bucket.push(x, band.y - this.top + row * band.size, right - x, size);
      }
      covered[key] = right;
    }
  }

  // Names on bars, and outlines: they stay in view while their bar moves out of it.
  #above(now) {
    const { context, left, width, view, colours } = this;
    context.font = `10.5px ${FONT}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.lineWidth = 2;
    const outlines = [];
    for (const [band, items] of this.over) {
      let free = -Infinity; // where the next name beside a mark may begin
      // A pan to the left adds earlier ones last; only names beside their mark mind.
      const ordered = band.name === "node" ? [...items].sort(([a], [b]) => a.start - b.start) : items;
      for (const [item, { y: deep, size, named, chosen }] of ordered) {
        const x = Math.max(this.x(item.start), left);
        const beside = item.kind === "node_event";
        const right = Math.min(this.x(item.end ?? now), width);
        if (right < left || x > width) continue;
        const y = deep - this.top;
        if (chosen) outlines.push([item, x, y, Math.max(right - x, 2), size]);
        const room = beside ? BESIDE : right - x;
        if (!named || room < TEXT_FROM) continue;
        const text = title(item);
        let wide = this.wide.get(text);
        if (wide === undefined) this.wide.set(text, (wide = context.measureText(text).width));
        if (beside && x < free) continue;
        free = x + wide + 16;
        const fits = Math.floor((text.length * (room - 7)) / wide);
        context.fillStyle = beside ? colours.text : colours.ink;
        context.fillText(fits < text.length ? `${text.slice(0, Math.max(fits - 2, 1))}…` : text, x + (beside ? 8 : 4), y + size / 2 + 0.5);
      }
    }
    for (const [item, x, y, wide, tall] of outlines) {
      context.strokeStyle = item === this.cursor || item.key === view.selected ? colours.focus : colours.text;
      context.strokeRect(x - 1.5, y - 1.5, wide + 3, tall + 3);
    }
  }

  // What the rows of a lane are, beside its name.
  #names(seen) {
    const { context, left } = this;
    context.fillStyle = this.colours.muted;
    context.font = `10px ${FONT}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const lane of seen) {
      if (lane.pod || lane.bands.size < 2) continue;
      for (const band of lane.bands.values()) {
        context.fillText(band.name === "pleg" ? "PLEG" : band.name, left - 8, band.y - this.top + band.height / 2);
      }
      if (lane.gauge) context.fillText(`limit ${Math.round(this.limit / SECOND)} s`, left - 8, lane.y - this.top + 3);
    }
  }

  #axis() {
    const axis = this.axis.getContext("2d");
    axis.clearRect(0, 0, this.width, AXIS);
    axis.font = `11px ${FONT}`;
    axis.textBaseline = "middle";
    axis.fillStyle = this.colours.muted;
    const { step, first, label } = ticks(this.view.from, this.view.to, this.width - this.left);
    for (let time = first; time <= this.view.to; time += step) {
      const x = Math.round(this.x(time));
      axis.fillRect(x, 18, 1, 6);
      axis.fillText(label(time), x + 4, 12);
    }
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
        // The nearest; of those that are under the pointer the shortest.
        const far = exact < item.start ? item.start - exact : exact > until ? exact - until : 0;
        const weight = far * 1000 + Math.min(until - item.start, 1e9);
        if (weight < score) [best, score] = [item, weight];
      }
    }
    return { lane, item: best };
  }
}
