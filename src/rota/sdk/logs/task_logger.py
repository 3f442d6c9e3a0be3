"""The loggers of a running handler, and the capture of others.

`current().log` is a standard logger adapter, `current().logger` a logger of structlog. What goes
through either is kept with the attempt, whatever the level of the program's own logs is, and is
passed on to these as usual. A worker may capture further loggers of `logging`: a record counts for
the attempt in whose context it was logged, so concurrent handlers do not mix.
"""

import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rota.core.tasks.logs import LogLine
from rota.errors import Invalid
from rota.messages import LeaseView
from rota.sdk.logs.lines import line_of_event, line_of_record, number_of

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    Adapter = logging.LoggerAdapter[logging.Logger]
else:
    Adapter = logging.LoggerAdapter

LOGGER = "rota.task"
ALL = "all"  # captures every logger
KEPT_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


class LineKeeper(Protocol):
    """A running attempt, as its loggers need it."""

    @property
    def lease(self) -> LeaseView: ...

    @property
    def log_level(self) -> int:
        """The level of `logging` from which on lines are kept."""

    def keep_line(self, line: LogLine) -> None:
        """Keep a line. Callable from any thread; returns at once."""


class TaskLogger(Adapter):
    """A standard logger whose lines are kept with the attempt."""

    def __init__(self, execution: LineKeeper) -> None:
        lease = execution.lease
        fields = {"task_id": lease.task_id, "task": lease.name, "attempt": lease.attempt}
        super().__init__(logging.getLogger(LOGGER), fields)
        self._execution = execution

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as `logging` has it
        return level >= self._execution.log_level or self.logger.isEnabledFor(level)

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Log a message with its arguments; `extra` has further fields."""
        if not self.isEnabledFor(level):
            return
        record = self._record(level, msg, args, **options)
        if level >= self._execution.log_level:
            self._execution.keep_line(line_of_record(record))
        if self.logger.isEnabledFor(level):
            self.logger.handle(record)

    def _record(
        self,
        level: int,
        msg: object,
        args: tuple[object, ...],
        *,
        exc_info: Any = None,
        extra: Mapping[str, object] | None = None,
        stack_info: bool = False,
        stacklevel: int = 1,
    ) -> logging.LogRecord:
        # By the standard class: that of structlog, which a worker's process has, counts otherwise.
        path, line, function, stack = logging.Logger.findCaller(
            self.logger, stack_info, stacklevel + 2
        )
        return self.logger.makeRecord(
            LOGGER,
            level,
            path,
            line,
            msg,
            args,
            _error_of(exc_info),
            function,
            {**(self.extra or {}), **(extra or {})},
            stack,
        )


def _error_of(exc_info: Any) -> Any:
    """What `exc_info` of a call stands for, as `logging` reads it."""
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, exc_info.__traceback__
    if exc_info and not isinstance(exc_info, tuple):
        return sys.exc_info()
    return exc_info or None


# --- structlog ----------------------------------------------------------------------------------


def structured_logger(execution: LineKeeper) -> "FilteringBoundLogger":
    """A logger of structlog whose lines are kept with the attempt."""
    import structlog  # noqa: PLC0415 - only handlers that log this way load it

    def keep(_logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        if number_of(method) >= execution.log_level:
            execution.keep_line(line_of_event(method, _with_error(event), logger=LOGGER))
        return event

    processors = [keep, *structlog.get_config()["processors"]]
    logger: FilteringBoundLogger = structlog.wrap_logger(
        None, processors=processors, logger_factory_args=(LOGGER,)
    )
    lease = execution.lease
    return logger.bind(task_id=lease.task_id, task=lease.name, attempt=lease.attempt)


def _with_error(event: Mapping[str, Any]) -> Mapping[str, Any]:
    given = event.get("exc_info")
    return event if given is None else {**event, "exc_info": _error_of(given)}


# --- capture ------------------------------------------------------------------------------------


class CaptureHandler(logging.Handler):
    """Keeps the records that are logged in the context of a handler."""

    def __init__(self, find: Callable[[], LineKeeper | None]) -> None:
        """`find` returns the attempt that runs in the current context."""
        super().__init__()
        self._find = find
        self._last = threading.local()  # the record that was kept last, of each thread

    def emit(self, record: logging.LogRecord) -> None:
        keeper = self._find()
        if keeper is None or record.levelno < keeper.log_level or _is_own(record.name):
            return
        # A record passes all handlers of its logger and of those above, one after the other.
        last = getattr(self._last, "record", None)
        if last is not None and last() is record:
            return
        self._last.record = weakref.ref(record)
        keeper.keep_line(line_of_record(record))


def _is_own(name: str) -> bool:
    """Whether a logger is the library's. What handlers log by their context is kept already."""
    return name == "rota" or name.startswith("rota.")


@contextmanager
def capturing(names: Sequence[str], find: Callable[[], LineKeeper | None]) -> Iterator[None]:
    """Capture these loggers, and those below them, for as long as the context lasts."""
    handler = CaptureHandler(find)
    loggers = [logging.getLogger(None if name == ALL else name) for name in names]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def kept_level(name: str) -> int:
    """The level of `logging` from which on lines are kept."""
    try:
        return KEPT_LEVELS[name]
    except KeyError:
        names = ", ".join(KEPT_LEVELS)
        raise Invalid(f"there is no level {name!r} of task logs; there are: {names}") from None
