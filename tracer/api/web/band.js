// A band: items of one kind in one lane, in order of their start, in as many rows as overlap.

export class Band {
  /** At most `most` rows of `size` pixels; what finds no free row shares the last one. */
  constructor(name, most, size) {
    this.name = name;
    this.most = most;
    this.size = size;
    this.items = [];
    this.row = new Uint8Array(0);
    this.reach = new Float64Array(0); // the latest end of all items up to here: never falls, so it can be searched
    this.rows = 1;
    this.stale = false;
  }

  add(item) {
    this.items.push(item);
    this.stale = true;
  }

  /** Order, rows and reach; after items came or changed. */
  build() {
    if (!this.stale) return;
    this.stale = false;
    const items = this.items.sort((a, b) => a.start - b.start || (b.end ?? Infinity) - (a.end ?? Infinity));
    this.row = new Uint8Array(items.length);
    this.reach = new Float64Array(items.length);
    const free = [-Infinity];
    let reach = -Infinity;
    for (let at = 0; at < items.length; at++) {
      const { start, end } = items[at];
      const until = end ?? Infinity;
      let row = free.findIndex((time) => time <= start);
      if (row < 0) {
        row = free.length < this.most ? free.length : this.most - 1;
        free[row] = until;
      } else free[row] = until;
      this.row[at] = row;
      reach = Math.max(reach, until);
      this.reach[at] = reach;
    }
    this.rows = free.length;
  }

  get height() {
    return this.rows * this.size;
  }

  /** [first, last) of the items that may touch [from, to). */
  visible(from, to) {
    return [search(this.reach.length, (at) => this.reach[at] >= from), search(this.items.length, (at) => this.items[at].start >= to)];
  }
}

/** The first index for which `holds`, which must hold for all behind it. */
function search(length, holds) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
