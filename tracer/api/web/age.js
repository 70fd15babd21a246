// The line above the relists: how long ago the last one began, up to the limit of the kubelet's own check.

/**
 * `relists`: their band; `lasts`: start of each kubelet's last; `limit`: microseconds; `floor`, `tall`: pixels.
 * Draws what lies between `from` and `to`.
 */
export function drawAge(context, x, relists, { lasts, limit, now, floor, tall, from, to, colour }) {
  const height = (age) => floor - Math.min(age / limit, 1) * tall;
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1.25;
  context.beginPath();
  const [first, last] = relists.visible(from, to);
  // Each connection is a kubelet's (or was). A failed relist makes no one younger.
  const runs = new Map();
  const { items } = relists;
  // One before and one behind the window.
  for (let at = Math.max(first - 1, 0); at < Math.min(last + 1, items.length); at++) {
    const item = items[at];
    if (item.activity !== "relist" || item.status === "failed") continue;
    const connection = item.id.slice(0, item.id.lastIndexOf("-"));
    const run = runs.get(connection);
    if (!run) {
      runs.set(connection, { before: item.start, pixel: -Infinity, peak: 0 });
      continue;
    }
    const age = item.start - run.before;
    const [begun, ended] = [x(run.before), x(item.start)];
    run.before = item.start;
    run.peak = Math.max(run.peak, age);
    if (ended - begun >= 1.5) {
      context.moveTo(begun, floor);
      context.lineTo(ended, height(age));
      context.lineTo(ended, floor);
    } else if (ended - run.pixel >= 1) {
      // Peaks that share a pixel become the highest.
      context.fillRect(Math.round(ended), height(run.peak), 1, floor - height(run.peak) + 1);
      run.pixel = ended;
    } else continue;
    run.peak = 0;
  }
  for (const start of lasts) {
    context.moveTo(x(start), floor);
    context.lineTo(x(now), height(now - start));
  }
  context.stroke();
}
