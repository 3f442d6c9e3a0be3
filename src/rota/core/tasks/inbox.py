"""Rows of the transactional inbox: tasks that users enqueue inside their own transactions.

A program that shares the database with a coordinator may write a task into the `inbox` in the same
transaction as its own rows. Once that is committed, no caller waits for an error. So a row that
cannot be accepted becomes a task as well: a failed one, with the reason, under the key by which its
submitter finds it.
"""

import msgspec
from msgspec import Raw, Struct

from rota.core import limits
from rota.core.flows.model import check_limits
from rota.core.tasks.headers import check_headers
from rota.core.tasks.keys import check_key_size, check_unique
from rota.core.tasks.model import NULL, Lane, NewTask, TaskError
from rota.core.tasks.values import check_value
from rota.errors import Invalid, Malformed, RotaError, TooMany

UNACCEPTED = Lane("default", "unaccepted")  # of rows without a readable queue and name

_task_decoder = msgspec.json.Decoder(NewTask)


class InboxItem(Struct, frozen=True):
    """A task from the inbox; with an error, one that must not run."""

    task: NewTask
    error: TaskError | None = None


def read_item(key: str, content: bytes, *, most_bytes: int) -> InboxItem:
    """The task of a row. The key of the row is that of a task without one."""
    try:
        task = _decode(content)
        if task.delay_ms is not None and task.run_at_ms is not None:
            raise Invalid("run_at_ms: give this or delay_ms, not both", field="run_at_ms")
        if task.key is None and not 0 < len(key) <= limits.MAX_KEY_LENGTH:
            raise Invalid(f"key: 1 to {limits.MAX_KEY_LENGTH} characters", field="key")
        check_key_size(task.queue, task.key or key)
        check_unique(task)
        check_limits(task.concurrency, task.rate)
        if task.headers is not None:
            check_headers(task.headers)
        check_value(task.payload, "payload", most_bytes=most_bytes)
    except RotaError as error:
        return refused(_readable_part(key, content, most_bytes), error)
    return InboxItem(task if task.key else msgspec.structs.replace(task, key=key))


def refused(task: NewTask, error: RotaError) -> InboxItem:
    reason = TaskError(type=error.code, message=error.detail, retryable=False)
    return InboxItem(task, reason)


def _decode(content: bytes) -> NewTask:
    try:
        content.decode()  # the decoder does not look into raw values
        return _task_decoder.decode(content)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Malformed(f"not a task in JSON: {error}") from None


def _readable_part(key: str, content: bytes, most_bytes: int) -> NewTask:
    """A task with the readable name and queue, by which the failure is found."""
    try:
        found = msgspec.json.decode(content, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        found = {}
    payload = found.get("payload", NULL)
    try:
        check_value(payload, "payload", most_bytes=most_bytes)
    except RotaError:
        payload = NULL
    queue = _name(found.get("queue")) or UNACCEPTED.queue
    return NewTask(
        name=_name(found.get("name")) or UNACCEPTED.name,
        queue=queue,
        payload=payload,
        key=_key(queue, key),
    )


def _key(queue: str, key: str) -> str | None:
    """As much of a key as can be stored; None if that is nothing."""
    cut = key[: limits.MAX_KEY_LENGTH]
    try:
        check_key_size(queue, cut)
    except Invalid:
        return None
    return cut or None


def _name(value: Raw | None) -> str | None:
    try:
        text = msgspec.json.decode(value or b"null", type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return text[: limits.MAX_NAME_LENGTH]


def without_key(task: NewTask) -> NewTask:
    """A task that ends at once, and holds no key by which it is unique."""
    return msgspec.structs.replace(task, unique=None, debounce=None)


def without_limits(task: NewTask) -> NewTask:
    """A task that ends at once, holds no key, and declares no limit."""
    return msgspec.structs.replace(without_key(task), concurrency=None, rate=None, fair_key=None)


def without_lane(item: InboxItem, lane: Lane) -> InboxItem:
    """The item as a task that fails in this lane, since there is no room for its own."""
    task = msgspec.structs.replace(
        without_key(item.task), queue=lane.queue, name=lane.name, requires=()
    )
    if item.error is not None:
        return InboxItem(task, item.error)
    text = (
        f"no room for another kind of tasks, {item.task.name!r}: there may be {limits.MAX_LANES}, "
        f"and {limits.MAX_LANES_PER_QUEUE} in one queue"
    )
    return refused(task, TooMany(text, limit="max_lanes"))
