"""How does a process say what it does? One log, on stderr: text for people, JSON for machines.

Structured lines (structlog) and those of the standard library (uvicorn, the handlers of users)
take the same road, so that one process writes one format. A secret never gets onto it: values
under telling names are left out, and what looks like a token or a login in a URL is covered
wherever it stands.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import IO, Any, Literal

import structlog
from structlog.typing import Processor

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "text", "json"]

COVERED = "[covered]"
MAX_COVERED_DEPTH = 4  # deeper values are shown as text, and covered as text

_TELLING_NAME = re.compile(r"token|secret|password|authorization|cookie|credential", re.IGNORECASE)
_HARMLESS_NAMES = frozenset({"token_id", "token_name", "tokens"})
_SECRET_TEXT = re.compile(
    r"(?P<before>\bBearer\s+|://[^/\s:@]*:(?=[^/\s@]+@))[^\s\"'@]+|\brota_[A-Za-z0-9_-]{16,}"
)


def set_up(
    *, level: LogLevel = "info", log_format: LogFormat = "auto", stream: IO[str] | None = None
) -> None:
    """Give this process its log. Called once, by the command line, before anything is logged."""
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
                _renderer(for_people=for_people, colors=target.isatty()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(numeric_level)
    # That the server starts and stops is said by whoever runs it; requests are counted.
    logging.getLogger("uvicorn").setLevel(max(numeric_level, logging.WARNING))


def cover_secrets(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor: no secret gets past it."""
    return {name: _covered(name, value, depth=0) for name, value in event.items()}


def _covered(name: str, value: Any, *, depth: int) -> Any:
    if name not in _HARMLESS_NAMES and _TELLING_NAME.search(name) and value is not None:
        return COVERED
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < MAX_COVERED_DEPTH:
        return {key: _covered(str(key), item, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and depth < MAX_COVERED_DEPTH:
        return [_covered("", item, depth=depth + 1) for item in value]
    return _SECRET_TEXT.sub(_cover_text, str(value))


def _cover_text(match: re.Match[str]) -> str:
    return f"{match['before'] or ''}{COVERED}"


def _shared() -> list[Processor]:
    """What happens to every line, whoever wrote it."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]


def _renderer(*, for_people: bool, colors: bool) -> Processor:
    if for_people:
        return structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.JSONRenderer(default=str)
