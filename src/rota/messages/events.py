"""Events on the wire."""

from typing import Any

from rota.messages.base import Answer


class EventView(Answer, frozen=True, kw_only=True):
    seq: int  # rises by one from event to event, and is never given twice
    at_ms: int
    type: str  # such as task-failed; see the list of types
    subject: str  # the id or name of what it is about
    data: dict[str, Any] = {}


class EventPage(Answer, frozen=True, kw_only=True):
    items: list[EventView]  # the oldest first
    next_cursor: str | None = None  # as `next_after`, when more is there already
    next_after: int  # give this as `after` to go on; nothing is missed, nothing comes twice
    oldest_seq: int  # that is stored; older ones are pruned
    last_seq: int  # that was given
