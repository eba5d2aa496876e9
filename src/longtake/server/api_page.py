"""The routes of a server as a page, made from its OpenAPI description: nothing of it comes from elsewhere."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_METHODS = ("get", "post", "put", "delete")
Schema = Mapping[str, Any]


def api_page(description: Mapping[str, Any]) -> str:
    """HTML without scripts."""
    schemas = description.get("components", {}).get("schemas", {})
    routes = "".join(
        _route(method, path, operation, schemas)
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
        if method in _METHODS
    )
    title = f"{escape(description['info']['title'])} {escape(description['info']['version'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: routes</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/static/api.css">'
        f'<main><h1>{title}: routes</h1><p>The same for programs: <a href="/v1/openapi.json">/v1/openapi.json</a>. '
        f"Live sessions talk over the WebSocket <code>/v1/sessions/ID/live</code>.</p>{routes}</main></html>"
    )


def _route(method: str, path: str, operation: Schema, schemas: Schema) -> str:
    told = operation.get("description") or operation.get("summary", "")
    rows = "".join(_row(*field) for field in _fields(operation, schemas))
    table = f"<table>{rows}</table>" if rows else ""
    heading = f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    return f"<section>{heading}<p>{escape(told)}</p>{table}</section>"


def _fields(operation: Schema, schemas: Schema) -> Iterator[tuple[str, str, str]]:
    """Name, where it stands, and what it may be."""
    for parameter in operation.get("parameters", ()):
        yield parameter["name"], parameter["in"], _kind(parameter["schema"], schemas)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        body = _resolved(content.get("schema", {}), schemas)
        for name, schema in body.get("properties", {}).items():
            needed = "" if name in body.get("required", ()) else ", optional"
            yield name, f"body{needed}", _kind(schema, schemas)


def _row(name: str, where: str, kind: str) -> str:
    return f"<tr><th><code>{escape(name)}</code></th><td>{escape(where)}</td><td>{escape(kind)}</td></tr>"


def _kind(schema: Schema, schemas: Schema) -> str:
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        kinds = " or ".join(_kind(each, schemas) for each in schema["anyOf"])
    elif "enum" in schema:
        kinds = ", ".join(str(value) for value in schema["enum"])
    elif schema.get("type") == "array":
        kinds = f"list of {_kind(schema.get('items', {}), schemas)}"
    else:
        kinds = str(schema.get("type", "anything"))
    default = schema.get("default")
    return kinds if default is None else f"{kinds}; {default} if not given"


def _resolved(schema: Schema, schemas: Schema) -> Schema:
    name = schema.get("$ref", "").rpartition("/")[2]
    return schemas.get(name, {}) if name else schema
