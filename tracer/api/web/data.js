// What the interface tells: windows of lines, and rows as they come.

import { fromLine, fromRow } from "./items.js";
import { SECOND, micros, rfc3339 } from "./time.js";

const LINES = 20_000; // as many as the interface gives
const MOST = 60_000; // items kept while following; more, and the window is read again
const PASS_PAGES = 3;
const EAGER_MS = 250;
const AGAIN_MS = 3000;
const LATE_MS = 20_000; // a window of a day on a busy node takes a second or two
const STEPS_MOST = 1000;

export class Data {
  /** `arrived(error or null)` is called after a window was read; `told(item, row)` for each row of the stream. */
  constructor(lanes, arrived, told) {
    this.lanes = lanes;
    this.arrived = arrived;
    this.told = told;
    this.live = false;
    this.offset = 0; // of the server's clock, microseconds
    this.end = null; // of a replay
    this.loaded = null; // {from, to, thinned, total}; to is Infinity while the stream adds what comes
    this.loading = null;
    this.timer = 0;
    this.waiting = []; // rows that came while a window was under way
    this.state = "connecting";
    this.source = null;
    this.losses = 0; // rows the stream left out
  }

  now() {
    return this.end ?? Date.now() * 1000 + this.offset;
  }

  /** Learn the server's clock, and whether it stands. */
  async begin() {
    const health = await ask("/healthz");
    this.live = !String(health.source).startsWith("capture");
    const { now } = await ask("/api/v1/timeline?since=1s&limit=1");
    if (this.live) this.offset = micros(now) - Date.now() * 1000;
    else this.end = micros(now);
    this.state = this.live ? "connecting" : "replay";
    return health;
  }

  /** Read the window soon, unless what is there is enough. */
  want(from, to) {
    this.wanted = [from, to];
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      if (this.#enough()) return;
      if (this.loading) this.want(...this.wanted);
      else this.load(...wider(...this.wanted));
    }, EAGER_MS);
  }

  #enough() {
    const [from, to] = this.wanted;
    const have = this.loaded;
    return have && from >= have.from && Math.min(to, this.now()) <= have.to && this.lanes.size <= MOST
      && !(have.thinned && to - from < (Math.min(have.to, this.now()) - have.from) / 3);
  }

  async load(from, to) {
    this.loading?.abort();
    const abort = (this.loading = new AbortController());
    this.waiting = [];
    const since = Math.max(0, from);
    const tail = to >= this.now();
    const until = tail ? "" : `&until=${rfc3339(Math.max(to, since + 1))}`;
    try {
      const found = await ask(`/api/v1/timeline?since=${rfc3339(since)}${until}&limit=${LINES}`, abort.signal);
      if (this.live) this.offset = micros(found.now) - Date.now() * 1000;
      const came = this.waiting;
      this.waiting = [];
      this.loading = null;
      this.lanes.clear();
      for (const line of found.items) this.lanes.put(fromLine(line, found.pods));
      if (tail) for (const item of came) this.lanes.put(item);
      this.loaded = { from, to: tail ? Infinity : to, thinned: found.thinned, total: found.total };
      this.arrived(null);
      await this.#triggers(since, Math.max(to, since + 1), abort.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.loading = null;
      this.arrived(error);
      this.timer ||= setTimeout(() => {
        this.timer = 0;
        this.load(from, to);
      }, AGAIN_MS);
    }
  }

  // The lines do not say what a sync pass was triggered by.
  async #triggers(from, to, signal) {
    let cursor = "";
    for (let page = 0; page < PASS_PAGES; page++) {
      const found = await ask(
        `/api/v1/sync-passes?since=${rfc3339(from)}&until=${rfc3339(to)}&limit=1000${cursor}`, signal);
      for (const row of found.items) {
        const item = fromRow("sync_pass", row);
        if (this.lanes.byKey.has(item.key)) this.lanes.put(item);
      }
      this.arrived(null);
      if (!found.next) return;
      cursor = `&cursor=${encodeURIComponent(found.next)}`;
    }
  }

  /** Take rows as they come, for as long as the page is open. */
  follow() {
    if (!this.live || this.source) return;
    const source = (this.source = new EventSource("/api/v1/stream"));
    let before = false;
    source.onopen = () => {
      this.state = "live";
      // What came in between is in no event.
      if (before) this.#again();
      before = true;
    };
    source.onerror = () => {
      this.state = "reconnecting";
    };
    for (const kind of ["call", "relist", "pleg_event", "sync_pass", "step", "finding", "node_event", "exit"]) {
      source.addEventListener(kind, (event) => {
        const row = JSON.parse(event.data);
        let item = fromRow(kind, row);
        if (this.loading) this.waiting.push(fromRow(kind, row));
        // Behind a window of the past, what comes now would stand after a hole.
        if (this.loaded?.to === Infinity || this.lanes.byKey.has(item.key)) item = this.lanes.put(item);
        this.told(item, row);
      });
    }
    source.addEventListener("lost", (event) => {
      this.losses += Number(event.data) || 0;
      this.#again();
    });
  }

  #again() {
    if (this.loaded && !this.loading) this.load(this.loaded.from, Math.min(this.loaded.to, this.now() + SECOND));
  }
}

// Some room on both sides, so that a small pan needs nothing.
function wider(from, to) {
  return [from - (to - from) / 2, to + (to - from) / 2];
}

/** JSON of a GET. Raises an Error with the problem's own words. */
export async function ask(path, signal) {
  let answer;
  try {
    const late = AbortSignal.timeout(LATE_MS);
    answer = await fetch(path, { signal: signal ? AbortSignal.any([signal, late]) : late, headers: { accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("criscope does not answer; is it still running?");
  }
  const body = await answer.json().catch(() => null);
  if (!answer.ok && !(path === "/healthz" && body?.source)) {
    throw new Error(body?.detail ?? `criscope answered ${answer.status}`);
  }
  return body;
}

/** The steps of a call, in order; found by its pod and time, as no list is by call. */
export async function stepsOf(call) {
  const from = micros(call.start);
  const to = from + (call.duration_seconds === null ? 3600 : call.duration_seconds + 0.001) * SECOND;
  const pod = call.pod ? `&pod=${encodeURIComponent(call.pod.name)}&namespace=${encodeURIComponent(call.pod.namespace)}` : "";
  const found = await ask(`/api/v1/steps?since=${rfc3339(from)}&until=${rfc3339(to)}&limit=${STEPS_MOST}${pod}`);
  return found.items.filter((step) => step.call === call.id).reverse();
}
