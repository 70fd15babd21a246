"""The routes as a plain page: FastAPI's own pages need scripts from another host."""

from collections.abc import Iterator
from html import escape
from typing import Any

_HEAD = "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"


def page(openapi: dict[str, Any]) -> str:
    """Where to go, every route with its parameters, then every word with its fields."""
    links = "".join(
        f"<li><a href='{escape(path)}'>{escape(path)}</a>" for path, _ in _operations(openapi) if "{" not in path
    )
    routes = "".join(
        f"<h2>GET {escape(path)}</h2><p>{escape(_summary(operation))}{_parameters(operation)}"
        for path, operation in _operations(openapi)
    )
    words = "".join(
        f"<h3 id='{escape(name)}'>{escape(name)}</h3><p>{escape(schema.get('description', ''))}{_fields(schema)}"
        for name, schema in openapi["components"]["schemas"].items()
        if "properties" in schema and not name.endswith("Error")
    )
    title = f"criscope {escape(openapi['info']['version'])}"
    return (
        f"{_HEAD}<title>{title}</title><h1>{title}</h1><p>{escape(openapi['info']['summary'])}"
        f"<ul><li><a href='/'>/</a> the page{links}<li><a href='/openapi.json'>/openapi.json</a> this for programs</ul>"
        f"{routes}<h2>Words and fields</h2>{words}</html>"
    )


def _operations(openapi: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in openapi["paths"].items():
        yield path, methods["get"]


def _summary(operation: dict[str, Any]) -> str:
    return str(operation.get("description") or operation.get("summary", ""))


def _parameters(operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(each['name'])}<td>{escape(_type(each['schema']))}"
        f"<td>{escape(each.get('description') or each['schema'].get('description', ''))}"
        for each in operation.get("parameters", [])
    )
    return f"<table>{rows}</table>" if rows else ""


def _fields(schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(name)}<td>{escape(_type(each))}<td>{escape(each.get('description', ''))}"
        for name, each in schema["properties"].items()
    )
    return f"<table>{rows}</table>"


def _type(schema: dict[str, Any]) -> str:
    """A short name: `string or null`, `list of Stage`, `ok | failed`."""
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "prefixItems" in schema:
        return "tuple"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "object"))
