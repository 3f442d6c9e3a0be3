"""References in a JSON Schema: their targets, and the work that they cause.

A schema comes from outside, and the coordinator follows it. So a reference may lead to a place in
the same document or to a published meta-schema only: anything else would have to be fetched. And
references may not multiply. A few lines of `allOf` that each name the line before twice cause
billions of checks, of one value or, when the schema is recursive, of a value with a few levels.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from msgspec import Struct

from rota.core import limits
from rota.core.workflow.definition import pattern_size

META_SCHEMAS = frozenset(
    {
        "json-schema.org/schema",
        "json-schema.org/draft-04/schema",
        "json-schema.org/draft-06/schema",
        "json-schema.org/draft-07/schema",
        "json-schema.org/draft/2019-09/schema",
        "json-schema.org/draft/2020-12/schema",
    }
)
_META_PARTS = ("json-schema.org/draft/2019-09/meta/", "json-schema.org/draft/2020-12/meta/")
_ROOT = "http://schema.invalid/"  # the address of a document that has none

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = frozenset({"const", "enum", "default", "examples", "example"})
_NAMED = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
# The schemas of a keyword check the value itself, an item of it, or a property.
_SAME = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ITEMS = ("prefixItems", "items", "additionalItems", "contains", "unevaluatedItems")
_ANY_PROPERTY = ("patternProperties", "unevaluatedProperties", "propertyNames")

_OTHER = ""  # a property that no schema names
_WORST = "/"  # the property of each schema that causes the most work
_LEVELS = 16  # of a value, for which the checks are counted
_MOST_TOGETHER = 20_000  # schemas times properties, up to which properties are distinguished


class ExpensiveSchemaError(Exception):
    """A schema that causes too much work."""


class SchemaNode(Struct, eq=False):
    """One schema in a document."""

    schema: dict[str, Any]
    path: str
    base: str  # the address that its references are relative to


def leaving(schema: Any) -> str | None:
    """The first reference that leads out of the document; None when all stay in it."""
    nodes = _all_nodes(schema)
    known = {_ROOT, *(node.base for node in nodes)}
    for node in nodes:
        named = node.schema.get("$schema")
        if isinstance(named, str) and _plain(named) not in META_SCHEMAS:
            return f"{_place(node, '$schema')}: {named!r} is not a meta-schema known here"
        for keyword in _REFERENCES:
            reference = node.schema.get(keyword)
            if isinstance(reference, str) and not _stays(node, reference, known):
                return f"{_place(node, keyword)}: {reference!r} is not in this schema"
    return None


def checks(schema: Any) -> int:
    """The most schemas that check one value and its parts, on one path down it.

    Raises when the references of the schema multiply, or when it is too large.
    """
    nodes = _all_nodes(schema)
    if not nodes:
        return 1
    if len(nodes) > limits.MAX_SCHEMA_PARTS:
        raise ExpensiveSchemaError(f"it has more than {limits.MAX_SCHEMA_PARTS} schemas in it")
    work = _Work(nodes)
    if work.unresolved is not None:
        raise ExpensiveSchemaError(work.unresolved)
    found = work.most(_LEVELS)
    if found > limits.MAX_SCHEMA_CHECKS:
        raise ExpensiveSchemaError(
            f"it makes more than {limits.MAX_SCHEMA_CHECKS} checks of one value "
            f"with {_LEVELS} levels"
        )
    return found


def _place(node: SchemaNode, keyword: str) -> str:
    return f"{node.path}.{keyword}".lstrip(".")


def _plain(address: str) -> str:
    """An address without its scheme and its fragment."""
    return urldefrag(address).url.removeprefix("https://").removeprefix("http://")


def _stays(node: SchemaNode, reference: str, known: set[str]) -> bool:
    try:
        address = urldefrag(urljoin(node.base, reference)).url
    except ValueError:
        return False
    return address in known or _is_published(address)


def _is_published(address: str) -> bool:
    plain = _plain(address)
    return plain in META_SCHEMAS or plain.startswith(_META_PARTS)


def _all_nodes(document: Any) -> list[SchemaNode]:
    """Every schema in a document, the outermost first."""
    named = document.get("$schema") if isinstance(document, dict) else None
    is_fourth = isinstance(named, str) and _plain(named) == "json-schema.org/draft-04/schema"
    return list(_nodes(document, "", _ROOT, "id" if is_fourth else "$id"))


def _nodes(schema: Any, path: str, base: str, identifies: str) -> Iterator[SchemaNode]:
    """Every schema from here on. Data such as `enum` and `default` contains none."""
    if not isinstance(schema, dict):
        return
    identifier = schema.get(identifies)
    if isinstance(identifier, str):
        with contextlib.suppress(ValueError):  # not an address; the validator reports it
            base = urldefrag(urljoin(base, identifier)).url
    yield SchemaNode(schema, path, base)
    for keyword, value in schema.items():
        for place, inner in _inside(keyword, value):
            yield from _nodes(inner, f"{path}.{place}".lstrip("."), base, identifies)


def _inside(keyword: str, value: Any) -> Iterator[tuple[str, Any]]:
    if keyword in _DATA:
        return
    if isinstance(value, list):
        yield from ((f"{keyword}[{number}]", one) for number, one in enumerate(value))
    elif keyword in _NAMED and isinstance(value, dict):
        yield from ((f"{keyword}.{name}", one) for name, one in value.items())
    else:
        yield keyword, value


class _Links(Struct, eq=False):
    """The schemas that one schema refers to, by their ids."""

    own: int  # checks of its own
    same: list[int]  # for the same value
    items: list[int]  # for each item
    named: dict[str, int]  # for a property of this name
    open: list[int]  # for any property
    additional: list[int]  # for a property that is not named


class _Work:
    """Bounds how often schemas check the values on one path down.

    The path goes down level by level, at each by an item or by one property. All schemas of a value
    apply together, and each adds those of the next level.
    """

    def __init__(self, nodes: list[SchemaNode]) -> None:
        self.unresolved: str | None = None
        self._root = nodes[0]
        self._known = {id(node.schema) for node in nodes}
        self._by_base: dict[str, list[SchemaNode]] = {}
        for node in nodes:
            self._by_base.setdefault(node.base, []).append(node)
        self._links = {id(node.schema): self._linked(node) for node in nodes}
        names = {name for links in self._links.values() for name in links.named}
        is_small = len(names) * len(nodes) <= _MOST_TOGETHER
        self._ways: list[str | None] = [*sorted(names), _OTHER] if is_small else [_WORST]
        self._ways.append(None)  # by an item

    def _linked(self, node: SchemaNode) -> _Links:
        schema = node.schema
        named = schema.get("properties")
        properties = named.items() if isinstance(named, dict) else ()
        return _Links(
            own=1 + sum(_states(one) for one in _patterns(schema)),
            same=[*_ids(schema, _SAME), *(id(one) for one in self._referred(node))],
            items=_ids(schema, _ITEMS),
            named={name: id(one) for name, one in properties if isinstance(one, dict)},
            open=_ids(schema, _ANY_PROPERTY),
            additional=_ids(schema, ("additionalProperties",)),
        )

    def most(self, levels: int) -> int:
        """The checks on the worst path down, or on its beginning when that has too many."""
        below: dict[int, int] = {}
        root = id(self._root.schema)
        for _ in range(levels):
            level: dict[int, int] = {}
            for way in self._ways:
                counted: dict[int, int] = {}
                for key in self._links:
                    here = self._count(key, way, below, counted)
                    level[key] = max(level.get(key, 0), here)
            is_settled = level == below
            below = level
            if is_settled or below[root] > limits.MAX_SCHEMA_CHECKS:
                break
        return below[root]

    def _count(
        self, key: int, way: str | None, below: dict[int, int], counted: dict[int, int]
    ) -> int:
        known = counted.get(key)
        if known is not None:
            return known
        counted[key] = 0  # a schema that refers to itself at the same level ends here
        links = self._links[key]
        total = links.own + _one_down(links, way, below)
        for one in links.same:
            total += self._count(one, way, below, counted)
        counted[key] = total = min(total, limits.MAX_SCHEMA_CHECKS + 1)
        return total

    def _referred(self, node: SchemaNode) -> Iterator[dict[str, Any]]:
        for keyword in _REFERENCES:
            reference = node.schema.get(keyword)
            if not isinstance(reference, str):
                continue
            address, fragment = urldefrag(urljoin(node.base, reference))
            found = list(self._resolved(address, unquote(fragment)))
            if not found and address == node.base:
                # Up to draft 7, an identifier beside a reference does not count.
                found = list(self._resolved(self._root.base, unquote(fragment)))
            if not found and not _is_published(address):
                self.unresolved = f"{_place(node, keyword)}: {reference!r} leads to no schema"
            yield from found

    def _resolved(self, address: str, fragment: str) -> Iterator[dict[str, Any]]:
        candidates = self._by_base.get(address, [])
        if candidates and (not fragment or fragment.startswith("/")):
            at = _followed(candidates[0].schema, fragment)
            if isinstance(at, dict) and id(at) in self._known:
                yield at
            return
        for one in candidates:  # an anchor; more than one when it is a dynamic one
            names = (one.schema.get(keyword) for keyword in ("$anchor", "$dynamicAnchor"))
            if fragment in names or f"#{fragment}" in (one.schema.get("$id"), one.schema.get("id")):
                yield one.schema


def _one_down(links: _Links, way: str | None, below: dict[int, int]) -> int:
    """The checks one level down this path."""
    if way is None:
        return sum(below.get(one, 0) for one in links.items)
    total = sum(below.get(one, 0) for one in links.open)
    if way == _WORST:
        additional = sum(below.get(one, 0) for one in links.additional)
        named = max((below.get(one, 0) for one in links.named.values()), default=0)
        return total + max(named, additional)
    if way in links.named:
        return total + below.get(links.named[way], 0)
    return total + sum(below.get(one, 0) for one in links.additional)


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(schema.get("pattern"), str):
        yield schema["pattern"]
    if isinstance(schema.get("patternProperties"), dict):
        yield from schema["patternProperties"]


def _states(pattern: str) -> int:
    """The active states of a pattern, several of which take one step."""
    return pattern_size.states(pattern).active // 8


def _ids(schema: dict[str, Any], keywords: Iterable[str]) -> list[int]:
    """The ids of the schemas under some keywords."""
    return [
        id(one)
        for keyword in keywords
        if keyword in schema
        for _, one in _inside(keyword, schema[keyword])
        if isinstance(one, dict)
    ]


def _followed(document: Any, pointer: str) -> Any:
    """The value that a JSON pointer names."""
    for escaped in pointer.split("/")[1:]:
        part = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        else:
            return None
    return document
