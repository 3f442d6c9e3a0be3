"""The OpenAPI 3.1 document, generated from the endpoints, and the `/docs` page that shows it.

The page loads nothing from elsewhere, and its content security policy makes the browser enforce it.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Raw

from rota import __version__
from rota.errors import (
    Forbidden,
    HeadTooLarge,
    Internal,
    Invalid,
    Malformed,
    RequestTimeout,
    RotaError,
    TargetTooLong,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
)
from rota.gateways.http.routing.endpoint import BodyReading, HttpEndpoint
from rota.gateways.http.routing.parameters import PageQuery
from rota.gateways.http.routing.responses import PROBLEM_JSON, HttpResponse
from rota.messages import NoFields, Problem

# The errors of the server itself, before an endpoint is found.
BY_SERVER: tuple[type[RotaError], ...] = (RequestTimeout, TargetTooLong, HeadTooLarge)
REFERENCE = "#/components/schemas/{name}"
DESCRIPTION = """A durable work coordinator: tasks, workers that run them, and workflows.

Times and durations are integers in milliseconds. Bodies are JSON whatever their content type says,
and definitions of workflows may be YAML.
Fields and parameters that are not listed here are refused by name. Errors are
`application/problem+json`; match on their `code`."""
HTML = "text/html; charset=utf-8"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def document(endpoints: Sequence[HttpEndpoint]) -> dict[str, Any]:
    """The document for these endpoints."""
    kinds = _kinds(endpoints)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schema_of = dict(zip(map(repr, kinds), schemas, strict=True))
    # The facts of an error are beside its fields, and may be anything.
    components["Problem"]["additionalProperties"] = True
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schema_of, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    # A query is listed as parameters, not as a schema.
    queries = {endpoint.query.__name__ for endpoint in endpoints}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "tags": [{"name": noun} for noun in dict.fromkeys(one.noun for one in endpoints)],
        "paths": paths,
        "components": {
            "schemas": {name: components[name] for name in sorted(components.keys() - queries)},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Not needed on loopback. See `rota token create`.",
                }
            },
        },
    }


def _kinds(endpoints: Iterable[HttpEndpoint]) -> list[Any]:
    """Every type that a body, a query or an answer has, each once."""
    found: dict[str, Any] = {repr(Problem): Problem}
    for endpoint in endpoints:
        kinds = (endpoint.body or NoFields, endpoint.query, endpoint.answer, endpoint.refusal)
        found |= {repr(kind): kind for kind in kinds if kind is not None}
    return list(found.values())


def _operation(
    endpoint: HttpEndpoint, schema_of: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    # An alias is known by the last part of its path: the handler's name is that of the new one.
    old_name = endpoint.path.rpartition("/")[2]
    verb = old_name if endpoint.is_deprecated else endpoint.handler.__name__
    operation: dict[str, Any] = {
        "operationId": f"{endpoint.noun.lower()}_{verb}",
        "summary": endpoint.summary,
        "tags": [endpoint.noun],
    }
    if endpoint.is_deprecated:
        operation["deprecated"] = True
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = [*_path_parameters(endpoint), *_query_parameters(endpoint, components)]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.takes_body:
        operation["requestBody"] = {
            "required": endpoint.is_body_needed,
            "content": _body_content(endpoint, schema_of),
        }
    operation["responses"] = _responses(endpoint, schema_of)
    if endpoint.action is not None:
        operation["security"] = [{"token": []}, {}]
        operation["x-action"] = endpoint.action.value
    return operation


def _path_parameters(endpoint: HttpEndpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in endpoint.parameters
    ]


def _query_parameters(endpoint: HttpEndpoint, components: dict[str, Any]) -> list[dict[str, Any]]:
    properties = components.get(endpoint.query.__name__, {}).get("properties", {})
    # What an endpoint inherits, the limit and the cursor of a page, is listed after its own.
    inherited = PageQuery.__struct_fields__ if issubclass(endpoint.query, PageQuery) else ()
    parameters = []
    for name, schema in sorted(properties.items(), key=lambda one: one[0] in inherited):
        parameter = {"name": name, "in": "query", "required": False, "schema": _given(schema)}
        if "description" in schema:
            parameter["description"] = schema["description"]
        parameters.append(parameter)
    return parameters


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter without null, which a query string cannot hold."""
    shown = {key: value for key, value in schema.items() if key != "description"}
    choices = [one for one in shown.pop("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1:
        shown |= choices[0]
    elif choices:
        shown["anyOf"] = choices
    if shown.get("default", ...) is None:
        del shown["default"]
    return shown


def _body_content(endpoint: HttpEndpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    if endpoint.reads is BodyReading.STREAM:
        return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    content = {"application/json": {"schema": _body_schema(endpoint, schema_of)}}
    if endpoint.reads is BodyReading.TEXT:
        content["application/yaml"] = {"schema": {"type": "string"}}
    return content


def _body_schema(endpoint: HttpEndpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = schema_of[repr(endpoint.body or NoFields)]
    if endpoint.is_body_needed or endpoint.body is Raw:
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def _responses(endpoint: HttpEndpoint, schema_of: dict[str, Any]) -> dict[str, Any]:
    answer = {"schema": schema_of[repr(endpoint.answer)]}
    if endpoint.answer is bytes:
        answer = {"schema": {"type": "string", "format": "binary"}}
    responses: dict[str, dict[str, Any]] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {endpoint.media_type: answer},
        }
        for status in (endpoint.status, *endpoint.other_statuses)
    }
    by_status: dict[int, list[type[RotaError]]] = {}
    for error in _errors(endpoint):
        by_status.setdefault(error.status, []).append(error)
    refusal = schema_of[repr(endpoint.refusal or Problem)]
    media_type = PROBLEM_JSON if endpoint.refusal is None else "application/json"
    for status, errors in sorted(by_status.items()):
        codes = ", ".join(f"`{error.code}`" for error in errors)
        response = responses.setdefault(
            str(status), {"description": f"{errors[0].title}: {codes}", "content": {}}
        )
        response["content"].setdefault(media_type, {"schema": refusal})
        if any(error in BY_SERVER for error in errors):
            problem = {"schema": schema_of[repr(Problem)]}
            response["content"].setdefault(PROBLEM_JSON, problem)
        if status in {429, 503}:
            response["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return responses


def _errors(endpoint: HttpEndpoint) -> list[type[RotaError]]:
    """The errors of the endpoint, and those that every endpoint of its kind has."""
    errors: list[type[RotaError]] = [Invalid, *BY_SERVER]
    if endpoint.takes_body:
        errors += [Malformed, TooLarge]
    if endpoint.action is not None:
        errors += [Unauthorized, Forbidden, TooMany, Unavailable]
    errors += [error for error in endpoint.errors if error not in errors]
    return [*errors, Internal]


# --- the page ---------------------------------------------------------------------------------


@cache
def docs_page() -> HttpResponse:
    """The `/docs` page."""
    text = files("rota.gateways.http").joinpath("html", "docs.html").read_text(encoding="utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            "connect-src 'self'",
            f"script-src {_hashes(_SCRIPT.findall(text))}",
            f"style-src {_hashes(_STYLE.findall(text))}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    headers = (
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    )
    return HttpResponse(text.encode(), media_type=HTML, headers=headers)


def _hashes(blocks: list[str]) -> str:
    """The hashes by which the policy allows these blocks and no others."""
    if not blocks:
        return "'none'"
    digests = (hashlib.sha256(block.encode()).digest() for block in blocks)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
