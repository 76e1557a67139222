"""The reference of the API at /docs: a page made on the server from the OpenAPI document, without scripts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

EXAMPLES: Mapping[tuple[str, str], str] = {
    ("get", "/v1/search"): "'BASE/v1/search?q=nocturnal+hunter&k=3'",
    ("post", "/v1/search"): """BASE/v1/search --json '{"query": "nocturnal hunter", "k": 3}'""",
    ("post", "/v1/search/batch"): """BASE/v1/search/batch --json '{"queries": ["one", "two"]}'""",
    ("post", "/v1/embeddings"): """BASE/v1/embeddings --json '{"model": "COLLECTION", "input": ["a text"]}'""",
    ("post", "/v1/similar"): """BASE/v1/similar --json '{"id": "ID"}'""",
    ("post", "/v1/documents"): """BASE/v1/documents --json '{"documents": [{"id": "ID", "text": "TEXT"}]}'""",
    ("delete", "/v1/documents/{id}"): "-X DELETE BASE/v1/documents/ID",
    ("get", "/v1/fields/values"): "'BASE/v1/fields/values?field=FIELD'",
}
"""The arguments of curl. Other GET routes need only their address."""
LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "maxLength": "at most {} characters",
    "maxItems": "at most {} items",
}

router = APIRouter()


@router.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
async def reference(request: Request) -> HTMLResponse:
    """Show the reference of the API."""
    base, token = str(request.base_url).rstrip("/"), request.app.state.settings.token is not None
    return HTMLResponse(render(request.app.openapi(), base, token))


def render(document: Mapping[str, Any], base: str, token: bool) -> str:
    """Return the reference as HTML. `base` is the address in the examples. With `token`, they send one."""
    templates = Environment(
        loader=PackageLoader("retriever.serve"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters |= {"type": type_of, "code": _code}
    operations = list(_operations(document, base, token))
    tags = list(dict.fromkeys(operation["tag"] for operation in operations))
    schemas = document["components"]["schemas"]
    return templates.get_template("reference.html").render(
        version=document["info"]["version"],
        groups=[(tag, [operation for operation in operations if operation["tag"] == tag]) for tag in tags],
        schemas={name: {**schema, "rows": list(_fields(schema))} for name, schema in sorted(schemas.items())},
    )


def _operations(document: Mapping[str, Any], base: str, token: bool) -> Iterator[dict[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            by_path = re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), path) if method == "get" else ""
            example = EXAMPLES.get((method, path)) or (by_path and f"BASE{by_path}")
            header = "-H 'Authorization: Bearer TOKEN' " if token and path.startswith(("/v1", "/metrics")) else ""
            parameters = [
                {"name": one["name"], "required": one["required"], "schema": one["schema"]}
                | {"description": one.get("description") or one["schema"].get("description", ""), "place": one["in"]}
                for one in operation.get("parameters", ())
            ]
            statuses = operation["responses"]
            replies = [media["schema"] for media in statuses["200"].get("content", {}).values() if media.get("schema")]
            yield {
                "id": f"{method}-{path.strip('/').replace('/', '-').replace('{', '').replace('}', '')}",
                "method": method.upper(),
                "path": path,
                "tag": operation.get("tags", ["other"])[0],
                "description": operation.get("description", ""),
                "parameters": parameters,
                "body": body,
                "reply": replies[0] if replies and replies[0].get("type") != "string" else None,
                "returns": statuses["200"]["description"],
                "errors": sorted(status for status in statuses if int(status) >= 400),
                "example": f"curl -s {header}{example.replace('BASE', base)}" if example else "",
            }


def _fields(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield {
            "name": name,
            "required": name in required,
            "schema": field,
            "description": field.get("description", ""),
        }


def type_of(schema: Mapping[str, Any]) -> Markup:
    """Return the type of a value in words, with links to the schemas that it refers to."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return Markup('<a href="#{0}">{0}</a>').format(name)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return Markup(" or ").join(type_of(one) for one in choices)
    if "const" in schema or "enum" in schema:
        return Markup(", ").join(
            Markup("<code>{}</code>").format(one) for one in schema.get("enum", [schema.get("const")])
        )
    limits = [words.format(f"{int(schema[key]):,}") for key, words in LIMITS.items() if key in schema]
    kind = schema.get("type", "any value")
    own = (
        Markup("list of {}").format(type_of(schema["items"])) if kind == "array" and "items" in schema else escape(kind)
    )
    return own + (f" ({', '.join(limits)})" if limits else "")


def _code(text: str) -> Markup:
    """Return text as HTML, with what is between backticks as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )
