"""Unique and debounced tasks: keys that one task at a time holds within its queue.

Whether a task holds its key is decided once, when it is submitted. A unique task lets go of its key
at the point that it names: when it starts, or when it ends. A debounced task holds its key while it
is scheduled. No later change of a task's state asks for the key again.

Both kinds of keys, and the keys that are made from the fields of a task, are stored as one text
each. A prefix for each kind keeps them apart.
"""

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rota.core import limits
from rota.core.schedules.durations import Duration, DurationFields
from rota.errors import Invalid

KeyText = Annotated[str, Meta(min_length=1, max_length=limits.MAX_KEY_LENGTH)]
FieldPath = Annotated[
    str,
    Meta(
        max_length=limits.MAX_NAME_LENGTH,
        pattern=r"^(name|payload(\.[^.]+)*)$",
        description="`name`, `payload`, or a path such as `payload.user.id`.",
    ),
]
Fields = Annotated[tuple[FieldPath, ...], Meta(min_length=1, max_length=limits.MAX_UNIQUE_FIELDS)]
GIVEN_KEY, FIELDS_KEY, DEBOUNCE_KEY = "key:", "by:", "debounce:"
NAME, PAYLOAD = "name", "payload"
DEFAULT_FIELDS = (NAME, PAYLOAD)
# JSON has numbers that Python lacks; of a payload, only its depth has been checked before.
UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


class Release(StrEnum):
    """The point at which a task lets go of its key."""

    START = "start"  # when it is leased for the first time, or ends before that
    END = "end"


class Unique(
    Struct,
    metaclass=DurationFields,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """No second task with the same key is accepted in the queue while this one holds it."""

    key: KeyText | None = None  # not together with `by`
    # The fields of the task that make up its key; neither this nor `key`: its name and payload.
    by: Fields | None = None
    # Until it starts for the first time, or until it ends.
    while_: Literal["queued", "unfinished"] = msgspec.field(name="while", default="unfinished")
    # No longer than this, from its acceptance.
    for_ms: Annotated[int, Meta(ge=1, le=limits.MAX_DELAY_MS)] | None = None
    # The answer to a second task: the first one, the first one with the contents of the second (if
    # it still waits), or the error `unique_conflict`.
    on_conflict: Literal["return", "replace", "reject"] = "return"

    if TYPE_CHECKING:  # with durations; see `DurationFields`

        def __init__(
            self,
            *,
            key: str | None = ...,
            by: Fields | None = ...,
            while_: Literal["queued", "unfinished"] = ...,
            for_ms: int | None = ...,
            for_: Duration = ...,
            on_conflict: Literal["return", "replace", "reject"] = ...,
        ) -> None: ...

    @property
    def release(self) -> Release:
        return Release.START if self.while_ == "queued" else Release.END


class Debounce(
    Struct,
    metaclass=DurationFields,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Tasks with the same key that come in quick succession become one task, which starts late."""

    key: KeyText
    # The task is due when none with its key has come for this long.
    wait_ms: Annotated[int, Meta(ge=1, le=limits.MAX_DELAY_MS)]
    # It is due after this at the latest, from the first one on; none: no such bound.
    max_wait_ms: Annotated[int, Meta(ge=1, le=limits.MAX_DELAY_MS)] | None = None
    keep: Literal["last", "first"] = "last"  # the one whose contents the task has

    if TYPE_CHECKING:  # with durations; see `DurationFields`

        def __init__(
            self,
            *,
            key: str,
            wait_ms: int = ...,
            wait: Duration = ...,
            max_wait_ms: int | None = ...,
            max_wait: Duration = ...,
            keep: Literal["last", "first"] = ...,
        ) -> None: ...


class HeldKey(Struct, frozen=True):
    """A key of a task, as it is stored."""

    key: str
    release: Release
    until_ms: int | None = None  # the task lets go of it at this moment at the latest


def held_key(unique: Unique, *, name: str, payload: bytes, now_ms: int) -> HeldKey:
    """The key that a unique task would hold if it were accepted now."""
    if unique.key is not None:
        key = GIVEN_KEY + unique.key
    else:
        key = FIELDS_KEY + _digest(unique.by or DEFAULT_FIELDS, name, payload)
    until_ms = None if unique.for_ms is None else now_ms + unique.for_ms
    return HeldKey(key, unique.release, until_ms)


def debounce_key(debounce: Debounce) -> HeldKey:
    return HeldKey(DEBOUNCE_KEY + debounce.key, Release.START)


def debounced_due_ms(debounce: Debounce, *, first_ms: int, now_ms: int) -> int:
    """The moment that a debounced task is due; `first_ms`: when the first one was accepted."""
    latest_ms = first_ms + (debounce.max_wait_ms or limits.MAX_DELAY_MS)
    return min(now_ms + debounce.wait_ms, latest_ms)


def _digest(fields: tuple[str, ...], name: str, payload: bytes) -> str:
    """A digest of the fields and their values; a field that the payload lacks is null."""
    try:
        document = msgspec.json.decode(payload) if any(path != NAME for path in fields) else None
    except UNREADABLE as error:
        raise Invalid(
            f"unique.by: the payload has a value that cannot be compared ({error}); give a key",
            field="unique",
        ) from None
    values = {path: name if path == NAME else _value(document, path) for path in fields}
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


def _value(document: Any, path: str) -> Any:
    for part in path.split(".")[1:]:
        if not isinstance(document, dict):
            return None
        document = document.get(part)
    return document
