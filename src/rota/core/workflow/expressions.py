"""What do conditions and mappings mean? CEL, behind a small interface of our own.

Two things make it quick and faithful. An expression that only names a place (`state.draft`,
`input.rows[branch.index]`) is looked up directly: the value comes back as it went in, whatever it
is. For the others only the places they name are handed to CEL, since it copies all it is given.
And one makes it repeatable: maps are gone through, and given back, in the order of their keys.
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]  # has types, does not say so

from rota.core.workflow import orderings

MAX_SOURCE_LENGTH = 4_096
MAX_COMPREHENSIONS = 8

NAMES = ("input", "state", "output", "nodes", "result", "branch", "error")

_STEP = r"""\.[A-Za-z_]\w*|\[(?:\d+|"[^"\\]*"|'[^'\\]*'|[a-z_]\w*(?:\.[A-Za-z_]\w*)*)\]"""
_PLACE = re.compile(rf"[a-z_]\w*(?:{_STEP})*\Z", re.ASCII)
_STEPS = re.compile(_STEP, re.ASCII)
_REFERENCE = re.compile(r"(?<![\w.])([a-z_]\w*)((?:\.[A-Za-z_]\w*)*)(?!\w)(\s*[\[(])?", re.ASCII)
_TEXT = re.compile(
    r"""[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL
)
_COMPREHENSION = re.compile(r"\.\s*(?:map|filter|exists|exists_one|all)\s*\(")
_WORDS = frozenset({"true", "false", "null"})

_environment = cel.NewEnv(
    variables=dict.fromkeys(NAMES, cel.Type.DYN), functions=[orderings.function()]
)


class ExpressionError(Exception):
    """An expression that cannot be read, or that failed on the values it was given."""

    def __init__(self, message: str, place: str | None = None) -> None:
        super().__init__(message)
        self.place = place  # in the definition


class Expression:
    """A compiled expression."""

    __slots__ = ("_compiled", "_paths", "_steps", "names", "places", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        if len(source) > MAX_SOURCE_LENGTH:
            raise ExpressionError(f"longer than {MAX_SOURCE_LENGTH} characters")
        if len(_COMPREHENSION.findall(source)) > MAX_COMPREHENSIONS:
            raise ExpressionError(f"more than {MAX_COMPREHENSIONS} comprehensions")
        if orderings.FUNCTION in source:
            raise ExpressionError(f"there is no function {orderings.FUNCTION!r}")
        try:
            self._compiled = _environment.compile(source)  # for its messages, which give columns
            rewritten = orderings.ordered(source)
            if rewritten != source:
                self._compiled = _environment.compile(rewritten)
        except RuntimeError as error:
            raise ExpressionError(_readable(str(error))) from None
        is_place = _PLACE.match(source) and source not in _WORDS
        self._steps = _steps(source) if is_place else None
        self._paths = _references(source)
        self.names = frozenset(path[0] for path in self._paths)
        self.places = frozenset(path[:2] for path in self._paths)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        if self._steps is not None:
            return _look_up(self._steps, values, self.source)
        try:
            outcome = self._compiled.eval(data=_pruned(self._paths, values))
        except (RuntimeError, ValueError, TypeError) as error:
            raise ExpressionError(_readable(str(error))) from None
        if outcome.type() == cel.Type.ERROR:
            raise ExpressionError(_readable(str(outcome.value())))
        return _json(outcome.plain_value())


@lru_cache(maxsize=4_096)
def compiled(source: str) -> Expression:
    return Expression(source)


Steps = tuple["str | int | Steps", ...]  # names and numbers, and places that hold one


def _steps(place: str) -> Steps:
    """A place as the steps that lead to it."""
    steps: list[str | int | Steps] = []
    for step in _STEPS.findall(place):
        inner = step[1:-1]
        if step[0] == ".":
            steps.append(step[1:])
        elif inner[0] in "\"'":
            steps.append(inner[1:-1])
        else:
            steps.append(int(inner) if inner.isdigit() else _steps(inner))
    name = re.match(r"\w+", place)
    assert name is not None
    return (name.group(), *steps)


def _look_up(steps: Steps, values: Mapping[str, Any], place: str) -> Any:
    found: Any = values
    for step in steps:
        key = _look_up(step, values, place) if isinstance(step, tuple) else step
        found = _member(found, key, place)
    return found


def _member(value: Any, key: Any, place: str) -> Any:
    if isinstance(value, dict) and isinstance(key, str) and key in value:
        return value[key]
    is_number = isinstance(key, int) and not isinstance(key, bool)
    if isinstance(value, list) and is_number and 0 <= key < len(value):
        return value[key]
    raise ExpressionError(f"{place!r}: there is no {key!r}")


def _references(source: str) -> tuple[tuple[str, ...], ...]:
    """The places an expression names, as paths; calls and indexes cut a path short."""
    paths: set[tuple[str, ...]] = set()
    for match in _REFERENCE.finditer(_TEXT.sub('""', source)):
        name, rest, opening = match.group(1), match.group(2), match.group(3)
        if name not in NAMES:
            continue
        parts = [name, *(part for part in rest.split(".") if part)]
        if opening is not None and opening.strip() == "(" and len(parts) > 1:
            parts.pop()  # the name of a function called on the value
        paths.add(tuple(parts))
    return tuple(sorted(paths))


def _pruned(paths: tuple[tuple[str, ...], ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Only what the expression names, at the places where it names it."""
    pruned: dict[str, Any] = {}
    for path in paths:
        source: Any = values
        target: dict[str, Any] = pruned
        for depth, part in enumerate(path):
            if not isinstance(source, Mapping) or part not in source:
                break
            source = source[part]
            is_last = depth == len(path) - 1
            if is_last or not isinstance(source, Mapping):
                target[part] = source
                break
            if target.get(part) is source:
                break  # a shorter path has brought the whole of it
            target = target.setdefault(part, {})
    return pruned


def _json(value: Any) -> Any:
    """A result as JSON; what JSON has no word for is refused."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError(f"{value} is not JSON")
        return value
    if isinstance(value, list):
        return [_json(one) for one in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ExpressionError("an object's keys must be texts")
        return {key: _json(value[key]) for key in sorted(value)}
    raise ExpressionError(f"a {type(value).__name__} is not JSON; turn it into a text")


def _readable(text: str) -> str:
    """CEL's message without its frame."""
    first = text.split("\n", 1)[0]
    first = re.sub(r"^[A-Z_]+: ", "", first)
    return re.sub(r"^ERROR: <input>:1:(\d+): ", r"column \1: ", first)
