// Items: one thing on the timeline, whether it came as a compact line or as a row of the stream.

import { SECOND, micros } from "./time.js";

/**
 * {kind, id, key, start, end, name, status, activity, pod, trigger, tone, shown}
 * start, end: microseconds, end null while open; pod: {namespace, name, uid} or null; shown: passes the filter.
 */
function item(kind, id, start, end, name, status, activity, pod) {
  const made = {
    kind, id, key: `${kind}:${id}`, start, end, name, status, activity, pod, trigger: null, tone: 0, shown: true,
  };
  made.tone = tone(made);
  return made;
}

/** Of a line of GET /api/v1/timeline. */
export function fromLine(line, pods) {
  const [kind, id, start, duration, name, status, activity, pod] = line;
  return item(kind, id, start, duration === null ? null : start + duration, name, status, activity,
    pod === null ? null : pods[pod]);
}

/** Of a row as the stream and the lists have it; the words are those of the compact lines. */
export function fromRow(kind, row) {
  const start = micros(row.start ?? row.time);
  let end = row.duration_seconds === null || row.duration_seconds === undefined ? null
    : start + Math.round(row.duration_seconds * SECOND);
  let name = null;
  let status = null;
  let activity = null;
  const pod = row.pod ?? row.pods?.[0] ?? null;
  switch (kind) {
    case "call":
      name = row.method;
      status = row.status ?? NO_STATUS[row.ended_by ?? "open"] ?? "unknown";
      activity = row.activity.kind;
      break;
    case "relist":
      status = row.outcome;
      activity = row.kind === "pod" ? "pod_relist" : "relist";
      break;
    case "sync_pass":
      status = row.outcome;
      activity = row.kind === "terminate" ? "terminate" : "sync";
      break;
    case "step":
      name = row.name;
      status = row.status ?? (end === null ? "open"
        : row.exit_code === null ? (row.signal === null ? "unknown" : "failed") : row.exit_code ? "failed" : "ok");
      activity = row.kind;
      break;
    case "finding":
      name = row.kind;
      status = row.state;
      activity = row.severity;
      break;
    case "pleg_event":
      status = row.type;
      end = start;
      break;
    case "node_event":
      name = row.kind;
      end = start;
      break;
    case "exit":
      status = ["restarted", "acted", "seen"].find((link) => row[link]) ?? "unseen";
      end = Math.max(...["died", "noticed", "handled", "seen", "acted", "restarted"].map((link) =>
        row[link] ? micros(row[link]) : start));
  }
  const made = item(kind, row.id, start, end, name, status, activity, pod);
  if (kind === "sync_pass") made.trigger = row.trigger;
  return made;
}

const NO_STATUS = {
  open: "open", client_cancel: "cancelled_by_client", deadline: "deadline", connection: "connection_lost",
};

/** Colours by name; the style sheet has `--tone-NAME` for each. */
export const TONES = [
  "dim", "relist", "list", "pass", "call", "probe", "pull", "shim", "runc", "cni", "exec", "good", "died", "odd",
  "unknown", "bad", "open", "info", "warning", "critical", "node", "exit",
];
const TONE = Object.fromEntries(TONES.map((name, at) => [name, at]));
export const DIM = TONE.dim;

// Answers that are everyday on a healthy node: what is asked for is gone, or the runtime is older.
const ODD = new Set(["NOT_FOUND", "UNIMPLEMENTED", "CANCELLED", "cancelled_by_client", "ALREADY_EXISTS"]);

function tone(it) {
  switch (it.kind) {
    case "finding": return TONE[it.activity] ?? TONE.info;
    case "node_event": return TONE[it.name === "oom_kill" || it.name === "runtime_stopped" ? "bad" : "node"];
    case "exit": return TONE[it.status === "unseen" ? "bad" : "exit"];
    case "pleg_event":
      return TONE[{ ContainerStarted: "good", ContainerDied: "died" }[it.status] ?? "unknown"];
  }
  if (it.end === null) return TONE.open;
  if (it.status === "failed") return TONE.bad;
  if (it.kind === "relist") return TONE[it.status === "ok" ? "relist" : "unknown"];
  if (it.kind === "sync_pass") return TONE[it.status === "ok" ? "pass" : "unknown"];
  if (it.status === "unknown") return TONE.unknown;
  if (ODD.has(it.status)) return TONE.odd;
  if (it.status !== "OK" && it.status !== "ok") return TONE.bad;
  if (it.kind === "step") return TONE[it.activity] ?? TONE.exec;
  if (it.name === "PullImage") return TONE.pull;
  if (it.activity === "relist" || it.activity === "pod_relist") return TONE.list;
  return TONE[it.activity === "probe" ? "probe" : "call"];
}

const KINDS = {
  call: "call", relist: "relist", pleg_event: "PLEG event", sync_pass: "sync pass", step: "step", finding: "finding",
  node_event: "node event", exit: "exit of a container",
};
export const kindWord = (kind) => KINDS[kind] ?? kind;

/** What stands on the bar. */
export function title(it) {
  switch (it.kind) {
    case "relist": return it.activity === "pod_relist" ? "relist of a pod" : "relist";
    case "sync_pass": return it.activity === "terminate" ? "terminate" : it.trigger ? `sync (${it.trigger})` : "sync";
    case "pleg_event": return it.status ?? "unknown event";
    case "exit": return `exit, ${it.status}`;
    case "call": return it.name ?? "unknown method";
    case "step": return `${it.activity === "exec" ? "" : `${it.activity} `}${it.name ?? "unknown"}`;
    default: return (it.name ?? "unknown").replaceAll("_", " ");
  }
}

export const podName = (pod) => (pod ? `${pod.namespace}/${pod.name}` : null);

/** Path of the item's facts in the interface. */
export function path(kind, id) {
  const list = { call: "calls", relist: "relists", pleg_event: "pleg-events", sync_pass: "sync-passes", step: "steps",
    finding: "findings", node_event: "node-events", exit: "exits" }[kind];
  return `/api/v1/${list}/${encodeURIComponent(id)}`;
}
