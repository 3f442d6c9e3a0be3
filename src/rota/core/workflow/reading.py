"""From YAML or JSON to a definition, with the line of each problem.

YAML is read with its safe loader only, aliases are refused (a few lines of them can stand for
gigabytes), and JSON is read as what it is: a part of YAML.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]  # has none

from rota.core.workflow.definition import Definition, Node, Transition
from rota.core.workflow.problems import Problem, problem
from rota.core.workflow.validation import problems_of

MAX_TEXT_LENGTH = 1_000_000
MOST_MENDINGS = 20  # problems told of one part
_PLACE = re.compile(r" - at `\$(.*?)`$")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # as above
    """The safe loader, without aliases and without surprises: values come back as they went in."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=mark)
        return super().compose_node(parent, index)


# As YAML 1.2 and JSON have it: `no` and `on` are texts, and so are dates, times and 007.
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)",
        list("-+0123456789"),
    ),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first
    )


def read(text: str) -> tuple[Definition | None, list[Problem]]:
    """The definition, if it can be read at all, and everything that is wrong with it."""
    if len(text) > MAX_TEXT_LENGTH:
        return None, [problem("", "too_long", f"longer than {MAX_TEXT_LENGTH} characters")]
    is_json = text.lstrip().startswith("{")
    # In JSON a tab is a blank, in YAML a mistake; inside a JSON text neither allows one.
    loader = _Loader(text.replace("\t", " ") if is_json else text)
    try:
        node = loader.get_single_node()
        document = None if node is None else loader.construct_document(node)
        lines, repeated = {}, []
        if node is not None:
            lines, repeated = dict(_lines(node, "")), list(_repetitions(node, ""))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return None, [_unreadable(error)]
    finally:
        loader.dispose()
    if is_json:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError):  # else it is YAML after all
            document = msgspec.json.decode(text.encode())
    definition, problems = convert(document)
    placed = [
        msgspec.structs.replace(one, line=_line(one.path, lines)) if one.line is None else one
        for one in [*repeated, *problems]
    ]
    return None if repeated else definition, placed


def convert(document: Any) -> tuple[Definition | None, list[Problem]]:
    """A decoded document as a definition, and everything that is wrong with it."""
    try:
        definition = msgspec.convert(document, Definition)
    except msgspec.ValidationError as error:
        return None, _shape_problems(document, error)
    return definition, problems_of(definition)


def _unreadable(error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None)
    message = getattr(error, "problem", None) or str(error)
    line = None if mark is None else mark.line + 1
    return Problem(path="", code="unreadable", message=str(message), line=line)


def _repetitions(node: yaml.Node, path: str) -> Iterator[Problem]:
    """Names that stand twice in one object: the second would silently win."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            if key.value in seen:
                message = f"{key.value!r} is there already"
                line = key.start_mark.line + 1
                yield Problem(path=inner, code="duplicate_id", message=message, line=line)
            seen.add(key.value)
            yield from _repetitions(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _repetitions(value, f"{path}[{number}]")


def _shape_problems(document: Any, error: msgspec.ValidationError) -> list[Problem]:
    """Each part is looked at by itself; what fits in the end is looked at as a whole."""
    if not isinstance(document, dict):
        return [_shape_problem("", error)]
    found: list[Problem] = []
    mended = dict(document)
    nodes, transitions = document.get("nodes"), document.get("transitions")
    if isinstance(nodes, dict):
        mended["nodes"] = {
            name: _mended(f"nodes.{name}", node, Node, found) for name, node in nodes.items()
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


def _mended(path: str, part: Any, kind: type, found: list[Problem]) -> Any:
    """A part without the fields that do not fit, each of which is a problem, as far as it goes."""
    dropped: set[str] = set()
    for _ in range(MOST_MENDINGS):
        try:
            msgspec.convert(part, kind)
        except msgspec.ValidationError as error:
            one = _shape_problem(path, error)
            field = re.match(r"\.?(\w+)", one.path[len(path) :])
            name = "" if field is None else field.group(1)
            missing = re.search(r"missing required field `(.*?)`", one.message)
            is_told = missing is not None and missing.group(1) in dropped
            if is_told or (not path and name in {"nodes", "transitions"} and part.get(name)):
                return part  # by what was dropped, or by the node or transition itself
            found.append(one)
            if not isinstance(part, dict) or name not in part:
                return part
            dropped.add(name)
            part = {key: value for key, value in part.items() if key != name}
        else:
            return part
    return part


def _shape_problem(path: str, error: msgspec.ValidationError) -> Problem:
    text = str(error)
    place = _PLACE.search(text)
    inner = "" if place is None else place.group(1)
    message = text if place is None else text[: place.start()]
    unknown = re.search(r"unknown field `(.*?)`", message)
    if unknown is not None:
        inner = f"{inner}.{unknown.group(1)}"
    whole = f"{path}{inner}".lstrip(".").replace("[...]", "")
    code = "unknown_field" if unknown is not None else "bad_shape"
    return Problem(path=whole, code=code, message=message)


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
    """The line of the innermost part of a path that was written down."""
    while path:
        if path in lines:
            return lines[path]
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return lines.get("")
