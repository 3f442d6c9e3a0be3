"""Idempotency keys: a key is unique within its queue and within its space.

Callers and sessions write keys. Both are stored as one text, and the two spaces never overlap: the
key of a session begins with `session:`, and a caller's key that begins like that, or like the
escape itself, is stored with the escape before it. So no caller's key names a task of a session.
"""

from enum import StrEnum

from rota.core import limits
from rota.core.tasks.model import NewTask
from rota.errors import Invalid

SESSION_PREFIX = "session:"  # of every key that is made from a session's name for a task
ESCAPE = "caller-key:"  # before a caller's key that begins with one of these two
RESERVED = (SESSION_PREFIX, ESCAPE)
MOST_BYTES_PER_CHARACTER = 4

KeyPlace = tuple[str, str]  # the queue, and the key as it is kept: what names one task


class KeySpace(StrEnum):
    """The author of a key."""

    CALLER = "caller"  # given with the task by the caller that submits it
    SESSION = "session"  # made by Rota from the name that a session gives to a task


def kept_key(key: str, space: KeySpace) -> str:
    """The key as it is kept, in the core and in the store; no two keys are kept as one text."""
    if space is KeySpace.SESSION:
        assert key.startswith(SESSION_PREFIX), "keys of sessions are made by `sessions.key_of`"
        return key
    return ESCAPE + key if key.startswith(RESERVED) else key


def shown_key(kept: str) -> str:
    """The key as its author wrote it."""
    return kept.removeprefix(ESCAPE)


def kept_forms(key: str) -> list[str]:
    """Every kept key that is shown as this text: that of a caller, then that of a session."""
    forms = [kept_key(key, KeySpace.CALLER)]
    return [*forms, key] if key.startswith(SESSION_PREFIX) else forms


def check_key_size(queue: str, key: str) -> None:
    """Refuse a key that is too large for an index entry together with the name of its queue."""
    most = limits.MAX_KEY_BYTES
    if (len(queue) + len(key)) * MOST_BYTES_PER_CHARACTER <= most:
        return
    if len(queue.encode()) + len(key.encode()) > most:
        raise Invalid(
            f"key: has more than {most} bytes together with the name of its queue; "
            "use a shorter key",
            field="key",
        )


def check_unique(task: NewTask) -> None:
    """Refuse options of a unique or debounced task that contradict each other."""
    unique, debounce = task.unique, task.debounce
    if unique is not None:
        if debounce is not None:
            raise Invalid("debounce: give this or unique, not both", field="debounce")
        if unique.key is not None and unique.by:
            raise Invalid("unique.by: give this or key, not both", field="unique")
        if unique.key is not None:
            check_key_size(task.queue, unique.key)
    if debounce is not None:
        if task.delay_ms is not None or task.run_at_ms is not None:
            raise Invalid(
                "debounce: says when the task is due; leave out delay_ms and run_at_ms",
                field="debounce",
            )
        check_key_size(task.queue, debounce.key)
