"""CEL expressions for conditions and mappings, behind a small interface.

An expression that only names a place (`state.draft`, `input.rows[branch.index]`) is looked up
directly, so its value comes back unchanged. For the others only the places that they name are given
to CEL, which copies its input. Maps are iterated, and returned, in the order of their keys, so that
a replay gives the same result. An expression that could exceed its steps is not evaluated
(`expression_cost`).
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]  # has types, but no marker

from rota.core import limits
from rota.core.workflow.definition import expression_syntax, map_order
from rota.core.workflow.definition.expression_cost import (
    Estimate,
    LinearBound,
    TooExpensiveError,
)

NAMES = ("input", "state", "output", "nodes", "run", "result", "branch", "error")

_STEP = r"""\.[A-Za-z_]\w*|\[(?:\d+|"[^"\\]*"|'[^'\\]*'|[a-z_]\w*(?:\.[A-Za-z_]\w*)*)\]"""
_PLACE = re.compile(rf"[a-z_]\w*(?:{_STEP})*\Z", re.ASCII)
_STEPS = re.compile(_STEP, re.ASCII)
_REFERENCE = re.compile(r"(?<![\w.])([a-z_]\w*)((?:\.[A-Za-z_]\w*)*)(?!\w)(\s*[\[(])?", re.ASCII)
_TEXT = re.compile(
    r"""[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL
)
_COMPREHENSION = re.compile(r"\.\s*(?:map|filter|exists|exists_one|all)\s*\(")
_ITERATIONS = "Iteration budget exceeded"
_WORDS = frozenset({"true", "false", "null"})

# The library copies a list for each item that it adds to it. So a long one is made piece by piece.
_PIECE = "_piece"
_PIECE_LENGTH = 128
_UNSIGNED = re.compile(r"\buint\b|\d[uU]\b")  # numbers that do not survive the way out and in

_functions = [map_order.function()]
_variables = dict.fromkeys(NAMES, cel.Type.DYN)
_environment = cel.NewEnv(variables=_variables, functions=_functions)
_piece_environment = cel.NewEnv(
    variables={**_variables, _PIECE: cel.Type.DYN}, functions=_functions
)


class ExpressionError(Exception):
    """An expression that cannot be compiled, or that failed on its values."""

    def __init__(self, message: str, place: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message)
        self.place = place  # in the definition
        self.code = code  # of the run's error; None: that of the use of the expression


BUDGET = "expression_budget"  # the code of an expression that takes too many steps


class Spending:
    """The steps that the expressions of one decision may take together."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = limits.MAX_DECISION_STEPS

    def spend(self, steps: int) -> None:
        self.left -= max(steps - limits.FREE_EXPRESSION_STEPS, 0)
        if self.left < 0:
            most = limits.MAX_DECISION_STEPS
            message = f"the expressions of one decision take more than {most} steps"
            raise ExpressionError(message, code=BUDGET)


class Expression:
    """A compiled expression."""

    __slots__ = (
        "_bound",
        "_compiled",
        "_ordered",
        "_paths",
        "_split",
        "_steps",
        "names",
        "places",
        "source",
        "tree",
    )

    def __init__(self, source: str, *, is_piecewise: bool = False) -> None:
        """Compile a source; a piecewise one is about a piece of a list."""
        self.source = source
        environment = _piece_environment if is_piecewise else _environment
        if len(source) > limits.MAX_EXPRESSION_LENGTH:
            raise ExpressionError(f"longer than {limits.MAX_EXPRESSION_LENGTH} characters")
        if len(_COMPREHENSION.findall(source)) > limits.MAX_COMPREHENSIONS:
            raise ExpressionError(f"more than {limits.MAX_COMPREHENSIONS} comprehensions")
        if map_order.FUNCTION in source:
            raise ExpressionError(f"there is no function {map_order.FUNCTION!r}")
        try:
            self._compiled = self._ordered = environment.compile(source)
            rewritten = map_order.ordered(source)
            if rewritten != source:
                self._ordered = environment.compile(rewritten)
            self.tree = expression_syntax.tree(self._compiled.serialize())
            depth = expression_syntax.nesting(self.tree)
        except RuntimeError as error:
            raise ExpressionError(_readable(str(error))) from None
        except RecursionError:
            raise ExpressionError("its parts are nested too deeply") from None
        if depth > limits.MAX_COMPREHENSION_DEPTH:
            most = limits.MAX_COMPREHENSION_DEPTH
            raise ExpressionError(f"more than {most} comprehensions inside each other", code=BUDGET)
        self._bound = LinearBound.of(self.tree)
        self._split = None if is_piecewise or _UNSIGNED.search(source) else map_order.split(source)
        is_place = _PLACE.match(source) and source not in _WORDS
        self._steps = _steps(source) if is_place else None
        self._paths = _references(source)
        self.names = frozenset(path[0] for path in self._paths)
        self.places = frozenset(path[:2] for path in self._paths)

    def evaluate(self, values: Mapping[str, Any], spending: Spending | None = None) -> Any:
        if self._steps is not None:
            return _look_up(self._steps, values, self.source)
        if self._split is not None:
            items = self._long_list(self._split[0], values, spending)
            if items is not None:
                piecewise = _piecewise(f"{_PIECE}{self._split[1]}")
                return piecewise.evaluate_pieces(items, values, spending)
        given = _pruned(self._paths, values)
        if self._bound is not None and self._bound.covers(given):
            return self._evaluated(given, is_ordered=True)
        estimate = self._estimate(given)
        if spending is not None:
            spending.spend(estimate.steps)
        return self._evaluated(given, is_ordered=estimate.is_ordered)

    def _long_list(
        self, source: str, values: Mapping[str, Any], spending: Spending | None
    ) -> list[Any] | None:
        """The items of a list, if it is long enough to be evaluated in pieces."""
        try:
            found = compiled(source).evaluate(values, spending)
        except ExpressionError as error:
            if error.code is not None:
                raise
            return None  # the whole expression has a value, or the same error
        if not isinstance(found, list | dict) or len(found) <= _PIECE_LENGTH:
            return None
        return sorted(found) if isinstance(found, dict) else found

    def evaluate_pieces(
        self, items: list[Any], values: Mapping[str, Any], spending: Spending | None
    ) -> list[Any]:
        """The value of a piecewise expression on a list, piece by piece."""
        given = _pruned(self._paths, values)
        made: list[Any] = []
        steps = 0
        for start in range(0, len(items), _PIECE_LENGTH):
            given[_PIECE] = items[start : start + _PIECE_LENGTH]
            estimate = self._estimate(given, steps)
            steps = estimate.steps
            made += self._evaluated(given, is_ordered=estimate.is_ordered)
        if spending is not None:
            spending.spend(steps)
        return made

    def _evaluated(self, given: Mapping[str, Any], *, is_ordered: bool) -> Any:
        # If all lists are made of lists, nothing has to be put in order.
        compiled = self._compiled if is_ordered else self._ordered
        try:
            outcome = compiled.eval(data=given)
            is_error = outcome.type() == cel.Type.ERROR
            value = str(outcome.value()) if is_error else outcome.plain_value()
        except (RuntimeError, ValueError, TypeError) as error:
            is_error, value = True, str(error)
        if is_error:
            code = BUDGET if _ITERATIONS in value else None
            raise ExpressionError(_readable(value), code=code)
        return _json(value)

    def _estimate(self, given: Mapping[str, Any], steps: int = 0) -> Estimate:
        """The upper bound of its steps, after `steps` of the same expression."""
        try:
            estimate = Estimate(given, steps)
            estimate.run(self.tree)
        except TooExpensiveError as error:
            raise ExpressionError(str(error), code=BUDGET) from None
        except (RecursionError, UnicodeError, OverflowError) as error:
            raise ExpressionError(f"the values cannot be given to it: {error}") from None
        return estimate


@lru_cache(maxsize=4_096)
def compiled(source: str) -> Expression:
    return Expression(source)


@lru_cache(maxsize=1_024)
def _piecewise(source: str) -> Expression:
    return Expression(source, is_piecewise=True)


Steps = tuple["str | int | Steps", ...]  # names and numbers, and places that hold one


def _steps(place: str) -> Steps:
    """The steps that lead to a place."""
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
    """The paths that an expression names; calls and indexes end a path."""
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
    """The values at the paths that the expression names, and nothing else."""
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
    """A result as JSON; other values are refused."""
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
