"""The context of a durable function: `ctx` of an async one, and its blocking form.

Everything that a function does through its context is an operation: it is recorded, and not done
again when the function goes on elsewhere.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal, NoReturn, ParamSpec, Self, TypeVar, Unpack, overload

from rota.errors import Invalid
from rota.sdk.functions.execution.concurrency import OperationCall
from rota.sdk.functions.execution.threads import block, run_in_thread
from rota.sdk.functions.immediate import ReceivedMessage
from rota.sdk.functions.operations import CodeTarget, OperationOptions, Operations
from rota.sdk.task import Task
from rota.sdk.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

OnFailure = Literal["fail", "collect"]
FACTORS_MS = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}


class OutputStream:
    """A stream of values that callers of the run can read."""

    def __init__(self, operations: Operations, name: str) -> None:
        self.name = name
        self._operations = operations

    def write(self, value: Any) -> None:
        self._operations.immediate.write(self.name, value)


class _Context:
    """What functions of both kinds do at once."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    @property
    def run_id(self) -> str:
        return self._operations.runtime.run_id

    @property
    def workflow(self) -> str:
        """The name of the workflow."""
        return self._operations.target.name

    @property
    def cancelled(self) -> str | None:
        """Why the run was cancelled; None while it was not."""
        return self._operations.runtime.cancelled

    @property
    def is_replaying(self) -> bool:
        """Whether the function repeats what it has done before, for example to log things once."""
        return self._operations.runtime.log.is_replaying

    def using(self, **options: Unpack[OperationOptions]) -> Self:
        """The same context, whose next operation has these options."""
        return type(self)(self._operations.using(options))

    def publish(self, key: str, value: Any) -> None:
        """Show a value to callers of the run, also while no worker runs it."""
        self._operations.immediate.publish(key, value)

    def stream(self, name: str) -> OutputStream:
        """A stream of values for callers: `ctx.stream("log").write(…)`."""
        return OutputStream(self._operations, name)

    def changed(self, name: str) -> bool:
        """Whether a run takes the new branch of a code change: true, unless it is past it."""
        return self._operations.immediate.changed(name)

    def scope(self, name: str) -> AbstractContextManager[None]:
        """A scope in which operations count for themselves: `with ctx.scope("billing"):`."""
        return self._operations.scope(name)

    def now(self) -> datetime:
        """The time of what the function has seen last; the same when it is replayed."""
        return self._operations.immediate.now()

    def random(self) -> float:
        """A number from 0 to below 1, the same when the function is replayed."""
        return self._operations.immediate.random()

    def uuid(self) -> uuid.UUID:
        """An id, the same when the function is replayed."""
        return self._operations.immediate.uuid()

    def restart(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Begin again under the same run with other arguments, and an empty log."""
        self._operations.restart(args, kwargs)


class FunctionContext(_Context):
    """The context of an async function; its name for users is `rota.Run`.

    Operations begin when they are awaited. Those of a branch of `gather` or `first` belong to the
    scope of that branch.
    """

    # An async function is a function too; a type checker takes the first overload that fits.
    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> OperationCall[R]: ...
    @overload
    def step(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> OperationCall[R]: ...

    def step(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function here, and record its result; it is not run again afterwards."""
        return self._operations.step(function, args, kwargs)

    @overload
    def once(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> OperationCall[R]: ...
    @overload
    def once(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> OperationCall[R]: ...

    def once(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function at most once; `StepOutcomeUnknown` when its worker died in it."""
        return self._operations.step(function, args, kwargs, kind="once")

    @overload
    def call(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> OperationCall[R]: ...
    @overload
    def call(self, task: str, /, *args: Any, **kwargs: Any) -> OperationCall[Any]: ...

    def call(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a task on any worker; one of another program by its name."""
        return self._operations.call(task, args, kwargs)

    @overload
    def map(
        self,
        task: Task[..., R],
        items: Iterable[Any],
        *,
        max_parallel: int | None = None,
        on_failure: Literal["fail"] = "fail",
    ) -> OperationCall[list[R]]: ...
    @overload
    def map(
        self,
        task: Task[..., Any] | str,
        items: Iterable[Any],
        *,
        max_parallel: int | None = None,
        on_failure: OnFailure = "fail",
    ) -> OperationCall[list[Any]]: ...

    def map(
        self,
        task: Any,
        items: Iterable[Any],
        *,
        max_parallel: int | None = None,
        on_failure: OnFailure = "fail",
    ) -> Any:
        """Run a task for each item, on any workers; the results in the order of the items.

        The first failure cancels the rest. With `on_failure="collect"` every item runs to its end,
        and the outcomes are `{"result": …}` or `{"error": {…}}`.
        """
        return self._operations.map(task, items, max_parallel, on_failure)

    @overload
    def run(
        self, workflow: CodeTarget[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> OperationCall[R]: ...
    @overload
    def run(self, workflow: Workflow | str, /, *args: Any, **kwargs: Any) -> OperationCall[Any]: ...

    def run(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a workflow, in code or as data, as a child of this run; returns its output."""
        return self._operations.run(workflow, args, kwargs)

    def sleep(
        self,
        *,
        until: datetime | None = None,
        ms: float = 0,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> OperationCall[None]:
        """Wait; from a second on without a worker."""
        wait_ms = _wait_ms(ms=ms, seconds=seconds, minutes=minutes, hours=hours, days=days)
        return self._operations.sleep(wait_ms, until)

    @overload
    def event(self, name: str) -> OperationCall[Any]: ...
    @overload
    def event(self, name: str, kind: type[T]) -> OperationCall[T]: ...

    def event(self, name: str, kind: Any = Any) -> Any:
        """Wait for a signal, which is kept until then; its payload, converted to `kind`.

        With `ctx.using(timeout_ms=…)`, `TimeoutError` when none came in time.
        """
        return self._operations.event(name, kind)

    @overload
    def approval(self, title: str = "") -> OperationCall[Any]: ...
    @overload
    def approval(self, title: str = "", *, form: type[T]) -> OperationCall[T]: ...
    @overload
    def approval(self, title: str = "", *, form: dict[str, Any]) -> OperationCall[Any]: ...

    def approval(self, title: str = "", *, form: Any = None) -> Any:
        """Wait for a person; `ApprovalRejected` when the answer is no.

        `form` is a type with the fields that the person fills in, or a JSON Schema.
        """
        return self._operations.approval(title, form)

    def receive(self, name: str, kind: Any = Any) -> OperationCall[ReceivedMessage]:
        """Wait for a signal that the function answers with `message.reply(…)`."""
        return self._operations.receive(name, kind)

    @overload
    def gather(self, a: Awaitable[A], /) -> OperationCall[tuple[A]]: ...
    @overload
    def gather(self, a: Awaitable[A], b: Awaitable[B], /) -> OperationCall[tuple[A, B]]: ...
    @overload
    def gather(
        self, a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /
    ) -> OperationCall[tuple[A, B, C]]: ...
    @overload
    def gather(
        self, a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
    ) -> OperationCall[tuple[A, B, C, D]]: ...
    @overload
    def gather(self, /, *awaitables: Awaitable[T]) -> OperationCall[tuple[T, ...]]: ...

    def gather(self, /, *awaitables: Awaitable[Any]) -> OperationCall[Any]:
        """Run branches side by side, each in a scope of its own; their results, in order.

        The first error cancels the other branches, and is raised.
        """
        return self._operations.gather(awaitables)

    def first(self, **awaitables: Awaitable[Any]) -> OperationCall[tuple[str, Any]]:
        """Wait for the first of several; its name and value. The others are cancelled."""
        return self._operations.first(awaitables)


class BlockingContext(_Context):
    """The context of a plain function; its name for users is `rota.BlockingRun`.

    Operations block the thread of the function. `gather` and `first` take functions without
    arguments, and run each in a thread.
    """

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._operations.runtime.loop

    @overload
    def step(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def step(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As `FunctionContext.step`."""
        return block(self._loop, self._operations.step(function, args, kwargs))

    @overload
    def once(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def once(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def once(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As `FunctionContext.once`."""
        return block(self._loop, self._operations.step(function, args, kwargs, kind="once"))

    @overload
    def call(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def call(self, task: str, /, *args: Any, **kwargs: Any) -> Any: ...

    def call(self, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As `FunctionContext.call`."""
        return block(self._loop, self._operations.call(task, args, kwargs))

    def map(
        self,
        task: Task[..., R],
        items: Iterable[Any],
        *,
        max_parallel: int | None = None,
        on_failure: OnFailure = "fail",
    ) -> list[R]:
        """As `FunctionContext.map`."""
        found: list[R] = block(
            self._loop, self._operations.map(task, items, max_parallel, on_failure)
        )
        return found

    @overload
    def run(self, workflow: CodeTarget[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(self, workflow: Workflow | str, /, *args: Any, **kwargs: Any) -> Any: ...

    def run(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As `FunctionContext.run`."""
        return block(self._loop, self._operations.run(workflow, args, kwargs))

    def sleep(
        self,
        *,
        until: datetime | None = None,
        ms: float = 0,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> None:
        """As `FunctionContext.sleep`."""
        wait_ms = _wait_ms(ms=ms, seconds=seconds, minutes=minutes, hours=hours, days=days)
        block(self._loop, self._operations.sleep(wait_ms, until))

    @overload
    def event(self, name: str) -> Any: ...
    @overload
    def event(self, name: str, kind: type[T]) -> T: ...

    def event(self, name: str, kind: Any = Any) -> Any:
        """As `FunctionContext.event`."""
        return block(self._loop, self._operations.event(name, kind))

    @overload
    def approval(self, title: str = "") -> Any: ...
    @overload
    def approval(self, title: str = "", *, form: type[T]) -> T: ...
    @overload
    def approval(self, title: str = "", *, form: dict[str, Any]) -> Any: ...

    def approval(self, title: str = "", *, form: Any = None) -> Any:
        """As `FunctionContext.approval`."""
        return block(self._loop, self._operations.approval(title, form))

    def receive(self, name: str, kind: Any = Any) -> ReceivedMessage:
        """As `FunctionContext.receive`."""
        received: ReceivedMessage = block(self._loop, self._operations.receive(name, kind))
        return received

    def gather(self, /, *functions: Callable[[], T]) -> tuple[T, ...]:
        """Run functions side by side, each in a thread and a scope of its own."""
        branches = [run_in_thread(one) for one in functions]
        found: tuple[T, ...] = block(self._loop, self._operations.gather(branches))
        return found

    def first(self, **functions: Callable[[], Any]) -> tuple[str, Any]:
        """As `FunctionContext.first`, of functions that each run in a thread."""
        branches = {name: run_in_thread(one) for name, one in functions.items()}
        found: tuple[str, Any] = block(self._loop, self._operations.first(branches))
        return found


def _wait_ms(**given: float) -> int:
    wait_ms = round(sum(FACTORS_MS[unit] * value for unit, value in given.items()))
    if wait_ms < 0:
        raise Invalid("a sleep is 0 ms or longer")
    return wait_ms


CURRENT_RUN: ContextVar[FunctionContext] = ContextVar("rota.functions.current_run")


def current_run() -> FunctionContext | None:
    """The context of the async function that is running here; None outside of one.

    For libraries that are called by functions and are not given their context.
    """
    return CURRENT_RUN.get(None)


Run = FunctionContext
BlockingRun = BlockingContext
