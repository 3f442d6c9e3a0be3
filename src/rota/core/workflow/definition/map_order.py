"""A fixed iteration order for maps, which CEL leaves open.

A journal is replayed by another process, perhaps years later, and must give the same decisions. So
where an expression makes a list of a map (`m.map(…)`, `m.filter(…)`), its source is rewritten to
iterate over the sorted keys: `_ordered_keys(m).map(…)`. Lists are left as they are.
"""

import re
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]  # has types, but no marker

FUNCTION = "_ordered_keys"
_LISTING = frozenset({"map", "filter"})

_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?|0x[0-9a-fA-F]+[uU]?|[A-Za-z_]\w*|.""",
    re.VERBOSE | re.DOTALL,
)
_OPERATORS = frozenset({"in"})
_BLANK = re.compile(r"\s|//")
_CLOSING = {")": "(", "]": "[", "}": "{"}


def _keys(value: Any) -> list[Any]:
    return sorted(value, key=lambda key: (str(type(key)), key))


def function() -> cel.FunctionDecl:
    """The CEL function that rewritten sources call."""
    maps = cel.Overload(
        id=f"{FUNCTION}_map",
        return_type=cel.Type.LIST,
        parameters=[cel.Type.MAP],
        impl=_keys,
    )
    lists = cel.Overload(
        id=f"{FUNCTION}_list",
        return_type=cel.Type.LIST,
        parameters=[cel.Type.LIST],
        impl=lambda value: value,
    )
    return cel.FunctionDecl(FUNCTION, [maps, lists])


def ordered(source: str) -> str:
    """The source, with the receivers of its listing macros put in order."""
    found = [match for match in _TOKEN.finditer(source) if not _BLANK.match(match.group())]
    tokens = [match.group() for match in found]
    inserted: list[tuple[int, int, str]] = []  # position, order at it, text
    for place, token in enumerate(tokens):
        is_call = tokens[place + 1 : place + 2] == ["("] and tokens[place - 1 : place] == ["."]
        if token in _LISTING and is_call and place >= 2:
            inserted.append((found[_receiver(tokens, place - 2)].start(), 1, f"{FUNCTION}("))
            inserted.append((found[place - 2].end(), 0, ")"))
    for position, _, text in sorted(inserted, reverse=True):
        source = source[:position] + text + source[position:]
    return source


def split(source: str) -> tuple[str, str] | None:
    """The receiver and the macro of a source that is one listing macro as a whole."""
    found = [match for match in _TOKEN.finditer(source) if not _BLANK.match(match.group())]
    tokens = [match.group() for match in found]
    if not tokens or tokens[-1] != ")":
        return None
    name = _opening(tokens, len(tokens) - 1) - 1
    is_call = name >= 2 and tokens[name] in _LISTING and tokens[name - 1] == "."
    if not is_call or _receiver(tokens, name - 2) != 0:
        return None
    dot = found[name - 1].start()
    return source[:dot], source[dot:]


def _receiver(tokens: list[str], end: int) -> int:
    """The index of the first token of the expression that ends at `end`."""
    place = end
    while True:
        if tokens[place] in _CLOSING:
            place = _opening(tokens, place)
            before = tokens[place - 1] if place else ""
            has_operand = _is_operand(before)
            if tokens[place] == "{" or not has_operand:
                return place
            place -= 1  # a call's name, or what is indexed
            if tokens[place] in _CLOSING:
                continue
        if place >= 2 and tokens[place - 1] == ".":
            place -= 2
        else:
            return place


def _is_operand(token: str) -> bool:
    return token in _CLOSING or (token not in _OPERATORS and _is_word(token))


def _is_word(token: str) -> bool:
    return bool(token) and (token[-1].isalnum() or token[-1] in "_\"'")


def _opening(tokens: list[str], place: int) -> int:
    depth = 0
    while place > 0:
        if tokens[place] in _CLOSING:
            depth += 1
        elif tokens[place] in _CLOSING.values():
            depth -= 1
            if not depth:
                return place
        place -= 1
    return 0
