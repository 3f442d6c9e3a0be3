"""Task ids: integers made of time and a counter, shown as sixteen hex digits.

A task's id is a 63-bit integer: the millisecond of its acceptance (42 bits) and a counter (21
bits). It only rises, also over restarts and backward clock jumps, because the next one is never
below the last one. Order of ids is therefore order of acceptance, and "newest first" and "first
come, first served" need no other column. Clients see it as sixteen hexadecimal digits, since a
JSON reader may keep only 53 bits of a number.
"""

from collections.abc import Sequence
from typing import NewType, cast

TaskId = NewType("TaskId", int)

COUNTER_BITS = 21
_END = 1 << 63


def next_ids(count: int, *, last: int, now_ms: int) -> Sequence[TaskId]:
    """Give `count` ids, all above `last` and above those of earlier milliseconds."""
    first = max(last + 1, now_ms << COUNTER_BITS)
    return cast("Sequence[TaskId]", range(first, first + count))


def to_text(task_id: int) -> str:
    return "%016x" % task_id  # noqa: UP031 - twice as fast as a format, and asked for every task


def from_text(text: str) -> TaskId | None:
    """Read an id back; None when no task can have it."""
    try:
        number = int(text, 16)
    except ValueError:
        return None
    # Written back and compared: signs, spaces and capitals are read by int, but are not ours.
    return TaskId(number) if 0 <= number < _END and to_text(number) == text else None


def news_of(run_id: int) -> int:
    """Return the number under which callers wait for values and replies of a run."""
    return -run_id
