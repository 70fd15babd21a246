"""Writes the parts of docs/rest.md that repeat the OpenAPI document: `python -m tests.docs.rest` after a change.

A test compares the page with what this makes, so the two cannot part.
"""

import re
from pathlib import Path
from typing import Any

from tracer.agent import Replayed
from tracer.api.app import create_app
from tracer.outputs.hub import Hub
from tracer.outputs.usage import Usage
from tracer.pipeline import Pipeline
from tracer.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
ROUTES = "<!-- routes -->"
WORDS = "<!-- words -->"
END = "<!-- end -->"


def openapi() -> dict[str, Any]:
    with Store(None) as store:
        live = Replayed(Pipeline(0), "")
        return create_app(
            store, live, lambda _: (b"", ""), Usage(), Hub(), None, version="0", hosts=frozenset()
        ).openapi()


def routes(document: dict[str, Any]) -> str:
    text = []
    for path, methods in document["paths"].items():
        for verb, route in methods.items():
            text += [f"### `{verb.upper()} {path}`", "", route.get("description", "").strip(), ""]
            if route.get("parameters"):
                text += ["| parameter | type | meaning |", "|---|---|---|"]
                text += [_parameter(each) for each in route["parameters"]]
                text.append("")
    return "\n".join(text)


def words(document: dict[str, Any]) -> str:
    text = []
    for name, schema in sorted(document["components"]["schemas"].items()):
        if name.startswith(("HTTP", "Validation")):
            continue
        text += [f"### {name}", "", schema.get("description", "").strip(), ""]
        text += ["| field | type | meaning |", "|---|---|---|"]
        for field, what in schema.get("properties", {}).items():
            text.append(f"| `{field}` | {_type(what)} | {what.get('description', '')} |")
        text.append("")
    return "\n".join(text)


def page(text: str) -> str:
    """The page `text` with its generated parts made anew."""
    document = openapi()
    for mark, made in ((ROUTES, routes(document)), (WORDS, words(document))):
        text = re.sub(
            f"{mark}.*?{END}",
            lambda _, mark=mark, made=made: f"{mark}\n\n{made}\n{END}",
            text,
            count=1,
            flags=re.DOTALL,
        )
    return text


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    meaning = parameter.get("description") or schema.get("description") or ""
    examples = [*schema.get("examples", []), *parameter.get("examples", [])]
    if examples:
        meaning = f"{meaning} E.g. {', '.join(f'`{each}`' for each in examples)}.".strip()
    return f"| `{parameter['name']}` | {_type(schema).removesuffix(' or null')} | {meaning} |"


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "enum" in schema:
        return " / ".join(schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if "prefixItems" in schema:
        return "tuple"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "any"))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
