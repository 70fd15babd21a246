// Elements from text: what comes from the wire is never parsed as HTML.

/** An element; `props` are attributes, `on...` listeners, `class`, or `null` to leave one out. */
export function h(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Replace what is in `element`; the focus stays on the same button, counted from the first. */
export function renew(element, ...children) {
  const at = element.contains(document.activeElement) ? [...element.querySelectorAll(STOPS)].indexOf(document.activeElement) : -1;
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (at >= 0) element.querySelectorAll(STOPS)[at]?.focus({ preventScroll: true });
}
const STOPS = "button, a, select";

/** The same, but only when the text would differ: screen readers and selections stay calm. */
export function fill(element, ...children) {
  const made = h("div", null, ...children);
  if (made.textContent === element.dataset.shown) return;
  element.dataset.shown = made.textContent;
  renew(element, [...made.childNodes]);
}

/** Say something to those who cannot see the canvas. */
export function say(text) {
  byId("said").textContent = text;
}
