// For tests and the curious (docs/web.md): what is drawn, without reading pixels.

export function hook(page) {
  const { lanes, view, paint, data } = page;
  window.criscope = {
    view,
    /** {key, title, y, height, compact, items, bands} of each lane, from top to bottom; pixels of the canvas. */
    lanes: () => lanes.list.map((lane) => ({
      key: lane.key, title: lane.title, y: lane.y - paint.top, height: lane.height, compact: lane.compact,
      items: [...lane.bands.values()].reduce((sum, band) => sum + band.items.length, 0),
      bands: [...lane.bands.values()].filter((band) => band.items.length).map((band) => band.name),
    })),
    /** An item by its key (`call:ID`), with x, right and y where it is drawn; null when it is not there. */
    item: (key) => {
      const item = lanes.byKey.get(key);
      if (!item) return null;
      const [band] = item.bands;
      const y = band.y - paint.top + (band.row[band.items.indexOf(item)] ?? 0) * band.size + band.size / 2;
      return { ...item, bands: item.bands.map((each) => each.name), x: paint.x(item.start), right: paint.x(item.end ?? data.now()), y };
    },
    /** Keys of the items of a kind that pass the filter. */
    items: (kind) => [...lanes.byKey.values()].filter((item) => item.kind === kind && item.shown).map((item) => item.key),
    /** Draw now: milliseconds until the pixels are there, and how many rectangles it took. */
    draw: () => {
      const begun = performance.now();
      paint.stale = true;
      page.frame();
      // Reading a pixel waits for the drawing.
      paint.context.getImageData(0, 0, 1, 1);
      return { ms: performance.now() - begun, rectangles: paint.drawn };
    },
  };
}
