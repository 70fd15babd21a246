// Times are Unix microseconds (exact in a double until the year 2255); durations microseconds.

export const SECOND = 1e6;

/** Microseconds of RFC 3339 in UTC with any digits of a second. */
export function micros(text) {
  const whole = Date.parse(`${text.slice(0, 19)}Z`) * 1000;
  const digits = /^\.(\d+)/.exec(text.slice(19));
  return whole + (digits ? Number(digits[1].padEnd(6, "0").slice(0, 6)) : 0);
}

/** RFC 3339 of microseconds, for the interface. */
export function rfc3339(us) {
  const whole = Math.floor(us / SECOND);
  return `${new Date(whole * 1000).toISOString().slice(0, 19)}.${String(Math.floor(us - whole * SECOND)).padStart(6, "0")}Z`;
}

/** `02:14:07.120`, in UTC; `digits` of the second. */
export function clock(us, digits = 3) {
  const text = rfc3339(us).slice(11, 26);
  return digits ? text.slice(0, 9 + digits) : text.slice(0, 8);
}

export const day = (us) => rfc3339(us).slice(0, 10);

/** A duration as people say it: `840 µs`, `12.3 ms`, `4.05 s`, `3 min 20 s`; null is unknown. */
export function span(us) {
  if (us === null || us === undefined || Number.isNaN(us)) return "unknown";
  const size = Math.abs(us);
  if (size < 1000) return `${Math.round(us)} µs`;
  if (size < SECOND) return `${short(us / 1000)} ms`;
  if (size < 100 * SECOND) return `${short(us / SECOND)} s`;
  const seconds = Math.round(us / SECOND);
  if (size < 3600 * SECOND) return `${Math.trunc(seconds / 60)} min ${Math.abs(seconds % 60)} s`;
  return `${Math.trunc(seconds / 3600)} h ${Math.trunc(Math.abs(seconds % 3600) / 60)} min`;
}

function short(value) {
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export const ofSeconds = (seconds) => (seconds === null || seconds === undefined ? "unknown" : span(seconds * SECOND));

/** Microseconds of `0.5`, `500ms`, `2s`, `1m`; null when it is empty, NaN when it is none. */
export function duration(text) {
  if (!text.trim()) return null;
  const found = /^\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s|m|min)?\s*$/.exec(text);
  if (!found) return NaN;
  return Number(found[1]) * { us: 1, µs: 1, ms: 1000, s: SECOND, m: 60 * SECOND, min: 60 * SECOND }[found[2] ?? "s"];
}

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 1.5e7, 3e7, 6e7,
  1.2e8, 3e8, 6e8, 9e8, 1.8e9, 3.6e9, 7.2e9, 1.44e10, 2.16e10, 4.32e10, 8.64e10,
];

/** Round moments of the window: {step, first, label(us)}, at least `room` pixels apart. */
export function ticks(from, to, width, room = 92) {
  const wanted = ((to - from) / width) * room;
  const step = STEPS.find((each) => each >= wanted) ?? STEPS.at(-1);
  const digits = step >= SECOND ? 0 : step >= 1000 ? 3 : 6;
  return { step, first: Math.ceil(from / step) * step, label: (us) => clock(us, digits) };
}
