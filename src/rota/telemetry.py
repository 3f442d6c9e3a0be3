"""Logging of a process on stderr: text for people on a terminal, JSON for machines.

Lines of structlog and of the standard library (dependencies, the handlers of users) share one
format. Secrets are never logged: values under names such as `password` are covered, and so is every
text that looks like a token or a login in a URL.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from typing import IO, Any, Literal

import structlog
from structlog.typing import Processor

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "text", "json"]

COVERED = "[covered]"
MAX_COVERED_DEPTH = 4  # deeper values are converted to text, and covered as text

_SECRET_NAME = re.compile(r"token|secret|password|authorization|cookie|credential", re.IGNORECASE)
_EVENT_NAME = re.compile(r"[a-z]+(_[a-z0-9]+)*")
_HARMLESS_NAMES = frozenset({"token_id", "token_name", "tokens"})
_SECRET_TEXT = re.compile(
    r"(?P<bearer>\bBearer\s+)[^\s\"'@]+"
    r"|(?P<login>://[^/\s:@]*:)[^/\s\"']+(?=@)"
    r"|(?P<option>\b(?i:(?:ssl)?password)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&'\"]+)"
    r"|\brota_[A-Za-z0-9_-]{16,}"
)


def set_up(
    *, level: LogLevel = "info", log_format: LogFormat = "auto", stream: IO[str] | None = None
) -> None:
    """Set up the logging of this process; called once, before the first line."""
    target = stream or sys.stderr
    for_people = target.isatty() if log_format == "auto" else log_format == "text"
    numeric_level = logging.getLevelNamesMapping()[level.upper()]

    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                cover_secrets,
                *([in_words, in_local_time] if for_people else []),
                _renderer(for_people=for_people, colors=target.isatty()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(numeric_level)
    # At a lower level the library would log the content of frames.
    logging.getLogger("websockets").setLevel(max(numeric_level, logging.WARNING))


def library_logger(name: str) -> Any:
    """A structured logger of the SDK, whose lines go through the standard library's logger.

    A program decides what it sees of a library's lines. One that has set up nothing sees warnings
    and errors on stderr; structlog on its own would print every line on stdout.
    """
    return structlog.wrap_logger(logging.getLogger(name))


def cover_secrets(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor that covers all secrets."""
    return {name: _covered(name, value, depth=0) for name, value in event.items()}


def in_words(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: an event's stable name, such as `worker_removed`, as words."""
    name = event.get("event")
    if isinstance(name, str) and _EVENT_NAME.fullmatch(name):
        event["event"] = name.replace("_", " ")
    return event


def in_local_time(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: the time of a line by the clock of the machine, to the millisecond."""
    moment = datetime.fromisoformat(event["timestamp"]).astimezone()
    event["timestamp"] = moment.replace(tzinfo=None).isoformat(" ", "milliseconds")
    return event


def _covered(name: str, value: Any, *, depth: int) -> Any:
    if _SECRET_NAME.search(name) and name not in _HARMLESS_NAMES and value is not None:
        return COVERED
    if type(value) is str:  # nearly every value; first, for speed
        return _SECRET_TEXT.sub(_cover_text, value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < MAX_COVERED_DEPTH:
        return {key: _covered(str(key), item, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and depth < MAX_COVERED_DEPTH:
        return [_covered("", item, depth=depth + 1) for item in value]
    return _SECRET_TEXT.sub(_cover_text, str(value))


def _cover_text(match: re.Match[str]) -> str:
    return f"{match['bearer'] or match['login'] or match['option'] or ''}{COVERED}"


def _shared() -> list[Processor]:
    """The processors of every line."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.MaybeTimeStamper(fmt="iso", utc=True),  # a line may have its time
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]


def _renderer(*, for_people: bool, colors: bool) -> Processor:
    if for_people:
        return structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
        )
    return structlog.processors.JSONRenderer(default=str)
