"""The syntax tree of a CEL expression, read from its serialized form.

The library gives no tree, but it serializes what it has compiled, in the published protocol buffer
message `cel.expr.CheckedExpr`. Only the parts that matter for the cost are read.
"""

from collections.abc import Iterator
from typing import Literal, Union, assert_never

from msgspec import Struct


class Constant(Struct, frozen=True):
    text: str | None  # None: a number, a truth value or null
    number: int | None = None
    kind: Literal["null", "boolean", "number", "string"] | None = None  # None: bytes


class Name(Struct, frozen=True):
    name: str


class Select(Struct, frozen=True):
    operand: "Node"
    field: str
    is_test: bool  # `has(…)`


class CallNode(Struct, frozen=True):
    function: str
    arguments: tuple["Node", ...]  # the receiver comes first


class ListNode(Struct, frozen=True):
    items: tuple["Node", ...]


class MapNode(Struct, frozen=True):
    items: tuple["Node", ...]  # keys and values


class Loop(Struct, frozen=True):
    """A comprehension, made by `map`, `filter`, `all`, `exists` and `exists_one`."""

    variable: str
    over: "Node"
    total: str  # the name of the accumulator
    step: "Node"


Node = Union[Constant, Name, Select, CallNode, ListNode, MapNode, Loop]  # noqa: UP007 - names itself

# The fields of the message `cel.expr.Constant`.
_KINDS: dict[int, Literal["null", "boolean", "number", "string"]] = {
    1: "null",
    2: "boolean",
    3: "number",
    4: "number",
    5: "number",
    6: "string",
}

Fields = dict[int, list["bytes | int"]]


def tree(serialized: bytes) -> Node:
    """The tree of a serialized expression."""
    checked = _fields(_bytes(_fields(serialized), 2))
    return _node(_bytes(checked, 4))


def nesting(node: Node) -> int:
    """The depth of nested loops."""
    match node:
        case Loop():
            return max(nesting(node.over), 1 + nesting(node.step))
        case Select():
            return nesting(node.operand)
        case CallNode():
            return max(map(nesting, node.arguments), default=0)
        case ListNode() | MapNode():
            return max(map(nesting, node.items), default=0)
        case Constant() | Name():
            return 0
        case _:
            assert_never(node)


def _node(message: bytes) -> Node:  # noqa: PLR0911 - a table
    fields = _fields(message)
    if 3 in fields:
        constant = _fields(_bytes(fields, 3))
        is_text = 6 in constant or 7 in constant
        text = _bytes(constant, 6 if 6 in constant else 7).decode("utf-8", "replace")
        number = next(iter(constant.get(3, ())), None)
        kind = next((_KINDS[field] for field in constant if field in _KINDS), None)
        return Constant(
            text if is_text else None, number if isinstance(number, int) else None, kind
        )
    if 4 in fields:
        return Name(_text(_fields(_bytes(fields, 4)), 1))
    if 5 in fields:
        select = _fields(_bytes(fields, 5))
        return Select(_node(_bytes(select, 1)), _text(select, 2), 3 in select)
    if 6 in fields:
        call = _fields(_bytes(fields, 6))
        return CallNode(_text(call, 2), (*_nodes(call, 1), *_nodes(call, 3)))
    if 7 in fields:
        return ListNode(tuple(_nodes(_fields(_bytes(fields, 7)), 1)))
    if 8 in fields:
        entries = [_fields(one) for one in _all(_fields(_bytes(fields, 8)), 2)]
        return MapNode(
            tuple(node for one in entries for key in (3, 4) for node in _nodes(one, key))
        )
    loop = _fields(_bytes(fields, 9))
    return Loop(_text(loop, 1), _node(_bytes(loop, 2)), _text(loop, 3), _node(_bytes(loop, 6)))


def _nodes(fields: Fields, number: int) -> Iterator[Node]:
    return map(_node, _all(fields, number))


def _all(fields: Fields, number: int) -> Iterator[bytes]:
    return (one for one in fields.get(number, ()) if isinstance(one, bytes))


def _bytes(fields: Fields, number: int) -> bytes:
    return next(_all(fields, number), b"")


def _text(fields: Fields, number: int) -> str:
    return _bytes(fields, number).decode()


def _fields(message: bytes) -> Fields:
    """The fields of a protocol buffer message, by number."""
    fields: Fields = {}
    place = 0
    while place < len(message):
        tag, place = _number(message, place)
        value: bytes | int
        match tag & 7:
            case 0:
                value, place = _number(message, place)
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                value, place = message[place : place + size], place + size
            case _:
                size, place = _number(message, place)
                value, place = message[place : place + size], place + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _number(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if byte < 0x80:
            return number, place
