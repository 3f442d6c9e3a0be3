"""Events on the wire."""

from typing import Any

from rota.messages.base import Answer


class EventView(Answer, frozen=True, kw_only=True):
    seq: int  # rises by one with each event, and is never used twice
    at_ms: int
    type: str  # such as task-failed; see the list of types
    subject: str  # the id or name that the event is about
    data: dict[str, Any] = {}


class EventPage(Answer, frozen=True, kw_only=True):
    items: list[EventView]  # the oldest first
    next_cursor: str | None = None  # the same as `next_after`, if there are more events already
    next_after: int  # the `after` of the next call: no event is missed or repeated
    oldest_seq: int  # of the oldest event that is kept
    last_seq: int  # of the newest event
