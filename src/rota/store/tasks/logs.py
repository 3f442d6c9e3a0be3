"""The logs of attempts: a row for what is kept of each, and a row for the lines of each report.

Lines of one report are one value. A task without a log has no row here, and costs nothing.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from rota.core.decisions import ForgetLogs, KeepLines
from rota.core.ids import TaskId
from rota.core.tasks.logs import LogLine, LogUsage, TaskLogs
from rota.store.database import Transaction

USAGE_COLUMNS = (
    "task",
    "fence",
    "attempt",
    "last",
    "lines",
    "size",
    "sent",
    "left_out",
    "cut",
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[LogLine]).decode


class NumberedLine(Struct, frozen=True):
    """A line with its number among those of its task, and the fence of its attempt."""

    number: int
    fence: int
    line: LogLine


class LogStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def usages(self, tasks: Sequence[TaskId]) -> dict[TaskId, TaskLogs]:
        """What is kept of the logs of these tasks; those without a log are left out."""
        found: dict[TaskId, TaskLogs] = {}
        for task, fence, *columns in self._tx.rows("logs.usages", tasks=[*tasks]):
            usage = LogUsage(**dict(zip(USAGE_COLUMNS[2:], columns, strict=True)))
            found.setdefault(task, TaskLogs(attempts={})).attempts[fence] = usage
        return found

    def keep(self, kept: Sequence[KeepLines]) -> None:
        usages = {(one.id, one.fence): one.usage for one in kept}  # the last of each attempt
        rows = [
            (task, fence, *(getattr(usage, name) for name in USAGE_COLUMNS[2:]))
            for (task, fence), usage in usages.items()
        ]
        self._tx.pipeline_many("logs.put_usage", USAGE_COLUMNS, rows)
        lines = [
            (one.id, one.usage.last, one.fence, _encode(one.lines)) for one in kept if one.lines
        ]
        self._tx.pipeline_many("logs.add", ("task", "last", "fence", "content"), lines)

    def forget(self, forgotten: Sequence[ForgetLogs]) -> None:
        """Delete the logs of the older attempts of tasks."""
        for one in forgotten:
            self._tx.pipeline("logs.forget_usages", task=one.id, fence=one.before_fence)
            self._tx.pipeline("logs.forget_lines", task=one.id, fence=one.before_fence)

    def drop(self, tasks: Sequence[TaskId]) -> None:
        """Delete all logs of these tasks."""
        self._tx.pipeline("logs.drop_usages", tasks=[*tasks])
        self._tx.pipeline("logs.drop_lines", tasks=[*tasks])

    def after(
        self, task: TaskId, number: int, *, fences: Sequence[int], limit: int
    ) -> list[NumberedLine]:
        """Lines after a number, the oldest first, of the attempts with these fences.

        They may be more than `limit`, because a report is read as a whole.
        """
        found: list[NumberedLine] = []
        rows = self._tx.rows(
            "logs.page", task=task, after=number, fences=[*fences], limit=max(1, limit)
        )
        for last, fence, content in rows:
            lines = _decode(content)
            first = last - len(lines) + 1
            found += [
                NumberedLine(place, fence, line)
                for place, line in enumerate(lines, start=first)
                if place > number
            ]
            if len(found) >= limit:
                break
        return found
