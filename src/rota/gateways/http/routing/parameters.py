"""Query parameters, decoded into the endpoint's struct, and the pages of lists.

A struct names the parameters of an endpoint; others are refused by name. An empty value is the
same as none. Lists are repeated parameters; those of named values may also be comma separated.

A page has a limit and a cursor. One row more than the limit is read: if there is one, there is a
next page.
"""

import enum
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from rota.core import ids, limits
from rota.core.ids import TaskId
from rota.errors import Invalid
from rota.gateways.validation import invalid, invalid_field
from rota.messages import Request

MAX_PARAMETERS = 300
MAX_CURSOR_DIGITS = 18

Query = TypeVar("Query", bound=Struct)
Row = TypeVar("Row")


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


# --- pages of lists -----------------------------------------------------------------------------


class PageQuery(Request, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_PAGE)] = limits.DEFAULT_PAGE
    cursor: Annotated[
        str | None, Meta(description="`next_cursor` of the page before this one.")
    ] = None


def page_of(
    found: list[Row], limit: int, cursor_of: Callable[[Row], str]
) -> tuple[list[Row], str | None]:
    """The rows of a page and the cursor of the next one, if one row more than a page was found."""
    page = found[:limit]
    return page, cursor_of(page[-1]) if len(found) > len(page) else None


def invalid_cursor() -> Invalid:
    return invalid_field("cursor", "not one of ours; take `next_cursor` as it came")


def id_before(cursor: str | None) -> TaskId | None:
    """The id of a task or run in a cursor."""
    if cursor is None:
        return None
    found = ids.from_text(cursor)
    if found is None:
        raise invalid_cursor()
    return found


def number_of(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= MAX_CURSOR_DIGITS):
        raise invalid_cursor()
    return int(cursor)
