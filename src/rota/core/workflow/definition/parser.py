"""The parser: YAML or JSON to a definition, with the line of each problem.

YAML is read with its safe loader only, the one in C where there is one, since that in Python takes
ten times as long. Aliases are refused (a few lines of them can expand to gigabytes), and JSON is
read as a part of YAML.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]  # has none

from rota.core import limits
from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    NodeDefinition,
    Transition,
    problem,
)
from rota.core.workflow.definition.validator import problems_of

MAX_DEPTH = 200  # levels of nesting
MOST_MENDINGS = 20  # problems reported of one part
_HALF = "[0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf"\\(?:u([dD][89abAB]{_HALF})\\u([dD][c-fC-F]{_HALF})|.)", re.DOTALL)
_PLACE = re.compile(r" - at `\$(.*?)`$")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # as above
    """The safe loader, with the implicit types of YAML 1.2."""


# As YAML 1.2 and JSON have it: `no` and `on` are texts, and so are dates, times and 007.
_Loader.yaml_implicit_resolvers = {}
_IMPLICIT = [
    (tag, re.compile(rf"(?:{pattern})\Z"), first)
    for tag, pattern, first in (
        ("null", r"~|null|", ["~", "n", ""]),
        ("bool", r"true|false", ["t", "f"]),
        ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
        (
            "float",
            r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)",
            list("-+0123456789"),
        ),
    )
]
for _tag, _pattern, _first in _IMPLICIT:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)


def needs_quotes(text: str) -> bool:
    """Whether a text that is written without quotes is read as a number, a truth value or null."""
    return any(pattern.match(text) for _, pattern, _ in _IMPLICIT)


def read(text: str) -> tuple[Definition | None, list[DefinitionProblem]]:
    """The definition, if it can be read at all, and all its problems."""
    if len(text) > limits.MAX_DEFINITION_BYTES:
        message = f"longer than {limits.MAX_DEFINITION_BYTES} characters"
        return None, [problem("", "too_long", message)]
    is_json = text.lstrip().startswith("{")
    # In JSON a tab is a blank, in YAML a mistake; inside a JSON text neither allows one.
    content = _ESCAPE.sub(_whole, text.replace("\t", " ")) if is_json else text
    try:
        _refuse_bombs(content)
        loader = _Loader(content)
        try:
            node = loader.get_single_node()
            document = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
        lines, repeated = {}, []
        if node is not None:
            lines, repeated = dict(_lines(node, "")), list(_repetitions(node, ""))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return None, [_unreadable(error)]
    if is_json:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError):  # else it is YAML after all
            document = msgspec.json.decode(text.encode())
    definition, problems = convert(document)
    placed = [
        msgspec.structs.replace(one, line=_line(one.path, lines)) if one.line is None else one
        for one in [*repeated, *problems]
    ]
    return None if repeated else definition, placed


def _whole(escape: re.Match[str]) -> str:
    """A character that JSON escapes as a surrogate pair, which YAML does not know."""
    if escape.group(1) is None:
        return escape.group()
    halves = (int(half, 16).to_bytes(2, "big") for half in escape.groups())
    return b"".join(halves).decode("utf-16-be")


def _refuse_bombs(content: str) -> None:
    """Refuse aliases, and nesting that would exceed the stack."""
    depth = 0
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            problem_mark = event.start_mark
            raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=problem_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                message = f"nested more than {MAX_DEPTH} levels deep"
                raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def convert(document: Any) -> tuple[Definition | None, list[DefinitionProblem]]:
    """A decoded document as a definition, and all its problems."""
    too_many = list(_too_many(document))
    if too_many:
        return None, too_many
    try:
        definition = msgspec.convert(document, Definition)
    except msgspec.ValidationError as error:
        return None, _shape_problems(document, error) or [_shape_problem("", error)]
    return definition, problems_of(definition)


def _too_many(document: Any) -> Iterator[DefinitionProblem]:
    """Problems of size, checked first: a definition that is too large is checked no further."""
    for field, most in (("nodes", limits.MAX_NODES), ("transitions", limits.MAX_TRANSITIONS)):
        found = document.get(field) if isinstance(document, dict) else None
        if isinstance(found, dict | list) and len(found) > most:
            yield problem(field, f"too_many_{field}", f"{len(found)} are more than {most}")


def _unreadable(error: Exception) -> DefinitionProblem:
    mark = getattr(error, "problem_mark", None)
    message = getattr(error, "problem", None) or str(error)
    line = None if mark is None else mark.line + 1
    return DefinitionProblem(path="", code="unreadable", message=str(message), line=line)


def _repetitions(node: yaml.Node, path: str) -> Iterator[DefinitionProblem]:
    """Names that an object has twice: the second would silently win."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            if key.value in seen:
                message = f"{key.value!r} is there already"
                line = key.start_mark.line + 1
                yield DefinitionProblem(path=inner, code="duplicate_id", message=message, line=line)
            seen.add(key.value)
            yield from _repetitions(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _repetitions(value, f"{path}[{number}]")


def _shape_problems(document: Any, error: msgspec.ValidationError) -> list[DefinitionProblem]:
    """Problems of each part by itself, then of the whole, without the parts that do not fit."""
    if not isinstance(document, dict):
        return [_shape_problem("", error)]
    found: list[DefinitionProblem] = []
    mended = dict(document)
    nodes, transitions = document.get("nodes"), document.get("transitions")
    if isinstance(nodes, dict):
        mended["nodes"] = {
            name: _mended(f"nodes.{name}", node, NodeDefinition, found)
            for name, node in nodes.items()
        }
    if isinstance(transitions, list):
        mended["transitions"] = [
            _mended(f"transitions[{number}]", one, Transition, found)
            for number, one in enumerate(transitions)
        ]
    whole = _mended("", mended, Definition, found)
    with contextlib.suppress(msgspec.ValidationError):
        found += problems_of(msgspec.convert(whole, Definition))
    return found


def _mended(path: str, part: Any, kind: type, found: list[DefinitionProblem]) -> Any:
    """The part without the fields that do not fit; each of them is added to `found`."""
    dropped: set[str] = set()
    for _ in range(MOST_MENDINGS):
        try:
            msgspec.convert(part, kind)
        except msgspec.ValidationError as error:
            one = _shape_problem(path, error)
            field = re.match(r"\.?(\w+)", one.path[len(path) :])
            name = "" if field is None else field.group(1)
            missing = re.search(r"missing required field `(.*?)`", one.message)
            is_reported = missing is not None and missing.group(1) in dropped
            if is_reported or (not path and name in {"nodes", "transitions"} and part.get(name)):
                return part  # reported by the dropped field, or by the node or transition itself
            found.append(one)
            if not isinstance(part, dict) or name not in part:
                return part
            dropped.add(name)
            part = {key: value for key, value in part.items() if key != name}
        else:
            return part
    return part


def _shape_problem(path: str, error: msgspec.ValidationError) -> DefinitionProblem:
    text = str(error)
    place = _PLACE.search(text)
    inner = "" if place is None else place.group(1)
    message = text if place is None else text[: place.start()]
    unknown = re.search(r"unknown field `(.*?)`", message)
    if unknown is not None:
        inner = f"{inner}.{unknown.group(1)}"
    whole = f"{path}{inner}".lstrip(".").replace("[...]", "")
    code = "unknown_field" if unknown is not None else "bad_shape"
    return DefinitionProblem(path=whole, code=code, message=message)


def _lines(node: yaml.Node, path: str) -> Iterator[tuple[str, int]]:
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            yield inner, key.start_mark.line + 1
            yield from ((one, line) for one, line in _lines(value, inner) if one != inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _lines(value, f"{path}[{number}]")


def _line(path: str, lines: dict[str, int]) -> int | None:
    """The line of the innermost part of a path that the text has."""
    while path:
        if path in lines:
            return lines[path]
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return lines.get("")
