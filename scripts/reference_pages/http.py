"""The page on the HTTP API: each endpoint with what it takes and answers, then the structures."""

import json
from collections.abc import Iterable
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import msgspec

from reference_pages.markdown import code, codes, document, number, sentence, table
from reference_pages.sources import comments
from rota import messages
from rota.core.access import ALLOWED, Scope
from rota.core.flows import model as flows
from rota.core.schedules import model as schedules
from rota.core.workflow import decisions, events
from rota.core.workflow.definition import model
from rota.core.workflow.functions import model as functions
from rota.gateways.http import openapi
from rota.gateways.http.endpoints import ENDPOINTS
from rota.gateways.http.resources import health, operations
from rota.gateways.http.routing.endpoint import HttpEndpoint

Schema = dict[str, Any]

# Where they are defined.
STRUCTURES = (
    messages,
    *(import_module(one.name) for one in walk_packages(messages.__path__, "rota.messages.")),
    health,
    operations,
    events,
    decisions,
    flows,
    functions,
    schedules,
)
LARGEST = 2**53  # what every JSON reader can take; no limit of ours


def page() -> str:
    described = openapi.document(ENDPOINTS)
    nouns = dict.fromkeys(endpoint.noun for endpoint in ENDPOINTS)
    return document(
        "# HTTP API",
        "The same as a machine reads it: `GET /openapi.json`; to browse: `/docs` on a running "
        "coordinator. Bodies are JSON whatever their content type says. Times and durations are "
        "integers in milliseconds. A field or parameter that is not listed here is refused by its "
        "name. What each error code means stands in [Errors](errors.md).",
        "*Scopes* are those of a token that open an endpoint; on loopback none is needed. "
        "Every endpoint that needs a scope may also answer `invalid`, `unauthorized`, `forbidden`, "
        "`too_many` and `unavailable`, and every one with a body `malformed` and `too_large`.",
        _overview(),
        *(block for noun in nouns for block in _noun(noun, described)),
        "## Structures",
        *(_structure(name, schema) for name, schema in described["components"]["schemas"].items()),
    )


def _overview() -> str:
    rows = (
        (
            f"[`{endpoint.method} {endpoint.path}`](#{_anchor(endpoint)})",
            endpoint.summary,
            _scopes(endpoint),
        )
        for endpoint in ENDPOINTS
    )
    return table(("call", "meaning", "scopes"), rows)


def _anchor(endpoint: HttpEndpoint) -> str:
    kept = (one for one in f"{endpoint.method} {endpoint.path}".lower() if one not in "/{}")
    return "".join(kept).replace(" ", "-")


def _scopes(endpoint: HttpEndpoint) -> str:
    if endpoint.action is None:
        return "open to all"
    return codes(scope for scope in Scope if endpoint.action in ALLOWED[scope])


def _noun(noun: str, described: Schema) -> Iterable[str]:
    yield f"## {noun}"
    for endpoint in ENDPOINTS:
        if endpoint.noun == noun:
            operation = described["paths"][endpoint.path][endpoint.method.lower()]
            yield from _endpoint(endpoint, operation)


def _endpoint(endpoint: HttpEndpoint, operation: Schema) -> Iterable[str]:
    yield f"### `{endpoint.method} {endpoint.path}`"
    yield f"{endpoint.summary}. {endpoint.description}".strip()
    facts = [f"Scopes: {_scopes(endpoint)}"]
    if endpoint.body is not None:
        content = operation["requestBody"]["content"]["application/json"]["schema"]
        facts.append(f"Body: {kind(content)}{'' if endpoint.is_body_needed else ' (optional)'}")
    statuses = codes((endpoint.status, *endpoint.other_statuses))
    answer = operation["responses"][str(endpoint.status)]["content"][endpoint.media_type]["schema"]
    facts.append(f"Answer: {statuses} {kind(answer)}")
    if endpoint.errors:
        facts.append(f"Errors: {codes(f'{one.status} {one.code}' for one in endpoint.errors)}")
    yield "\n".join(f"- {fact}" for fact in facts)
    in_query = [one for one in operation.get("parameters", []) if one["in"] == "query"]
    if in_query:
        yield table(("parameter", "kind", "default", "meaning"), map(_parameter, in_query))


def _parameter(parameter: Schema) -> tuple[str, ...]:
    schema = parameter["schema"]
    default = schema.get("default")
    return (
        code(parameter["name"]),
        kind(schema),
        code(json.dumps(default)) if default else "",
        parameter.get("description", ""),
    )


def _structure(name: str, schema: Schema) -> str:
    title, text = f"### {name}", schema.get("description", "")
    if "enum" in schema:
        return document(title, text, f"One of {codes(schema['enum'])}. See [States](states.md).")
    if getattr(getattr(model, name, None), "__module__", "") == model.__name__:
        return document(title, "See [Definition of a workflow](workflow-definition.md).")
    struct = next(getattr(module, name) for module in STRUCTURES if hasattr(module, name))
    fields: Schema = schema.get("properties", {})
    base = struct.__base__
    if base.__name__.endswith(("View", "Summary", "Spec")):
        text = f"{text} The fields of [{base.__name__}](#{base.__name__.lower()}), and:".lstrip()
        fields = {field: fields[field] for field in fields if field not in base.__struct_fields__}
    if not fields:
        return document(title, text)
    if issubclass(struct, messages.Answer):
        rows = _answer_rows(fields, _said(struct))
        return document(title, text, table(("field", "kind", "meaning"), rows))
    rows = _request_rows(fields, _said(struct), needed=schema.get("required", []))
    return document(title, text, table(("field", "kind", "default", "meaning"), rows))


def _said(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What the code says of each field, by its name on the wire."""
    said = {"type": "the kind"}
    for base in reversed(struct.__mro__[: struct.__mro__.index(msgspec.Struct)]):
        said |= comments(base)
    fields = msgspec.structs.fields(struct)
    return said | {one.encode_name: said[one.name] for one in fields if one.name in said}


Rows = Iterable[tuple[str, ...]]


def _answer_rows(fields: Schema, said: dict[str, str]) -> Rows:
    for field, schema in fields.items():
        is_optional = schema.get("default", ...) is None and "any JSON" not in kind(schema)
        yield (
            code(field),
            f"{kind(schema)}{' or null' if is_optional else ''}",
            sentence(said[field]),
        )


def _request_rows(fields: Schema, said: dict[str, str], *, needed: list[str]) -> Rows:
    for field, schema in fields.items():
        default = "required" if field in needed else _default(schema)
        yield code(field), kind(schema), default, sentence(said[field])


def _default(schema: Schema) -> str:
    return code(json.dumps(schema.get("default")))


def kind(schema: Schema) -> str:
    """What a schema takes, in words, with links to the structures."""
    if "$ref" in schema:
        struct = schema["$ref"].rpartition("/")[2]
        return f"[{struct}](#{struct.lower()})"
    if "anyOf" in schema:
        choices = [one for one in schema["anyOf"] if one != {"type": "null"}]
        return " or ".join(map(kind, choices))
    if "enum" in schema:
        return codes(schema["enum"])
    name: str = schema.get("type", "any JSON")
    match name:
        case "array" if "prefixItems" in schema:
            name = f"list of {' and '.join(map(_bare, schema['prefixItems']))}"
        case "array":
            name = f"list of {_bare(schema.get('items', {}))}{_most(schema, 'maxItems')}"
        case "object":
            values = _bare(schema.get("additionalProperties", {}))
            name = f"object of {values}{_most(schema, 'maxProperties')}"
        case "string":
            name = "text" + _most(schema, "maxLength")
        case "integer" | "number":
            name += _range(schema)
        case _:
            pass
    return name


def _bare(schema: Schema) -> str:
    """The kind of what stands in a list or an object, without its own limits."""
    return kind({name: value for name, value in schema.items() if name != "maxLength"})


def _most(schema: Schema, limit: str) -> str:
    return f" (at most {number(schema[limit])})" if limit in schema else ""


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None and high < LARGEST:
        return f" {number(low)} … {number(high)}"
    return "" if low is None else f" ≥ {number(low)}"
