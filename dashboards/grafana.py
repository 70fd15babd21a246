"""Dashboards as Grafana reads them (dashboard schema 39, Grafana 10.3 and newer), from a short description.

Expressions are written as one types them; `Dashboard.model` narrows each selector of ours to the chosen nodes.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Steps = tuple[tuple[float | None, str], ...]
"""(from this value on, colour), the first from None"""
Link = tuple[str, str]
"""(title, address)"""

SCHEMA = 39
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

DOCS = "https://example.net/criscope/docs"
"""Stands for the place where the docs of this repository are served; docs/grafana.md says how to put yours in."""

_OURS = re.compile(r"(?<![\w:])((?:instance\w*:)?criscope_[\w:]+|ALERTS|up)(?![\w:(=])(\{)?")


def scoped(expr: str, selector: str) -> str:
    """`expr` with `selector` in each selector of ours: "rate(criscope_x[5m])" -> "rate(criscope_x{SELECTOR}[5m])"."""
    return _OURS.sub(lambda m: f"{m[1]}{{{selector}{', ' if m[2] else '}'}", expr)


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL; `legend` names each series by its labels, "{{method}}"."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table: the only value of a query, one a node."""

    title: str
    unit: str
    expr: str
    steps: Steps = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """`width` of 24 columns, `height` in Grafana's units of 30 pixels."""

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...] = ()
    kind: Literal["timeseries", "stat", "heatmap", "table"] = "timeseries"
    width: int = 12
    height: int = 8
    steps: Steps = ()
    """colours of a number; on a time series, dashed lines"""
    stacked: bool = False
    maximum: float | None = None
    columns: tuple[Column, ...] = ()
    """of a table of nodes, instead of queries"""
    links: tuple[Link, ...] = ()
    """where a value leads to"""

    def expressions(self) -> list[str]:
        return [query.expr for query in self.queries] + [column.expr for column in self.columns]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """`source` None: a text that the viewer types; else what Prometheus knows: label_values(METRIC, LABEL)."""

    name: str
    label: str
    description: str
    source: str | None = None
    text: str = ""
    multiple: bool = False
    every: bool = True
    """whether All can be chosen; it is the default then, and also takes what lacks the label"""

    def model(self) -> Json:
        base: Json = {"name": self.name, "label": self.label, "description": self.description, "hide": 0}
        if self.source is None:
            current = {"text": self.text, "value": self.text}
            return base | {"type": "textbox", "query": self.text, "current": current, "options": [current]}
        model = base | {
            "type": "query",
            "datasource": DATASOURCE,
            "definition": self.source,
            "query": {"query": self.source, "refId": self.name},
            "refresh": 2,  # when the time range changes: nodes come and go
            "sort": 1,
            "multi": self.multiple,
            "includeAll": self.every,
        }
        if self.every:
            value: Any = ["$__all"] if self.multiple else "$__all"
            model |= {"allValue": ".*", "current": {"text": ["All"] if self.multiple else "All", "value": value}}
        return model


@dataclass(frozen=True, slots=True)
class Annotation:
    """A mark at each time at which `expr` has a value."""

    name: str
    expr: str
    title: str
    colour: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page of Grafana."""

    uid: str
    title: str
    description: str
    selector: str
    """what narrows each selector to the chosen nodes"""
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    annotations: tuple[Annotation, ...] = ()
    links: tuple[Link, ...] = field(default=())

    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels

    def model(self) -> Json:
        """The JSON model: what the file holds and Grafana imports."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["criscope"],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,  # one crosshair over all panels
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "refresh": "30s",
            "templating": {"list": [_datasource(), *(variable.model() for variable in self.variables)]},
            "annotations": {"list": [self._annotation(each) for each in self.annotations]},
            "links": [_siblings(), *(_link(title, url) for title, url in self.links)],
            "panels": self._placed(),
        }

    def text(self) -> str:
        return json.dumps(self.model(), indent=1, ensure_ascii=False) + "\n"

    def _placed(self) -> list[Json]:
        """Left to right, then down, each row under its heading."""
        models: list[Json] = []
        top = 0
        for row in self.rows:
            models.append(_heading(len(models) + 1, row.title, top))
            top += 1
            left = height = 0
            for panel in row.panels:
                if left + panel.width > COLUMNS:
                    top, left, height = top + height, 0, 0
                place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
                models.append(self._panel(panel) | {"id": len(models) + 1, "gridPos": place})
                left, height = left + panel.width, max(height, panel.height)
            top += height
        return models

    def _panel(self, panel: Panel) -> Json:
        defaults: Json = {"unit": panel.unit}
        custom: Json = {}
        options: Json = {}
        if panel.steps:
            defaults["thresholds"] = _thresholds(panel.steps)
        if panel.maximum is not None:
            defaults |= {"min": 0, "max": panel.maximum}
        if panel.links:
            defaults["links"] = [{"title": title, "url": url} for title, url in panel.links]
        if panel.kind == "timeseries":
            custom = {"lineWidth": 1, "fillOpacity": 60 if panel.stacked else 8, "showPoints": "never"}
            custom["stacking"] = {"mode": "normal" if panel.stacked else "none", "group": "A"}
            if panel.steps:
                custom["thresholdsStyle"] = {"mode": "dashed"}
            options = {
                "legend": {
                    "displayMode": "table",
                    "placement": "right",
                    "calcs": ["lastNotNull", "max"],
                    "showLegend": True,
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        elif panel.kind == "stat":
            options = {
                "colorMode": "background" if panel.steps else "none",
                "graphMode": "area",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        elif panel.kind == "heatmap":
            options = {
                "calculate": False,
                "yAxis": {"unit": panel.unit},
                "color": {"mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "steps": 32},
                "cellGap": 1,
                "tooltip": {"mode": "single", "showColorScale": True},
                "legend": {"show": True},
            }
        model: Json = {
            "type": panel.kind,
            "title": panel.title,
            "description": panel.description,
            "datasource": DATASOURCE,
            "fieldConfig": {"defaults": defaults | ({"custom": custom} if custom else {}), "overrides": []},
            "options": options,
            "targets": [
                self._target(panel, query, chr(ord("A") + number)) for number, query in enumerate(panel.queries)
            ],
        }
        return self._table(panel, model) if panel.kind == "table" else model

    def _table(self, panel: Panel, model: Json) -> Json:
        """One line a node, of instant queries that are joined by their labels."""
        letters = [chr(ord("A") + number) for number in range(len(panel.columns))]
        names = {f"Value #{letter}": column.title for letter, column in zip(letters, panel.columns, strict=True)}
        if panel.columns:
            model["targets"] = [
                self._target(panel, Query(column.expr), letter)
                for letter, column in zip(letters, panel.columns, strict=True)
            ]
            model["fieldConfig"]["overrides"] = [_column(column) for column in panel.columns]
        hidden = dict.fromkeys(("Time", "Value", "__name__", "job", "alertstate"), True)
        model["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names, "indexByName": {}}},
        ]
        model["options"] = {
            "showHeader": True,
            "sortBy": [{"displayName": c.title, "desc": False} for c in panel.columns[:1]],
        }
        return model

    def _target(self, panel: Panel, query: Query, letter: str) -> Json:
        instant = panel.kind == "table"
        form = {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series")
        return {
            "refId": letter,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": scoped(query.expr, self.selector),
            "legendFormat": query.legend or "__auto",
            "format": form,
            "instant": instant,
            "range": not instant,
        }

    def _annotation(self, annotation: Annotation) -> Json:
        return {
            "name": annotation.name,
            "datasource": DATASOURCE,
            "enable": True,
            "iconColor": annotation.colour,
            "expr": scoped(annotation.expr, self.selector),
            "step": "30s",
            "titleFormat": annotation.title,
            "textFormat": "{{instance}}",
            "tagKeys": "kind",
            "useValueForTime": False,
        }


def _datasource() -> Json:
    return {
        "name": "datasource", "label": "Data source", "description": "The Prometheus that scrapes criscope.", "hide": 0,
        "type": "datasource", "query": "prometheus", "refresh": 1, "multi": False, "includeAll": False,
    }  # fmt: skip


def _siblings() -> Json:
    return _link("criscope", "") | {"type": "dashboards", "tags": ["criscope"], "includeVars": True, "asDropdown": True}


def _link(title: str, url: str) -> Json:
    return {
        "title": title, "type": "link", "url": url, "icon": "external link", "tooltip": title, "tags": [],
        "asDropdown": False, "targetBlank": bool(url), "includeVars": False, "keepTime": not url,
    }  # fmt: skip


def _heading(number: int, title: str, top: int) -> Json:
    place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {"type": "row", "id": number, "title": title, "collapsed": False, "panels": [], "gridPos": place}


def _thresholds(steps: Steps) -> Json:
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def _column(column: Column) -> Json:
    properties: list[Json] = [{"id": "unit", "value": column.unit}]
    if column.steps:
        properties.append({"id": "thresholds", "value": _thresholds(column.steps)})
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
