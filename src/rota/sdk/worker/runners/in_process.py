"""Attempts, and the runners of handlers in the worker's own process.

An attempt begins once, is settled once and ends once. It is settled when its outcome is known: its
handler has finished, or the worker has stopped it. It ends when its handler has returned, which may
be later for a stopped attempt. Until then it is lingering, and still occupies a slot.

Async handlers run on the event loop, each in a task of its own. A thousand attempts may begin at
once. The runner starts them in portions and serves sockets and timers in between, so that neither a
result nor a heartbeat waits for all of them.

Plain handlers run in persistent threads, as few as the handlers allow. The runner adds threads
while attempts wait and the existing threads make no headway: a few threads serve quick handlers,
and handlers that block get a thread each, up to the limit.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from inspect import CORO_CREATED, getcoroutinestate
from queue import SimpleQueue
from typing import Any, Protocol

from msgspec import Raw
from msgspec.structs import replace

from rota.core.tasks.logs import LogLine
from rota.messages import LeaseView, ResultItem
from rota.sdk.arguments import InvalidArguments
from rota.sdk.client.client import Client
from rota.sdk.context import EXECUTION, Execution
from rota.sdk.middleware.chain import MiddlewareChain
from rota.sdk.outcomes import (
    INVALID_ARGUMENTS,
    UNREADABLE_RESULT,
    failure,
    item_of_error,
    item_of_value,
)
from rota.sdk.task import Task

# Why an attempt is stopped.
CANCELLED = "cancelled"  # a caller has cancelled the task
LOST = "lost"  # the lease has expired or belongs to another worker
STOPPING = "stopping"  # the worker leaves
TIMED_OUT = "timed_out"

ATTEMPTS_PER_PORTION = 250  # started on the loop before it serves sockets and timers
THREADS_AT_ONCE = 8  # started when work arrives; more follow only when these block
GROW_AFTER_S = 0.01

ProgressSink = Callable[["Attempt", Raw | None, Raw | None], None]


class LogSink(Protocol):
    """Takes the log lines of attempts, from any thread."""

    @property
    def level(self) -> int:
        """The level of `logging` from which on lines are kept."""

    @property
    def captured(self) -> Sequence[str]:
        """The names of the loggers that are captured."""

    def keep(self, attempt: "Attempt", line: LogLine) -> None: ...

    def note_left_out(self, attempt: "Attempt", count: int) -> None:
        """Count lines that were not kept."""


class Attempt:
    __slots__ = (
        "batch",
        "carrier",
        "is_settled",
        "lease",
        "leased_at",
        "log_sink",
        "logged",
        "on_progress",
        "stop_reason",
        "task",
        "timer",
        "traceparent",
    )

    def __init__(
        self,
        lease: LeaseView,
        task: Task[..., Any],
        on_progress: ProgressSink,
        log_sink: LogSink,
        leased_at: float,
    ) -> None:
        self.lease = lease
        self.task = task
        self.on_progress = on_progress
        self.log_sink = log_sink
        self.logged: Any = None  # what the sink remembers of its log, if it has one
        self.leased_at = leased_at
        self.stop_reason: str | None = None  # read by handlers in other threads
        self.is_settled = False
        self.timer: asyncio.TimerHandle | None = None
        self.carrier: Any = None  # the asyncio task or process through which its runner stops it
        self.batch: BatchAttempt | None = None  # the one that it runs in
        self.traceparent: str | None = None  # the span of its handler, to be reported

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        self.on_progress(self, progress, partial)

    @property
    def log_level(self) -> int:
        return self.log_sink.level

    def keep_line(self, line: LogLine) -> None:
        self.log_sink.keep(self, line)

    @property
    def client(self) -> Client:
        return self.task.app.client

    def note_trace(self, traceparent: str) -> None:
        if self.lease.run_id is not None:
            self.traceparent = traceparent


class BatchAttempt(Attempt):
    """Attempts that one call of a handler runs; in their runner this stands for all of them.

    Its lease is that of the first one, and so is the context of the handler.
    """

    __slots__ = ("items", "members")

    def __init__(self, members: list[Attempt]) -> None:
        first = members[0]
        super().__init__(
            first.lease, first.task, first.on_progress, first.log_sink, first.leased_at
        )
        self.members = members
        self.items: list[ResultItem] = []  # of the members, when the handler has ended
        for one in members:
            one.batch = self


def handler_of(attempt: Attempt, middleware: MiddlewareChain) -> Callable[..., Any]:
    """The function that runs an attempt, inside the middleware of its app."""
    task = attempt.task
    executions: list[Execution] = [attempt]
    if isinstance(attempt, BatchAttempt):
        executions = [one for one in attempt.members if not one.is_settled]
    return middleware.around_handler(task.function, executions, is_async=task.is_async)


def run_handler(attempt: Attempt) -> ResultItem:
    """Run a plain handler to its end."""
    EXECUTION.set(attempt)
    lease, task = attempt.lease, attempt.task
    if task.batch is not None:
        return _run_batch(attempt)
    try:
        args, kwargs = task.arguments.decode(lease.payload)
    except InvalidArguments as error:
        return failure(lease, INVALID_ARGUMENTS, error.detail, retryable=False)
    try:
        middleware = task.app.middleware
        function = task.function if middleware is None else handler_of(attempt, middleware)
        value = function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - no handler may end the worker, not by exit
        return item_of_error(lease, error)
    return _with_span(attempt, item_of_value(lease, value))


async def arun_handler(
    attempt: Attempt, on_end: Callable[[Attempt, ResultItem], None] | None = None
) -> ResultItem:
    """Run an async handler to its end; yields to the event loop only if the handler does.

    `on_end` is called here, so that no second coroutine has to await this one for each task.
    """
    EXECUTION.set(attempt)
    lease, task = attempt.lease, attempt.task
    try:
        if attempt.is_settled:  # stopped before it began
            item = item_of_error(lease, asyncio.CancelledError())
        elif task.batch is not None:
            item = await _arun_batch(attempt)
        else:
            try:
                args, kwargs = task.arguments.decode(lease.payload)
            except InvalidArguments as error:
                item = failure(lease, INVALID_ARGUMENTS, error.detail, retryable=False)
            else:
                middleware = task.app.middleware
                function = task.function if middleware is None else handler_of(attempt, middleware)
                value = function(*args, **kwargs)
                if task.is_async:
                    value = await value
                item = _with_span(attempt, item_of_value(lease, value))
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - as above; a cancelled one is settled already
        item = item_of_error(lease, error)
    if on_end is not None:
        attempt.carrier = None  # breaks a reference cycle
        on_end(attempt, item)
    return item


def _with_span(attempt: Attempt, item: ResultItem) -> ResultItem:
    """A result with the span of its handler, if middleware has named one."""
    if attempt.traceparent is None or not item.ok:
        return item
    return replace(item, traceparent=attempt.traceparent)


# --- batches ------------------------------------------------------------------------------------


def _run_batch(attempt: Attempt) -> ResultItem:
    call = _BatchCall(attempt)
    if call.values:
        try:
            call.take(call.function(call.values))
        except BaseException as error:  # noqa: BLE001 - as above
            call.fail(error)
    return call.end()


async def _arun_batch(attempt: Attempt) -> ResultItem:
    call, task = _BatchCall(attempt), attempt.task
    if call.values:
        try:
            value = call.function(call.values)
            call.take(await value if task.is_async else value)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            call.fail(error)
    return call.end()


class _BatchCall:
    """One call of a batch handler: the values it gets, and what becomes of each attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        members = attempt.members if isinstance(attempt, BatchAttempt) else [attempt]
        self._members = members
        self._leases = [one.lease for one in members]
        self._items: list[ResultItem | None] = [None] * len(members)
        self._called: list[int] = []  # the numbers of the members that the handler gets
        self.values: list[Any] = []
        for number, one in enumerate(members):
            if one is not attempt and one.is_settled:
                continue  # stopped while it waited; its result is not reported
            try:
                (value,), _ = one.task.arguments.decode(one.lease.payload)
            except InvalidArguments as error:
                detail = error.detail
                item = failure(one.lease, INVALID_ARGUMENTS, detail, retryable=False)
                self._items[number] = item
            else:
                self._called.append(number)
                self.values.append(value)

    @property
    def function(self) -> Callable[..., Any]:
        task = self._attempt.task
        middleware = task.app.middleware
        return task.function if middleware is None else handler_of(self._attempt, middleware)

    def take(self, results: Any) -> None:
        """Give each attempt its result: None, or a list with as many."""
        if results is None:
            results = [None] * len(self._called)
        if not isinstance(results, list | tuple) or len(results) != len(self._called):
            name, count = self._attempt.task.name, len(self._called)
            text = f"{name!r} must return None or a list with {count} results, one for each item"
            for number in self._called:
                self._items[number] = failure(
                    self._leases[number], UNREADABLE_RESULT, text, retryable=False
                )
            return
        for number, value in zip(self._called, results, strict=True):
            of = item_of_error if isinstance(value, BaseException) else item_of_value
            self._items[number] = of(self._leases[number], value)

    def fail(self, error: BaseException) -> None:
        for number in self._called:
            self._items[number] = item_of_error(self._leases[number], error)

    def end(self) -> ResultItem:
        """Leave the items with the batch; returns the first one."""
        items = [
            _with_span(one, item_of_value(one.lease, None) if item is None else item)
            for one, item in zip(self._members, self._items, strict=True)
        ]
        if isinstance(self._attempt, BatchAttempt):
            self._attempt.items = items
        return items[0]


class LoopRunner:
    """Runs handlers on the loop it is made on; the caller keeps each attempt until it ends."""

    def __init__(self, on_end: Callable[[Attempt, ResultItem], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # each handler gets a copy
        self._on_end = on_end
        self._waiting: deque[Attempt] = deque()
        self._is_starting = False

    def begin(self, attempts: Iterable[Attempt]) -> None:
        self._waiting.extend(attempts)
        if not self._is_starting:
            self._context.run(self._start)

    def stop(self, attempt: Attempt) -> None:
        task: asyncio.Task[None] | None = attempt.carrier
        if task is None:
            return
        coroutine: Any = task.get_coro()
        # A task that has not started would end unreported; `_run` sees that it was stopped.
        if getcoroutinestate(coroutine) != CORO_CREATED:
            task.cancel(attempt.stop_reason)

    async def close(self, *, is_hurried: bool = False) -> None:
        """Do nothing: tasks end with their handlers."""

    def _start(self) -> None:
        waiting, loop, on_end = self._waiting, self._loop, self._on_end
        has_factory = loop.get_task_factory() is not None
        for _ in range(min(len(waiting), ATTEMPTS_PER_PORTION)):
            attempt = waiting.popleft()
            run, name = arun_handler(attempt, on_end), attempt.task.name
            if has_factory:
                attempt.carrier = loop.create_task(run, name=name)
            else:  # as `create_task` does it, in three quarters of the time
                attempt.carrier = asyncio.Task(run, loop=loop, name=name)
        self._is_starting = bool(waiting)
        if waiting:
            self._loop.call_soon(self._start)


class ThreadRunner:
    """Runs handlers in threads and reports their ends on the loop it is made on."""

    def __init__(self, on_end: Callable[[Attempt, ResultItem], None], *, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._on_end = on_end
        self._limit = limit
        self._waiting: SimpleQueue[Attempt | None] = SimpleQueue()
        self._ended: deque[tuple[Attempt, ResultItem]] = deque()
        self._busy: set[int] = set()  # numbers of busy threads; set operations are atomic
        self._count = 0
        self._headway = 0  # attempts ended since the last check
        self._is_woken = False
        self._is_watching = False

    def begin(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self._waiting.put(attempt)
        idle = self._count - len(self._busy)
        self._add_threads(min(self._waiting.qsize() - idle, THREADS_AT_ONCE))
        self._watch()

    def stop(self, attempt: Attempt) -> None:
        """Do nothing: a thread cannot be stopped; its handler sees `stop_reason`."""

    async def close(self, *, is_hurried: bool = False) -> None:  # noqa: ARG002 - a runner's
        """End the idle threads now, and the others when their handlers return."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _watch(self) -> None:
        if not self._is_watching and self._count < self._limit:
            self._is_watching = True
            self._headway = 0
            self._loop.call_later(GROW_AFTER_S, self._grow)

    def _grow(self) -> None:
        self._is_watching = False
        waiting = self._waiting.qsize()
        if waiting == 0:
            return
        if self._headway < self._count:
            self._add_threads(min(waiting, max(self._count, 1)))
        self._watch()

    def _add_threads(self, wanted: int) -> None:
        for _ in range(min(wanted, self._limit - self._count)):
            # Daemons: a handler that never returns must not keep a stopped worker from exiting.
            name = f"rota-handler-{self._count}"
            threading.Thread(target=self._work, args=(self._count,), name=name, daemon=True).start()
            self._count += 1

    def _work(self, number: int) -> None:
        while (attempt := self._waiting.get()) is not None:
            self._busy.add(number)
            self._ended.append((attempt, self._run(attempt, self._context.copy())))
            self._busy.discard(number)
            del attempt
            if not self._is_woken:
                self._is_woken = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop has ended, and with it the worker
                    return

    def _run(self, attempt: Attempt, context: Context) -> ResultItem:
        if attempt.is_settled:  # stopped before it began; this is not reported
            return item_of_value(attempt.lease, None)
        return context.run(run_handler, attempt)

    def _collect(self) -> None:
        # First the flag, then the ends: one that is added in between schedules another call.
        self._is_woken = False
        while self._ended:
            attempt, item = self._ended.popleft()
            self._headway += 1
            self._on_end(attempt, item)
