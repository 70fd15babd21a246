// Wheel, drag, pinch and keys on the lanes.

const STEP = 0.15; // of the window, an arrow key
const ZOOM = 1.4; // a key
const MOVED = 5; // pixels; less is a click

/** `act`: {hover(x, y), click(x, y), leave(), key(name) -> handled}. */
export function listen(element, paint, view, act) {
  const pointers = new Map();
  let start = null;
  const place = (event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  element.addEventListener("wheel", (event) => {
    const across = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (event.ctrlKey || event.metaKey || event.altKey) {
      event.preventDefault();
      view.zoom(Math.exp(event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), paint.time(place(event)[0]));
    } else if (across || event.shiftKey) {
      event.preventDefault();
      view.pan((across ? event.deltaX : event.deltaY) / (paint.width - paint.left));
    } else if (place(event)[0] >= paint.left) {
      // Over the lanes the wheel zooms, as in other timelines; over their names it scrolls.
      event.preventDefault();
      view.zoom(Math.exp(event.deltaY * 0.0015), paint.time(place(event)[0]));
    }
  }, { passive: false });

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button")) return;
    pointers.set(event.pointerId, place(event));
    start = { at: place(event), moved: false, from: view.from, to: view.to, scroll: element.scrollTop };
    if (pointers.size === 2) start.pinch = pinch();
  });
  const pinch = () => {
    const [a, b] = [...pointers.values()];
    return { apart: Math.max(Math.abs(a[0] - b[0]), 20), time: paint.time((a[0] + b[0]) / 2), span: view.span };
  };
  element.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType === "mouse") act.hover(x, y);
      return;
    }
    pointers.set(event.pointerId, [x, y]);
    if (pointers.size === 2 && start.pinch) {
      const next = pinch();
      view.zoom((start.pinch.span * start.pinch.apart) / next.apart / view.span, start.pinch.time);
      start.moved = true;
      return;
    }
    const [dx, dy] = [x - start.at[0], y - start.at[1]];
    if (!start.moved && Math.hypot(dx, dy) < MOVED) return;
    if (!start.moved) {
      start.moved = true;
      element.setPointerCapture(event.pointerId);
      element.dataset.dragging = "";
      act.leave();
    }
    if (Math.abs(dx) > 2) view.follow = false;
    const shift = (dx / (paint.width - paint.left)) * (start.to - start.from);
    element.scrollTop = start.scroll - dy;
    if (!view.follow) view.show(start.from - shift, start.to - shift);
  });
  const end = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    delete element.dataset.dragging;
    if (event.type === "pointerup" && !start.moved) act.click(...place(event));
    if (pointers.size === 1) start = { at: [...pointers.values()][0], moved: true, from: view.from, to: view.to, scroll: element.scrollTop };
  };
  element.addEventListener("pointerup", end);
  element.addEventListener("pointercancel", end);
  element.addEventListener("pointerleave", () => act.leave());

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = element.contains(event.target);
    // Single letters act only where nothing is typed: on the timeline, or with the focus nowhere.
    if (!inside && event.target !== document.body) {
      if (event.key === "Escape" && act.key("Escape")) event.preventDefault();
      return;
    }
    const middle = (view.from + view.to) / 2;
    switch (event.key) {
      case "ArrowLeft": view.pan(event.shiftKey ? -0.9 : -STEP); break;
      case "ArrowRight": view.pan(event.shiftKey ? 0.9 : STEP); break;
      case "ArrowUp": element.scrollTop -= 60; break;
      case "ArrowDown": element.scrollTop += 60; break;
      case "PageUp": element.scrollTop -= element.clientHeight * 0.9; break;
      case "PageDown": element.scrollTop += element.clientHeight * 0.9; break;
      case "+": case "=": view.zoom(1 / ZOOM, middle); break;
      case "-": case "_": view.zoom(ZOOM, middle); break;
      default:
        if (event.target.closest("button, a") && (event.key === "Enter" || event.key === " ")) return;
        if (!act.key(event.key)) return;
    }
    event.preventDefault();
  });
}
