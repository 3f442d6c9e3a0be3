"""Log lines made from records of `logging` and from events of structlog.

Nothing here raises: a line that cannot be written as its author meant it is written as well as it
can be. Secrets are covered as in the logs of a process.
"""

import logging
import time
import traceback
from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core import limits
from rota.core.tasks.logs import LogLevel, LogLine, shortened
from rota.telemetry import cover_secrets

_LEVELS: tuple[tuple[int, LogLevel], ...] = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)
# The names that structlog's methods have for levels.
_METHODS: dict[str, LogLevel] = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "warn": "warning",
    "error": "error",
    "exception": "error",
    "critical": "critical",
    "fatal": "critical",
}
_OWN = {"task_id", "task", "attempt"}  # fields of every line of a task, which its page shows anyway
_OF_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_OF_STRUCTLOG = {"event", "level", "logger", "logger_name", "timestamp", "exc_info", "exception"}

_encode = msgspec.json.Encoder(enc_hook=str).encode


def level_of(number: int) -> LogLevel:
    """The name of a level of `logging`."""
    return next((name for least, name in _LEVELS if number >= least), "debug")


def number_of(method: str) -> int:
    """The level of `logging` for a method of structlog."""
    return logging.getLevelNamesMapping()[_METHODS.get(method, "info").upper()]


def line_of_record(record: logging.LogRecord) -> LogLine:
    """The line of a record; what its author gave as `extra` are its fields."""
    if isinstance(record.msg, Mapping):  # of structlog, on its way to the formatter
        return line_of_event(level_of(record.levelno), record.msg, logger=record.name)
    extra = {name: value for name, value in vars(record).items() if name not in _OF_RECORD}
    return _line(
        at_ms=int(record.created * 1000),
        level=level_of(record.levelno),
        logger=record.name,
        message=_message_of(record) + _traceback_of(record.exc_info, record.exc_text),
        fields=extra,
    )


def line_of_event(method: str, event: Mapping[str, Any], *, logger: str) -> LogLine:
    """The line of an event of structlog."""
    fields = {name: value for name, value in event.items() if name not in _OF_STRUCTLOG}
    fields = {name: value for name, value in fields.items() if not str(name).startswith("_")}
    trace = _traceback_of(event.get("exc_info"), event.get("exception"))
    return _line(
        at_ms=time.time_ns() // 1_000_000,
        level=_METHODS.get(method, "info"),
        logger=logger,
        message=_text(event.get("event", "")) + trace,
        fields=fields,
    )


def _line(
    *, at_ms: int, level: LogLevel, logger: str, message: str, fields: Mapping[str, Any]
) -> LogLine:
    given = {
        str(name): _clean(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if name not in _OWN
    }
    message = _clean(message)
    try:
        covered = cover_secrets(None, "", {"": message, **given})
        message = str(covered.pop(""))
        encoded = _encode(covered) if covered else None
    except Exception as error:  # noqa: BLE001 - whatever the fields are, the line is kept
        encoded = _encode({"left_out": f"{type(error).__name__}: {error}"})
    at_ms = min(max(0, at_ms), limits.MAX_LOG_TIME_MS)
    line = LogLine(at_ms, level, _clean(logger), message, encoded)
    return shortened(line)


def _message_of(record: logging.LogRecord) -> str:
    try:
        return _text(record.getMessage())
    except Exception:  # noqa: BLE001 - arguments that do not fit the text
        return " ".join(_text(one) for one in (record.msg, record.args) if one != ())


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - of the user's own class
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _traceback_of(given: Any, rendered: Any) -> str:
    """The traceback of a line, as `exc_info` gives it, on lines of its own."""
    if rendered:
        return f"\n{_text(rendered)}"
    error = given[1] if isinstance(given, tuple) else given
    if not isinstance(error, BaseException):
        return ""
    try:
        return "\n" + "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # noqa: BLE001 - an error that cannot be shown
        return f"\n{type(error).__name__}"


def _clean(text: str) -> str:
    """A text that can be encoded: Python's may have halves of characters."""
    if len(text) > 4 * limits.MAX_LOG_MESSAGE_BYTES:  # before anything looks at all of it
        half = 2 * limits.MAX_LOG_MESSAGE_BYTES
        text = f"{text[:half]}\n… {len(text)} characters …\n{text[-half:]}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
