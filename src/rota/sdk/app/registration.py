"""Makes tasks and durable functions of the functions of a program, each under a name of its own."""

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from rota.errors import Invalid
from rota.sdk.task import (
    App,
    BatchPolicy,
    BatchTask,
    CoroutineTask,
    FunctionTask,
    Options,
    Place,
    Task,
)

if TYPE_CHECKING:
    from rota.sdk.functions.workflow import CodeOptions, CodeWorkflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TaskDecorator(Protocol):
    """The decorator that `@app.task(...)` returns; it keeps the signature of the function."""

    # An async function is a function too; a type checker takes the first overload that fits.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # see above
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> CoroutineTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> FunctionTask[P, R]: ...


class BatchDecorator(Protocol):
    """The decorator that `@app.task(batch=…)` returns: a call of the task has one item."""

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, list[R]]]
    ) -> BatchTask[T, R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, None]]
    ) -> BatchTask[T, None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], list[R]]) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None]) -> BatchTask[T, None]: ...


def register_task(
    app: App,
    function: Callable[..., Any],
    name: str | None,
    *,
    run_in: Place | None,
    options: Options,
    batch: BatchPolicy | None = None,
) -> Task[..., Any]:
    """Make a task of a function, if its name is free in the app."""
    if not callable(function):
        raise Invalid("@app.task decorates a function; its options are given by name")
    name = name or function.__name__
    if name in app.tasks:
        raise Invalid(
            f"there is a task named {name!r} already; give one of them another name: "
            "@app.task(name=…)",
            task=name,
        )
    kind: type[Task[..., Any]] = FunctionTask
    if batch is not None:
        kind = BatchTask
    elif inspect.iscoroutinefunction(function):
        kind = CoroutineTask
    task = kind(app, function, name=name, run_in=run_in, options=options, batch=batch)
    app.tasks[name] = task
    return task


def register_function(
    app: App, function: Callable[..., Any], options: "CodeOptions"
) -> "CodeWorkflow[..., Any]":
    """Make a durable function of a function, if its name is free in the app."""
    # Durable functions take the parser of workflows; programs without them do not load it.
    from rota.sdk.functions.workflow import CodeWorkflow  # noqa: PLC0415

    if not callable(function):
        raise Invalid("@app.workflow decorates a function; its options are given by name")
    made: CodeWorkflow[..., Any] = CodeWorkflow(app, function, options)
    if made.task.name in app.tasks:
        raise Invalid(
            f"there is a workflow named {made.name!r} already; give one of them another "
            "name: @app.workflow(name=…)",
            workflow=made.name,
        )
    app.tasks[made.task.name] = made.task
    return made
