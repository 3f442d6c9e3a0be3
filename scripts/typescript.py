"""Write clients/typescript/src/api.ts from the OpenAPI document of the HTTP API.

One interface for each schema, one entry of `Operations` for each endpoint, and the codes of errors.
With --check, the script writes nothing and fails when the file differs from the code.
"""

import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rota import errors
from rota.errors import RotaError, StoreError
from rota.gateways.http import openapi
from rota.gateways.http.endpoints import ENDPOINTS

FILE = Path(__file__).parents[1] / "clients" / "typescript" / "src" / "api.ts"
HEAD = """\
// Written by scripts/typescript.py from the OpenAPI document of the HTTP API. Do not edit: run
// `make docs`.
"""
WIDTH = 100
_IDENTIFIER = re.compile(r"^[A-Za-z_$][A-Za-z0-9_$]*$")
_SCALARS = {
    None: "unknown",  # any JSON
    "null": "null",
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
}

Schema = dict[str, Any]


def main() -> None:
    is_check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not is_check:
        sys.exit("usage: python scripts/typescript.py [--check]")
    text = types_of(openapi.document(ENDPOINTS))
    if FILE.is_file() and FILE.read_text(encoding="utf-8") == text:
        return
    if is_check:
        sys.exit(f"{FILE} differs from the code: run make docs")
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE} written")


def types_of(document: Schema) -> str:
    """The TypeScript module of an OpenAPI document."""
    schemas = document["components"]["schemas"]
    parts = [HEAD, _error_codes()]
    parts += [_declaration(name, schemas[name]) for name in sorted(schemas)]
    parts.append(_operations(document["paths"]))
    return "\n".join(parts)


# --- declarations --------------------------------------------------------------------------------


def _error_codes() -> str:
    """The codes that a coordinator answers with; `error` is that of no class in particular."""
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, RotaError)
        and not issubclass(kind, StoreError)
    ]
    codes = sorted({kind.code for kind in kinds})
    text = _comment("The stable codes of the errors that a coordinator answers with.")
    return f"{text}export type ErrorCode ={_choices(json.dumps(one) for one in codes)};\n"


def _declaration(name: str, schema: Schema) -> str:
    text = _comment(schema.get("description", ""))
    if schema.get("type") == "object" and "properties" in schema:
        fields = "".join(_fields(schema))
        return f"{text}export interface {name} {{\n{fields}}}\n"
    kind = _kind(schema)
    if len(kind) + len(name) + len("export type  = ;") > WIDTH:
        kind = _choices(kind.split(" | ")).removeprefix(" ")
        return f"{text}export type {name} ={kind};\n"
    return f"{text}export type {name} = {kind};\n"


def _choices(choices: Iterable[str]) -> str:
    return "".join(f"\n  | {one}" for one in choices)


def _fields(schema: Schema) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        yield _comment(field.get("description", ""), indent="  ")
        yield f"  {_property(name)}{'' if name in required else '?'}: {_kind(field)};\n"
    if schema.get("additionalProperties") is True:
        yield "  [fact: string]: unknown;\n"


def _operations(paths: Schema) -> str:
    """Every endpoint, under its method and path, with the types of what it takes and answers."""
    lines = [_comment("Every endpoint of the HTTP API, by its method and path.")]
    lines.append("export interface Operations {\n")
    for path in sorted(paths):
        for method in sorted(paths[path]):
            if not _is_json(paths[path][method]):
                continue
            lines += _operation(f"{method.upper()} {path}", paths[path][method])
    lines.append("}\n")
    return "".join(lines)


def _operation(title: str, operation: Schema) -> Iterator[str]:
    yield _comment(operation.get("summary", ""), indent="  ")
    yield f"  {json.dumps(title)}: {{\n"
    for place, field in (("path", "path"), ("query", "query")):
        parameters = [one for one in operation.get("parameters", ()) if one["in"] == place]
        if not parameters:
            yield f"    {field}: Record<string, never>;\n"
            continue
        yield f"    {field}: {{\n"
        for one in parameters:
            mark = "" if one["required"] else "?"
            yield f"      {_property(one['name'])}{mark}: {_kind(one['schema'])};\n"
        yield "    };\n"
    yield f"    body: {_body(operation)};\n"
    yield f"    answer: {_answer(operation)};\n"
    yield "  };\n"


def _is_json(operation: Schema) -> bool:
    """Whether an endpoint takes and answers JSON or text; blobs are left to `fetch`."""
    return '"binary"' not in json.dumps(operation)


def _body(operation: Schema) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return "undefined"
    kind = _kind(content["application/json"]["schema"])
    return kind if operation["requestBody"]["required"] else f"{kind} | undefined"


def _answer(operation: Schema) -> str:
    """The type of the body of a success; other media types than JSON are texts."""
    kinds: dict[str, None] = {}
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            for media_type, content in response["content"].items():
                is_json = media_type == "application/json"
                kinds[_kind(content["schema"]) if is_json else "string"] = None
    return " | ".join(kinds) or "undefined"


# --- types ---------------------------------------------------------------------------------------


def _kind(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return _array(schema)
    return _object(schema) if kind == "object" else _SCALARS[kind]


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_kind(one) for one in schema['prefixItems'])}]"
    items = _kind(schema.get("items", {}))
    return f"({items})[]" if " | " in items else f"{items}[]"


def _object(schema: Schema) -> str:
    if "properties" in schema:
        fields = "; ".join(
            f"{_property(name)}{'' if name in schema.get('required', ()) else '?'}: {_kind(field)}"
            for name, field in schema["properties"].items()
        )
        return f"{{ {fields} }}"
    values = schema.get("additionalProperties", {})
    return f"Record<string, {_kind(values) if isinstance(values, dict) else 'unknown'}>"


def _property(name: str) -> str:
    return name if _IDENTIFIER.match(name) else json.dumps(name)


def _comment(text: str, *, indent: str = "") -> str:
    if not text:
        return ""
    lines = [line.rstrip() for line in inspect.cleandoc(text).replace("*/", "* /").splitlines()]
    if len(lines) == 1 and len(indent) + len(lines[0]) + len("/**  */") <= WIDTH:
        return f"{indent}/** {lines[0]} */\n"
    return "".join(
        (
            f"{indent}/**\n",
            *(f"{indent} * {one}".rstrip() + "\n" for one in lines),
            f"{indent} */\n",
        )
    )


if __name__ == "__main__":
    main()
