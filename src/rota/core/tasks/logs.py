"""The log of an attempt: what its handler has logged, within bounds.

The worker and the coordinator apply the same bounds: the worker so that it does not send what would
be dropped, the coordinator because it does not trust the worker. A line that does not fit is
dropped and counted. One part of the room is for warnings and errors, so that a talkative handler
does not crowd out the line that says why it failed.

Lines of an attempt are numbered by the worker as it sends them, so a report that is repeated adds
nothing.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from rota.core import limits

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
RANKS: dict[LogLevel, int] = {level: rank for rank, level in enumerate(LEVELS)}
URGENT = RANKS["warning"]  # from this level on a line may use the reserved room
LINE_OVERHEAD_BYTES = 32  # what a line takes beside its texts

TimeMs = Annotated[int, Meta(ge=0, le=limits.MAX_LOG_TIME_MS)]


# Streaming workers send this as an array, and the store keeps it so: add new fields at the end.
class LogLine(Struct, frozen=True, array_like=True, gc=False):
    """One line that a handler has logged."""

    at_ms: TimeMs  # by the clock of the worker
    level: LogLevel
    logger: str
    message: str
    fields: bytes | None = None  # JSON, an object


class LogUsage(Struct, frozen=True, kw_only=True):
    """The log of one attempt: how much of it is kept, and how much is not."""

    attempt: int
    last: int  # the number of its last line, counted over all attempts of the task
    lines: int = 0
    size: int = 0  # of the lines, in bytes
    sent: int = 0  # lines that its worker has sent, kept or not
    left_out: int = 0  # lines that its worker has not sent
    cut: int = 0  # lines that were sent and did not fit

    @property
    def dropped(self) -> int:
        return self.left_out + self.cut


class TaskLogs(Struct):
    """The logs of a task, as a batch sees and changes them."""

    attempts: dict[int, LogUsage] = {}  # by fence

    @property
    def last(self) -> int:
        """The number of the last line of the task."""
        return max((one.last for one in self.attempts.values()), default=0)


def size_of(line: LogLine) -> int:
    """The bytes that a line counts for."""
    texts = len(line.message.encode()) + len(line.logger.encode())
    return LINE_OVERHEAD_BYTES + texts + (0 if line.fields is None else len(line.fields))


def has_room(line: LogLine, *, lines: int, size: int) -> bool:
    """Whether a line fits into a log that has so many lines and bytes already."""
    most_lines, most_bytes = limits.MAX_LOG_LINES, limits.MAX_LOG_BYTES
    if RANKS[line.level] < URGENT:
        most_lines -= most_lines // limits.RESERVED_LOG_PART
        most_bytes -= most_bytes // limits.RESERVED_LOG_PART
    return lines < most_lines and size + size_of(line) <= most_bytes


def shortened(line: LogLine) -> LogLine:
    """Return a line within the limits of one line."""
    message = shortened_text(line.message, limits.MAX_LOG_MESSAGE_BYTES)
    fields, logger = line.fields, line.logger
    if fields is not None and len(fields) > limits.MAX_LOG_FIELDS_BYTES:
        fields = b'{"left_out_bytes":%d}' % len(fields)
    if len(logger) > limits.MAX_NAME_LENGTH:
        logger = logger[: limits.MAX_NAME_LENGTH]
    if message is line.message and fields is line.fields and logger is line.logger:
        return line
    return msgspec.structs.replace(line, message=message, fields=fields, logger=logger)


def shortened_text(text: str, most_bytes: int) -> str:
    """Cut the middle out of a text: a traceback begins and ends with what matters."""
    if len(text) * 4 <= most_bytes:
        return text
    content = text.encode()
    if len(content) <= most_bytes:
        return text
    mark = f"\n… {len(content)} bytes, the middle is left out …\n"
    room = most_bytes - len(mark.encode())
    head = content[: room // 2].decode(errors="ignore")
    tail = content[-(room - room // 2) :].decode(errors="ignore")
    return head + mark + tail


def take(
    usage: LogUsage, lines: Sequence[LogLine], *, first: int, left_out: int
) -> tuple[list[LogLine], LogUsage]:
    """Return the lines of a report that are kept, and the log after it.

    `first` is the number of the first line among those that the worker has sent; 0: it follows the
    last one. `left_out` is how many the worker has not sent, in all.
    """
    repeated = max(0, usage.sent + 1 - first) if first else 0
    sent = max(usage.sent, (first or usage.sent + 1) - 1 + len(lines))
    kept: list[LogLine] = []
    size, cut = usage.size, usage.cut
    for given in lines[repeated:]:
        line = shortened(given)
        if has_room(line, lines=usage.lines + len(kept), size=size):
            kept.append(line)
            size += size_of(line)
        else:
            cut += 1
    after = LogUsage(
        attempt=usage.attempt,
        last=usage.last + len(kept),
        lines=usage.lines + len(kept),
        size=size,
        sent=sent,
        left_out=max(usage.left_out, left_out),
        cut=cut,
    )
    return kept, after


def begin(logs: TaskLogs, fence: int, *, attempt: int) -> tuple[LogUsage, int | None]:
    """Return the log of an attempt, which may be new.

    Also returns the fence below which older logs of the task are forgotten to make room.
    """
    known = logs.attempts.get(fence)
    if known is not None:
        return known, None
    usage = LogUsage(attempt=attempt, last=logs.last)
    if len(logs.attempts) < limits.MAX_LOGS_PER_TASK:
        return usage, None
    kept = sorted([*logs.attempts, fence])[-limits.MAX_LOGS_PER_TASK :]
    return usage, kept[0]
