"""`python -m dashboards.pictures`: draws what each panel's queries gave, as the live test kept it, one picture each.

Not Grafana's look; it shows whether a query has the right shape, unit and legend. Needs matplotlib.
"""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dashboards import node
from dashboards.build import DASHBOARDS
from dashboards.grafana import COLUMNS, Dashboard, Panel

INCHES = 0.72  # a column of Grafana's grid
ROW_INCHES = 0.34
COLOURS = 64
"""of a picture; a tenth of the size"""
GAP_SECONDS = 5
"""Between two points of a line; Grafana draws none there either."""

EXCERPT = replace(node.DASHBOARD, rows=(node.PLEG, node.FAULT, node.OPEN))
"""Of the node's dashboard, for docs/grafana.md."""

KEPT = Path(".output/dashboards")


def main() -> None:
    """From and to the directory that is given, or `.output/dashboards`."""
    import matplotlib as mpl  # noqa: PLC0415  (only who draws needs it)

    mpl.use("Agg")
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT
    for dashboard in DASHBOARDS:
        shown = json.loads((directory / f"{dashboard.uid}.json").read_text())
        draw(dashboard, shown, directory / f"{dashboard.uid}.png")
        if dashboard.uid == EXCERPT.uid:
            draw(EXCERPT, shown, directory / "node-dashboard.png")


def draw(dashboard: Dashboard, shown: dict[str, list[Any]], picture: Path) -> None:
    """`shown`: by "row / panel" the series of each query, {"labels": ..., "points": [[time, value], ...]}."""
    import matplotlib.pyplot as plt  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415  (matplotlib brings it)

    model = dashboard.model()
    places = {panel["id"]: panel["gridPos"] for panel in model["panels"]}
    bottom = max(place["y"] + place["h"] for place in places.values())
    figure = plt.figure(figsize=(COLUMNS * INCHES, bottom * ROW_INCHES))
    times = [p[0] for queries in shown.values() for query in queries for each in query for p in each["points"]]
    number = 0
    for row in dashboard.rows:
        number += 1
        y = places[number]["y"]
        figure.text(0.01, 1 - (y + 0.8) / bottom, row.title, weight="bold", size=11)
        for panel in row.panels:
            number += 1
            place = places[number]
            box = (
                (place["x"] + 1) / COLUMNS,
                1 - (place["y"] + place["h"] - 1.1) / bottom,
                (place["w"] - 1.4) / COLUMNS,
                (place["h"] - 2.2) / bottom,
            )
            axes = figure.add_axes(box)
            axes.set_xlim(0, max(times) - min(times))
            _panel(axes, panel, shown[f"{row.title} / {panel.title}"], min(times))
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=72)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def _panel(axes: Any, panel: Panel, queries: list[Any], begin: float) -> None:
    axes.set_title(f"{panel.title} [{panel.unit}]", size=9, loc="left")
    axes.tick_params(labelsize=7)
    if panel.kind == "stat":
        axes.axis("off")
        last = [each["points"][-1][1] for query in queries for each in query]
        axes.text(0.5, 0.5, f"{float(last[0]):.4g}" if last else "no data", ha="center", va="center", size=18)
        return
    if panel.kind == "table":
        axes.axis("off")
        axes.text(0, 1, _lines(panel, queries), va="top", size=7, family="monospace")
        return
    lines = []
    for number, query in enumerate(queries):
        legend = panel.queries[number].legend
        for each in query:
            name = legend
            for label, value in each["labels"].items():
                name = name.replace(f"{{{{{label}}}}}", value)
            lines.append((name, [(p[0] - begin, float(p[1])) for p in each["points"]]))
    if not lines:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
    elif panel.kind == "heatmap":
        _heat(axes, lines)
    else:
        lines.sort(key=lambda line: -max(value for _, value in line[1]))
        for name, points in lines[:8]:
            axes.plot(*zip(*_with_gaps(points), strict=True), linewidth=1.2, label=name[:34])
        axes.legend(fontsize=7, loc="upper left", framealpha=0.6)
        for value, colour in panel.steps:
            if value is not None and colour != "transparent":
                axes.axhline(value, color=colour, linewidth=0.8, linestyle="--")
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(visible=True, alpha=0.3)


def _with_gaps(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found = points[:1]
    for point in points[1:]:
        if point[0] - found[-1][0] > GAP_SECONDS:
            found.append((point[0], float("nan")))
        found.append(point)
    return found


def _heat(axes: Any, lines: list[tuple[str, list[tuple[float, float]]]]) -> None:
    """Buckets are cumulative: what is in one is its value less that of the one below."""
    below: dict[float, float] = {}
    names = sorted((name for name, _ in lines), key=float)
    for height, name in enumerate(names):
        points = dict(dict(lines)[name])
        own = {time: value - below.get(time, 0.0) for time, value in points.items()}
        below = points
        inside = [(time, value) for time, value in own.items() if value > 0]
        if inside:
            times, counts = zip(*inside, strict=True)
            axes.scatter(times, [height] * len(times), c=counts, cmap="Oranges", vmin=0, marker="s", s=9)
    axes.set_yticks(range(len(names)), names)


def _lines(panel: Panel, queries: list[Any]) -> str:
    if not panel.columns:
        seen = {tuple(sorted(each["labels"].items())) for query in queries for each in query}
        return "\n".join(
            " ".join(value for key, value in labels if key not in ("__name__", "job")) for labels in sorted(seen)
        )
    values = [query[0]["points"][-1][1] if query else "no data" for query in queries]
    return "\n".join(f"{column.title:>16}  {value}" for column, value in zip(panel.columns, values, strict=True))


if __name__ == "__main__":
    main()
