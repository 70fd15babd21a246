// Elements from text: what comes from the wire is never parsed as HTML.

/** An element; `props` are attributes, `on...` listeners, `class`, or `null` to leave one out. */
export function h(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Replace what is in `element`, but only when its text would differ: screen readers and selections stay calm. */
export function fill(element, ...children) {
  const made = h("div", null, ...children);
  if (made.innerText === element.dataset.shown && element.dataset.shown !== undefined) return;
  element.dataset.shown = made.innerText;
  element.replaceChildren(...made.childNodes);
}

/** Say something to those who cannot see the canvas. */
export function say(text) {
  byId("said").textContent = text;
}
