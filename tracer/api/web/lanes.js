// Lanes: where each item is drawn, from top to bottom.

import { Band } from "./band.js";
import { podName } from "./items.js";

const GAP = 7;
const COMPACT_FROM = 40; // pods; more than that and a lane each would be a scroll of many screens

const POD_ACTIVITIES = new Set([
  "sync", "terminate", "lifecycle_hook", "probe", "image_pull", "volume", "device", "exec_api", "unknown",
]);
const TRIGGERS = ["pleg", "config", "probe", "timer"];

/** One lane: bands below each other. */
class Lane {
  constructor(key, group, title, order) {
    this.key = key;
    this.group = group;
    this.title = title;
    this.order = order;
    this.pod = null;
    this.bands = new Map();
    this.trouble = null;
    this.gauge = 0; // pixels above the bands for the PLEG's age
    this.y = 0;
    this.height = 0;
    this.compact = false;
  }

  band(name, most, size) {
    let found = this.bands.get(name);
    if (!found) this.bands.set(name, (found = new Band(name, most, size)));
    return found;
  }
}

export class Lanes {
  constructor() {
    this.byKey = new Map(); // of items
    this.toggled = new Map(); // lane key -> compact, as the user chose
    this.clear();
  }

  clear() {
    this.byKey.clear();
    this.lanes = new Map();
    this.list = [];
    this.height = 0;
    const findings = this.#lane("findings", "", "Findings", 0);
    findings.band("findings", 4, 15);
    this.pleg = this.#lane("pleg", "", "PLEG", 2);
    this.pleg.gauge = 26;
    this.pleg.band("relists", 2, 12);
    this.pleg.band("calls", 2, 9);
    this.pleg.band("events", 1, 9);
    const loop = this.#lane("syncloop", "", "SyncLoop", 3);
    for (const trigger of [...TRIGGERS, "housekeeping"]) loop.band(trigger, 1, 11);
    this.stale = true;
  }

  #lane(key, group, title, order) {
    let found = this.lanes.get(key);
    if (!found) {
      found = new Lane(key, group, title, order);
      this.lanes.set(key, found);
    }
    return found;
  }

  get size() {
    return this.byKey.size;
  }

  /** A new item, or the newer state of one that is there. */
  put(item) {
    this.stale = true;
    const known = this.byKey.get(item.key);
    if (known) {
      const moved = known.start !== item.start || known.activity !== item.activity || known.pod?.uid !== item.pod?.uid;
      const { trigger } = known;
      if (moved) this.#take(known);
      Object.assign(known, item, { trigger: item.trigger ?? trigger });
      if (moved || known.trigger !== trigger) this.#place(known, moved);
      else for (const band of known.bands) band.stale = true;
      return known;
    }
    this.byKey.set(item.key, item);
    this.#place(item, true);
    return item;
  }

  #take(item) {
    for (const band of item.bands) {
      band.items = band.items.filter((each) => each !== item);
      band.stale = true;
    }
  }

  #place(item, anew) {
    if (!anew) this.#take(item);
    item.bands = this.#bands(item);
    for (const band of item.bands) band.add(item);
  }

  #bands(item) {
    const { kind, activity } = item;
    switch (kind) {
      case "finding": return [this.lanes.get("findings").band("findings", 4, 15)];
      case "node_event": return [this.#lane("node", "", "Node", 1).band("node", 2, 13)];
      case "relist": return [this.pleg.band("relists", 2, 12)];
      case "pleg_event": {
        const bands = [this.pleg.band("events", 1, 9), this.lanes.get("syncloop").band("pleg", 1, 11)];
        if (item.pod) bands.unshift(this.#pod(item.pod).band("events", 1, 9));
        return bands;
      }
      case "exit": return [item.pod ? this.#pod(item.pod).band("exits", 2, 11) : this.#other("exits").band("calls", 2, 9)];
      case "sync_pass": {
        const trigger = item.trigger ?? "unknown";
        const loop = this.lanes.get("syncloop").band(TRIGGERS.includes(trigger) ? trigger : "unknown", 1, 11);
        const pass = this.#pod(item.pod).band("passes", 2, 12);
        // A pass that the PLEG triggered stands in the SyncLoop as the event itself.
        return trigger === "pleg" ? [pass] : [pass, loop];
      }
      case "step": return [item.pod ? this.#pod(item.pod).band("steps", 6, 11) : this.#other("steps").band("calls", 4, 11)];
    }
    const bands = [];
    if (activity === "relist" || activity === "pod_relist") bands.push(this.pleg.band("calls", 2, 9));
    else if (activity === "other_client") bands.push(this.#lane("clients", "", "Other clients", 8).band("calls", 4, 8));
    else if (item.pod && POD_ACTIVITIES.has(activity)) bands.push(this.#pod(item.pod).band("calls", 4, 11));
    else if (activity !== "image_pull") bands.push(this.#other(activity ?? "unknown").band("calls", 2, 8));
    if (item.name === "PullImage") bands.push(this.#lane("pulls", "", "Image pulls", 4).band("calls", 5, 11));
    if (activity === "housekeeping") bands.push(this.lanes.get("syncloop").band("housekeeping", 1, 11));
    if (!bands.length) bands.push(this.#other(activity).band("calls", 2, 8));
    return bands;
  }

  #pod(pod) {
    const lane = this.#lane(`pod:${pod.uid}`, "pods", podName(pod), 5);
    if (!lane.pod) {
      lane.pod = pod;
      // From top to bottom: an end, the PLEG's word of it, the pass, its calls, the steps in them.
      lane.band("exits", 2, 11);
      lane.band("events", 1, 9);
      lane.band("passes", 2, 12);
      lane.band("calls", 4, 11);
      lane.band("steps", 6, 11);
    }
    return lane;
  }

  #other(activity) {
    return this.#lane(`activity:${activity}`, "activities", activity.replaceAll("_", " "), 7);
  }

  /**
   * Place the lanes; true when something may have moved. `pod` (namespace/name) leaves out the lanes of other pods,
   * `head` is the room for a lane's name above it, in pixels.
   */
  layout(pod, head) {
    if (!this.stale && this.shownPod === pod && this.head === head) return false;
    this.stale = false;
    this.shownPod = pod;
    this.head = head;
    const lanes = [...this.lanes.values()].filter((lane) => !pod || !lane.pod || lane.title === pod);
    const pods = lanes.filter((lane) => lane.pod).length;
    // Decided when the lane comes, not again: a lane that jumps while one reads it is worse than one too low.
    for (const lane of lanes) lane.trouble ??= trouble(lane);
    lanes.sort((a, b) => a.order - b.order || b.trouble - a.trouble || a.title.localeCompare(b.title));
    let y = 4 + head;
    for (const lane of lanes) {
      lane.compact = this.toggled.get(lane.key) ?? (lane.pod !== null && pods > COMPACT_FROM && !lane.trouble);
      lane.y = y;
      let height = lane.gauge;
      for (const band of lane.bands.values()) {
        band.build();
        band.y = y + (lane.compact ? 1 : height);
        if (band.items.length || !lane.pod) height += band.height;
      }
      lane.height = lane.compact ? 12 : Math.max(height, 16);
      y += lane.height + (lane.compact ? GAP - 2 : GAP) + head;
    }
    this.list = lanes;
    this.height = y;
    return true;
  }

  /** Compact or full, the other way round. */
  toggle(lane) {
    this.toggled.set(lane.key, !lane.compact);
    this.stale = true;
  }
}

// Pods with something open or failed stand first.
function trouble(lane) {
  const passes = lane.bands.get("passes");
  if (!passes) return 0;
  return passes.items.some((item) => item.status === "failed" || item.status === "open") ? 1 : 0;
}
