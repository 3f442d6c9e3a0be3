"""Tasks that others have put into their own transactions: what is in such a row?

Whoever shares the database with a coordinator may write a task into the `inbox` together with what
the task is about. Once that is committed, the row is there for good, and nobody waits who could be
told that it is not valid. So a row that cannot be accepted becomes a task as well: one that has
failed, with the reason, under the key that its submitter looks for it by.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Raw, Struct

from rota.core import limits
from rota.core.tasks import NULL, Lane, NewTask, TaskError, lane_of
from rota.core.values import check_value
from rota.errors import Invalid, Malformed, RotaError, TooMany

UNACCEPTED = Lane("default", "unaccepted")  # for what does not say what it is

_task_decoder = msgspec.json.Decoder(NewTask)


class InboxItem(Struct, frozen=True):
    """A task from the inbox; with an error one that is not to be run."""

    task: NewTask
    error: TaskError | None = None


def read_item(key: str, content: bytes, *, most_bytes: int) -> InboxItem:
    """What a row says; where the task says nothing of a key, that of the row counts."""
    try:
        task = _decoded(content)
        if task.delay_ms is not None and task.run_at_ms is not None:
            raise Invalid("run_at_ms: give this or delay_ms, not both", field="run_at_ms")
        if task.key is None and not 0 < len(key) <= limits.MAX_KEY_LENGTH:
            raise Invalid(f"key: 1 to {limits.MAX_KEY_LENGTH} characters", field="key")
        check_value(task.payload, "payload", most_bytes=most_bytes)
    except RotaError as error:
        return refused(_as_far_as_known(key, content, most_bytes), error)
    return InboxItem(task if task.key else msgspec.structs.replace(task, key=key))


def refused(task: NewTask, error: RotaError) -> InboxItem:
    reason = TaskError(type=error.code, message=error.detail, retryable=False)
    return InboxItem(task, reason)


def _decoded(content: bytes) -> NewTask:
    try:
        content.decode()  # what stays bytes is not looked into by the decoder
        return _task_decoder.decode(content)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Malformed(f"not a task in JSON: {error}") from None


def _as_far_as_known(key: str, content: bytes, most_bytes: int) -> NewTask:
    """A task of the same name and queue, to be found by: nothing of it will be carried out."""
    try:
        found = msgspec.json.decode(content, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        found = {}
    payload = found.get("payload", NULL)
    try:
        check_value(payload, "payload", most_bytes=most_bytes)
    except RotaError:
        payload = NULL
    return NewTask(
        name=_name(found.get("name")) or UNACCEPTED.name,
        queue=_name(found.get("queue")) or UNACCEPTED.queue,
        payload=payload,
        key=key[: limits.MAX_KEY_LENGTH] or None,
    )


def _name(value: Raw | None) -> str | None:
    try:
        text = msgspec.json.decode(value or b"null", type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return text[: limits.MAX_NAME_LENGTH]


def within_lanes(
    items: Iterable[InboxItem], is_known: Callable[[Lane], bool], *, room: int
) -> list[InboxItem]:
    """Refuse those for whom there is no lane any more; they stand in the one for all of these.

    One place is kept free for it, as long as there is any.
    """
    left = room if is_known(UNACCEPTED) else room - 1
    fitting: list[InboxItem] = []
    new: set[Lane] = set()
    for item in items:
        lane = lane_of(item.task)
        if lane in new or is_known(lane):
            fitting.append(item)
        elif len(new) < left:
            new.add(lane)
            fitting.append(item)
        else:
            fitting.append(_without_lane(item))
    return fitting


def _without_lane(item: InboxItem) -> InboxItem:
    task = msgspec.structs.replace(
        item.task, queue=UNACCEPTED.queue, name=UNACCEPTED.name, requires=()
    )
    if item.error is not None:
        return InboxItem(task, item.error)
    text = f"there are {limits.MAX_LANES} kinds of tasks; no room for {item.task.name!r}"
    return refused(task, TooMany(text, limit="max_lanes"))
