"""Query parameters, decoded into the endpoint's struct.

A struct names the parameters of an endpoint; others are refused by name. An empty value is the
same as none. Lists are repeated parameters; those of named values may also be comma separated.
"""

import enum
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from rota.errors import Invalid
from rota.gateways.validation import invalid, invalid_field

MAX_PARAMETERS = 300

Query = TypeVar("Query", bound=Struct)


def parse(query_string: bytes, kind: type[Query]) -> Query:
    """Read a query string into its struct."""
    if not query_string:
        return kind()
    lists = _list_fields(kind)
    values: dict[str, Any] = {}
    for name, value in _pairs(query_string):
        if name not in kind.__struct_fields__:
            raise Invalid(f"unknown parameter {name!r}", field=name)
        if not value:
            continue
        if name in lists:
            values.setdefault(name, []).extend(value.split(",") if lists[name] else [value])
        elif name in values:
            raise invalid_field(name, "given more than once")
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from None


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except UnicodeError:
        raise Invalid("the query string is not valid UTF-8") from None
    except ValueError:
        raise Invalid(f"more than {MAX_PARAMETERS} parameters", limit=MAX_PARAMETERS) from None


@lru_cache
def _list_fields(kind: type[Struct]) -> dict[str, bool]:
    """The fields that may be repeated, and whether commas separate their values."""
    found = {}
    for field in msgspec.structs.fields(kind):
        annotation = field.type
        while get_origin(annotation) not in {None, tuple} and get_args(annotation):
            annotation = get_args(annotation)[0]
        if get_origin(annotation) is tuple:
            item = get_args(annotation)[0]
            found[field.name] = isinstance(item, type) and issubclass(item, enum.Enum)
    return found
