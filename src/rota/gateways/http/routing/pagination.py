"""Pages of lists: a limit, a cursor, and one row more that tells whether there is a next page."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from msgspec import Meta

from rota.core import ids, limits
from rota.core.ids import TaskId
from rota.errors import Invalid
from rota.gateways.validation import invalid_field
from rota.messages import Request

MAX_CURSOR_DIGITS = 18

Row = TypeVar("Row")


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
