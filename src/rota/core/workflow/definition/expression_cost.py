"""The cost of an expression: an upper bound, on the values that it is about to be given.

The library that evaluates expressions has one limit only, on the iterations of one evaluation.
Within it a few lines can copy gigabytes: a list that is built by `map` is copied for every item,
and texts and lists can be doubled again and again. So before an expression is evaluated, its cost
is bounded. The tree of the expression is walked once, with the sizes of the values in place of
results; a loop is walked once for all its iterations.

The unit is the step: one operation, one item of a list that is copied, or 32 bytes of a text. A
step takes about 100 ns and about 32 bytes. No clock is read, so the same expression on the same
values is refused or evaluated in every process that replays a journal.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, assert_never

import msgspec
from msgspec import Struct

from rota.core import limits
from rota.core.workflow.definition import pattern_size
from rota.core.workflow.definition.expression_syntax import (
    CallNode,
    Constant,
    ListNode,
    Loop,
    MapNode,
    Name,
    Node,
    Select,
)

MOST_ITERATIONS = 10_000  # of one evaluation; the library's own limit
_NODE = 4  # steps to hand over one number, list or object
_BYTES = 32  # of a text, for one step
_ORDERING = 20  # times what it takes to hand a value over, to have its keys put in order

_SCALAR = frozenset(
    {"_-_", "_*_", "_/_", "_%_", "!_", "-_", "_&&_", "_||_", "@not_strictly_false", "int", "uint"}
    | {"double", "bool", "type"}
)
_COMPARING = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_SEARCHING = frozenset({"contains", "startsWith", "endsWith", "size", "timestamp", "duration"})
_COPYING = frozenset({"string", "bytes"})
_LINEAR = _SCALAR | _COMPARING | _SEARCHING | {"_?_:_", "@in"}


Kind = Literal["scalar", "text", "list", "map", "any"]  # of a value; any: it is not known


class TooExpensiveError(Exception):
    """An expression that would take more steps than it may."""


class Size(Struct, frozen=True):
    """The size of the results of one part of an expression, over all its evaluations.

    `length` and `weight` are those of the largest result, `lengths` and `weights` the sums of all.
    A weight is the number of steps that it takes to hand the value over, with all that is in it.
    """

    kind: Kind
    length: int = 0  # items or characters
    lengths: int = 0
    weight: int = _NODE
    weights: int = _NODE

    def again(self, times: int) -> "Size":
        """The same results in an inner loop, which uses them more often."""
        return msgspec.structs.replace(
            self, lengths=times * self.length, weights=times * self.weight
        )


class Parts:
    """The size of results that are parts of the given values, measured when needed."""

    __slots__ = ("_known_weights", "_times", "repeats", "values")

    def __init__(
        self, values: list[Any], repeats: int | None, times: int, known_weights: "Weights"
    ) -> None:
        self.values = values
        self.repeats = repeats  # evaluations that give each of them; None: it is not known
        self._times = times
        self._known_weights = known_weights

    @property
    def kind(self) -> Kind:
        kinds = {_kind_of(value) for value in self.values} or {"scalar"}
        return kinds.pop() if len(kinds) == 1 else "any"

    @property
    def length(self) -> int:
        return max(map(_length, self.values), default=0)

    @property
    def lengths(self) -> int:
        if self.repeats is None:
            return self._times * self.length
        return self.repeats * sum(map(_length, self.values))

    @property
    def weight(self) -> int:
        return max(map(self._known_weights.of, self.values), default=_NODE)

    @property
    def weights(self) -> int:
        if self.repeats is None:
            return self._times * self.weight
        return self.repeats * sum(map(self._known_weights.of, self.values))

    def again(self, times: int) -> "Parts":
        repeats = times if len(self.values) == 1 else None
        return Parts(self.values, repeats, times, self._known_weights)


class Weights:
    """The weights of the given values and their parts, each computed once."""

    __slots__ = ("_by_id", "seen")

    def __init__(self) -> None:
        self._by_id: dict[int, int] = {}  # the values live as long as this
        self.seen = 0

    def of(self, value: Any) -> int:
        if not isinstance(value, list | dict):
            return weigh(value)
        known = self._by_id.get(id(value))
        if known is None:
            known = self._by_id[id(value)] = weigh(value)
            self.seen += known
        return known


Sized = Size | Parts


def weigh(value: Any) -> int:
    """The steps to hand a value over to the library, or back."""
    if isinstance(value, str):
        return _NODE + len(value) // _BYTES
    if not isinstance(value, list | dict):
        return _NODE
    return _weight_of(msgspec.json.encode(value))


def _weight_of(encoded: bytes) -> int:
    parts = encoded.count(b",") + encoded.count(b"[") + encoded.count(b"{") + 1
    return _NODE * parts + len(encoded) // _BYTES


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | dict) else 0


def _kind_of(value: Any) -> Kind:
    match value:
        case str():
            return "text"
        case list():
            return "list"
        case dict():
            return "map"
        case _:
            return "scalar"


class Estimate:
    """One estimate: an expression, and the values it is about to be given."""

    def __init__(self, given: Mapping[str, Any], steps: int = 0) -> None:
        self.steps = steps
        self.is_ordered = True  # whether everything that lists are made of has an order
        self._ranges = 0  # the weights of all that lists are made of
        self._given = given
        self._bound: dict[str, tuple[Sized, int]] = {}  # size of a variable, and evaluations
        self._weights = Weights()
        self._charge(weigh(given))

    def run(self, node: Node) -> None:
        """Add up the steps of an expression; raises when they are too many."""
        result = self._size(node, 1)
        self._charge(result.weight)
        if not self.is_ordered:  # then all that lists are made of goes that way
            self._charge(_ORDERING * self._ranges)

    def _charge(self, steps: int) -> None:
        self.steps += steps
        # To weigh takes time as well, though less than to hand over what is weighed.
        if self.steps + self._weights.seen // 8 > limits.MAX_EXPRESSION_STEPS:
            most = limits.MAX_EXPRESSION_STEPS
            raise TooExpensiveError(f"it can take more than {most} steps on these values")

    def _size(self, node: Node, times: int) -> Sized:
        """The size of the results of a part that is evaluated so many times."""
        self._charge(times)
        match node:
            case Constant():
                return self._parts([node.text], times, times)
            case Name():
                return self._named(node.name, times)
            case Select():
                return self._selected(node, times)
            case CallNode():
                return self._called(node, times)
            case ListNode() | MapNode():
                parts = [self._size(one, times) for one in node.items]
                return _built(parts, times, "list" if isinstance(node, ListNode) else "map")
            case Loop():
                return self._looped(node, times)
            case _:
                assert_never(node)

    def _named(self, name: str, times: int) -> Sized:
        if name not in self._bound:
            return self._parts([self._given[name]] if name in self._given else [], times, times)
        size, bound_times = self._bound[name]
        return size if bound_times == times else size.again(times)

    def _parts(self, values: list[Any], repeats: int | None, times: int) -> Parts:
        self._charge(len(values) // 8)
        return Parts(values, repeats, times, self._weights)

    def _selected(self, node: Select, times: int) -> Sized:
        operand = self._size(node.operand, times)
        if node.is_test:
            return _scalar(times)
        if isinstance(operand, Size):
            return _inner(operand)
        found = [
            value[node.field]
            for value in operand.values
            if isinstance(value, dict) and node.field in value
        ]
        return self._parts(found, operand.repeats, times)

    def _called(self, node: CallNode, times: int) -> Sized:  # noqa: C901, PLR0911 - a table
        name = node.function
        if name == "_[_]":
            return self._indexed(node, times)
        sizes = [self._size(one, times) for one in node.arguments]
        match name:
            case "_+_":
                return self._added(sizes, times)
            case "_?_:_":
                return _either(sizes[1], sizes[2], times)
            case "matches":
                return self._matched(sizes, times)
            case "@in":
                self._charge(0 if sizes[1].kind == "map" else sizes[1].weights // 2)
                return _scalar(times)
            case "dyn":
                return sizes[0]
            case _ if name in _SCALAR:
                return _scalar(times)
            case _ if name in _COMPARING:
                self._charge(min(size.weights for size in sizes))
                return _scalar(times)
            case _ if name in _SEARCHING:
                self._charge(sum(size.weights for size in sizes if size.kind in {"text", "any"}))
                return _scalar(times)
            case _ if name in _COPYING:
                self._charge(sizes[0].weights)
                return _inner(sizes[0], "text")
            case _:
                self._charge(sum(size.weights for size in sizes))
                return _built(sizes, times, "any")

    def _indexed(self, node: CallNode, times: int) -> Sized:
        operand, index = node.arguments
        size = self._size(operand, times)
        self._size(index, times)
        if isinstance(size, Size):
            return _inner(size)
        if isinstance(index, Constant):
            key = index.number if index.text is None else index.text
            found = [item for value in size.values for item in _at(value, key)]
            return self._parts(found, size.repeats, times)
        found = [item for value in size.values for item in _items(value)]
        return self._parts(found, None, times)

    def _added(self, sizes: list[Sized], times: int) -> Size:
        kinds = {size.kind for size in sizes}
        if "scalar" in kinds:
            return _scalar(times)
        left, right = sizes
        kind = kinds.pop() if len(kinds) == 1 else "any"
        lengths = left.lengths + right.lengths
        weights = left.weights + right.weights
        self._charge(weights if kind == "text" else lengths)
        return Size(kind, left.length + right.length, lengths, left.weight + right.weight, weights)

    def _matched(self, sizes: list[Sized], times: int) -> Size:
        """A pattern is compiled each time it is used; then it goes through the text."""
        pattern, text = sizes[1], sizes[0]
        found = pattern_size.States(pattern_size.MOST_STATES, pattern_size.MOST_STATES)
        if isinstance(pattern, Parts):
            self._charge(pattern.lengths // 8)
            each = [pattern_size.states(one) for one in pattern.values if isinstance(one, str)]
            compiled = max((one.compiled for one in each), default=0)
            found = pattern_size.States(compiled, max((one.active for one in each), default=0))
        self._charge(times * found.compiled * pattern_size.STEPS_PER_STATE)
        self._charge(text.lengths * (8 + found.active) // 32)
        return _scalar(times)

    def _looped(self, node: Loop, times: int) -> Sized:
        over = self._size(node.over, times)
        times_in = min(over.lengths, MOST_ITERATIONS)
        length = min(over.length, MOST_ITERATIONS)
        self._charge(4 * times_in)
        if isinstance(over, Parts):
            items = [item for value in over.values for item in _keys_or_items(value)]
            variable: Sized = self._parts(items, over.repeats, times_in)
        else:
            variable = _inner(over)
        outer = {name: self._bound.get(name) for name in (node.variable, node.total)}
        self._bound[node.variable] = (variable, times_in)
        self._bound[node.total] = (_scalar(times_in), times_in)
        item = self._appended(node, times_in)
        for name, bound in outer.items():
            if bound is None:
                del self._bound[name]
            else:
                self._bound[name] = bound
        if item is None:
            return _scalar(times)
        self._ranges += over.weights
        if over.kind != "list":
            self.is_ordered = False
        self._charge(times_in * length // 2)  # the list so far is copied for each item
        weight = _NODE + min(length * item.weight, item.weights)
        return Size("list", length, times_in, weight, _NODE * times + item.weights)

    def _appended(self, loop: Loop, times: int) -> Sized | None:
        """The size of the items that a loop adds to its list; None: it makes no list."""
        step = loop.step
        if isinstance(step, CallNode) and step.function == "_?_:_":
            condition, step, _ = step.arguments
            self._size(condition, times)
        if isinstance(step, CallNode) and step.function == "_+_":
            added = step.arguments[1]
            if isinstance(added, ListNode):
                return self._size(added.items[0], times)
        self._size(step, times)
        return None


class LinearBound(Struct, frozen=True):
    """A bound on the steps of an expression that has no loop, and only adds, selects and compares.

    Every result of such an expression is a part of the given values, a constant, or the sum of as
    many of them as it adds. So its steps are linear in the size of the values, and for the usual
    small ones the bound is far below what counts: the estimate need not be worked out.
    """

    nodes: int
    factor: int
    constants: int  # bytes and weights of all constants

    @classmethod
    def of(cls, root: Node) -> "LinearBound | None":
        """The bound of a tree; None where no such bound holds."""
        nodes, calls, additions, constants = 0, 0, 0, _NODE
        left: list[Node] = [root]
        while left:
            node = left.pop()
            nodes += 1
            match node:
                case Constant():
                    constants += weigh(node.text) + _length(node.text)
                case Name():
                    pass
                case Select() if isinstance(node.operand, Name | Select):
                    left.append(node.operand)
                case CallNode() if node.function == "_+_" or node.function in _LINEAR:
                    calls += 1
                    additions += node.function == "_+_"
                    left.extend(node.arguments)
                case _:
                    return None
        most_arguments = 3
        return cls(nodes, (most_arguments * calls + 1) * (additions + 1), constants)

    def covers(self, given: Mapping[str, Any]) -> bool:
        """Whether the expression takes no more steps on these values than are free."""
        try:
            return self.most_steps(given) <= limits.FREE_EXPRESSION_STEPS
        except (RecursionError, UnicodeError, OverflowError):
            return False

    def most_steps(self, given: Mapping[str, Any]) -> int:
        encoded = msgspec.json.encode(given)
        size = len(encoded) + _weight_of(encoded) + self.constants
        return self.nodes + self.factor * size


def _scalar(times: int) -> Size:
    return Size("scalar", weights=_NODE * times)


def _inner(size: Sized, kind: Kind = "any") -> Size:
    """A part of a value of which only the size is known."""
    return Size(kind, size.weight * _BYTES, size.weights * _BYTES, size.weight, size.weights)


def _built(parts: Iterable[Sized], times: int, kind: Kind) -> Size:
    sizes = list(parts)
    weight = _NODE + sum(size.weight for size in sizes)
    weights = _NODE * times + sum(size.weights for size in sizes)
    return Size(kind, len(sizes), times * len(sizes), weight, weights)


def _either(left: Sized, right: Sized, times: int) -> Size:
    """One of two results, each time."""
    length, weight = max(left.length, right.length), max(left.weight, right.weight)
    return Size(
        left.kind if left.kind == right.kind else "any",
        length,
        min(times * length, left.lengths + right.lengths),
        weight,
        min(times * weight, left.weights + right.weights),
    )


def _at(value: Any, key: str | int | None) -> list[Any]:
    if isinstance(value, dict) and key in value:
        return [value[key]]
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return [value[key]]
    return []


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _keys_or_items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, dict | list) else ()
