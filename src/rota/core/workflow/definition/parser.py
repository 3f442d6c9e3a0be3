"""The parser: YAML or JSON to a definition, with the line of each problem.

YAML is read with its safe loader only, the one in C where there is one, since that in Python takes
ten times as long. Aliases are refused (a few lines of them can expand to gigabytes), and JSON is
read as a part of YAML.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import msgspec
import yaml  # type: ignore[import-untyped]  # has none
from msgspec import Struct

from rota.core import limits
from rota.core.workflow.definition.durations import ENDING, with_milliseconds
from rota.core.workflow.definition.model import (
    Definition,
    DefinitionProblem,
    NodeDefinition,
    Transition,
    problem,
)
from rota.core.workflow.definition.readings import warnings_of
from rota.core.workflow.definition.validator import problems_of
from rota.errors import nearest

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


class CheckedText(Struct, frozen=True, kw_only=True):
    """What a text says: a definition, its problems, and warnings, which refuse nothing."""

    definition: Definition | None = None
    problems: list[DefinitionProblem]
    warnings: list[DefinitionProblem] = []


def read(text: str) -> tuple[Definition | None, list[DefinitionProblem]]:
    """The definition, if it can be read at all, and all its problems."""
    checked = check_text(text)
    return checked.definition, checked.problems


def check_text(text: str) -> CheckedText:
    """The definition in a text, with all problems and warnings, each with its line."""
    if len(text) > limits.MAX_DEFINITION_BYTES:
        message = f"longer than {limits.MAX_DEFINITION_BYTES} characters"
        return CheckedText(problems=[problem("", "too_long", message)])
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
        marks: Marks = {}
        repeated: list[DefinitionProblem] = []
        if node is not None:
            marks, repeated = dict(_marks(node, "")), list(_repetitions(node, ""))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return CheckedText(problems=[_unreadable(error)])
    if is_json:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError):  # else it is YAML after all
            document = msgspec.json.decode(text.encode())
    definition, problems = convert(document)
    warnings = [] if definition is None else warnings_of(definition)
    return CheckedText(
        definition=None if repeated else definition,
        problems=[_placed(one, marks) for one in [*repeated, *problems]],
        warnings=[_placed(one, marks) for one in warnings],
    )


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
            raise yaml.MarkedYAMLError(
                problem="YAML aliases are not supported", problem_mark=problem_mark
            )
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
    found: list[DefinitionProblem] = []
    document = with_milliseconds(document, Definition, "", found)
    try:
        definition = msgspec.convert(document, Definition)
    except msgspec.ValidationError as error:
        shape = _shape_problems(document, error) or [_shape_problem("", error, Definition)]
        return None, [*found, *shape]
    return definition, [*found, *problems_of(definition)]


def _too_many(document: Any) -> Iterator[DefinitionProblem]:
    """Problems of size, checked first: a definition that is too large is checked no further."""
    for field, most in (("nodes", limits.MAX_NODES), ("transitions", limits.MAX_TRANSITIONS)):
        found = document.get(field) if isinstance(document, dict) else None
        if isinstance(found, dict | list) and len(found) > most:
            yield problem(field, f"too_many_{field}", f"{len(found)} are more than {most}")


def _unreadable(error: Exception) -> DefinitionProblem:
    mark = getattr(error, "problem_mark", None)
    message = getattr(error, "problem", None) or str(error)
    line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
    return DefinitionProblem(
        path="", code="unreadable", message=str(message), line=line, column=column
    )


def _repetitions(node: yaml.Node, path: str) -> Iterator[DefinitionProblem]:
    """Names that an object has twice: the second would silently win."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            if key.value in seen:
                message = f"{key.value!r} exists already"
                line, column = key.start_mark.line + 1, key.start_mark.column + 1
                yield DefinitionProblem(
                    path=inner, code="duplicate_id", message=message, line=line, column=column
                )
            seen.add(key.value)
            yield from _repetitions(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _repetitions(value, f"{path}[{number}]")


def _shape_problems(document: Any, error: msgspec.ValidationError) -> list[DefinitionProblem]:
    """Problems of each part by itself, then of the whole, without the parts that do not fit."""
    if not isinstance(document, dict):
        return [_shape_problem("", error, Definition)]
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
            one = _shape_problem(path, error, kind)
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


def _fields_at(kind: type, place: str) -> list[str]:
    """The names of the fields that an object has at a place inside a kind."""
    kinds = {kind}
    for name in re.findall(r"\.(\w+)", place):
        fields = [field for one in kinds for field in msgspec.structs.fields(one)]
        kinds = {
            inner for field in fields if field.encode_name == name for inner in _structs(field.type)
        }
    return [field.encode_name for one in kinds for field in msgspec.structs.fields(one)]


def _structs(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs(inner)


def _shape_problem(path: str, error: msgspec.ValidationError, kind: type) -> DefinitionProblem:
    text = str(error)
    place = _PLACE.search(text)
    inner = "" if place is None else place.group(1)
    message = text if place is None else text[: place.start()]
    unknown = re.search(r"unknown field `(.*?)`", message)
    if unknown is not None:
        known = _fields_at(kind, inner)
        meant = nearest(unknown.group(1), known)
        hint = f"did you mean `{meant}`?" if meant else f"there is {', '.join(known)}"
        message = f"there is no field `{unknown.group(1)}`; {hint}"
        inner = f"{inner}.{unknown.group(1)}"
    whole = f"{path}{inner}".lstrip(".").replace("[...]", "")
    code = "unknown_field" if unknown is not None else "bad_shape"
    return DefinitionProblem(path=whole, code=code, message=message)


class _Mark(NamedTuple):
    line: int
    key_column: int
    value_column: int  # the same, unless the value is in the line of its key


Marks = dict[str, _Mark]


def _marks(node: yaml.Node, path: str) -> Iterator[tuple[str, _Mark]]:
    """Where each part of a text is, by its path."""
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    yield path, _Mark(line, column, column)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            begin, mark = key.start_mark, value.start_mark
            is_beside = isinstance(value, yaml.ScalarNode) and mark.line == begin.line
            yield (
                inner,
                _Mark(
                    begin.line + 1,
                    begin.column + 1,
                    (mark if is_beside else begin).column + 1,
                ),
            )
            yield from ((one, found) for one, found in _marks(value, inner) if one != inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _marks(value, f"{path}[{number}]")


def _placed(one: DefinitionProblem, marks: Marks) -> DefinitionProblem:
    """The problem with the line and column of the innermost part of its path that the text has."""
    if one.line is not None:
        return one
    path, is_whole = one.path, True
    if path not in marks:
        path = path.removesuffix(ENDING)  # as a duration with its unit it is written without
    while path and path not in marks:
        cut = max(path.rfind("."), path.rfind("["))
        path, is_whole = (path[:cut] if cut > 0 else ""), False
    mark = marks.get(path)
    if mark is None:
        return one
    is_value = is_whole and one.code != "unknown_field"
    column = mark.value_column if is_value else mark.key_column
    return msgspec.structs.replace(one, line=mark.line, column=column)
