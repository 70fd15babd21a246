// Dark and light: as the system says, until one is chosen.

import { byId } from "./dom.js";

const KEY = "criscope-theme";
const WORDS = { auto: "Theme: auto", dark: "Theme: dark", light: "Theme: light" };

/** `changed` is called when the colours may be others. */
export function theme(changed) {
  const button = byId("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const show = (name) => {
    const system = systemDark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = name === "auto" ? system : name;
    button.textContent = WORDS[name];
    changed();
  };
  let now = stored();
  show(now);
  button.addEventListener("click", () => {
    const names = Object.keys(WORDS);
    now = names[(names.indexOf(now) + 1) % names.length];
    try {
      localStorage.setItem(KEY, now);
    } catch {
      // Storage may be forbidden; the choice then lasts as long as the page.
    }
    show(now);
  });
  systemDark.addEventListener("change", () => show(now));
}

function stored() {
  try {
    const name = localStorage.getItem(KEY);
    return name in WORDS ? name : "auto";
  } catch {
    return "auto";
  }
}
