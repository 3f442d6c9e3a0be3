"""The installed middleware of an app: enters the hooks around each call, in order.

An app without middleware has no chain, and its calls look at one attribute. A hook that no
installed middleware overrides costs one look at an empty list.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.tasks.headers import Headers, check_headers
from rota.core.tasks.model import NULL, NewTask
from rota.errors import Invalid
from rota.messages import RunRequest, RunView
from rota.sdk.client.requests import Exchange
from rota.sdk.context import Execution, TaskContext
from rota.sdk.middleware.hooks import (
    EnqueuedCall,
    HandlerCall,
    Hook,
    Middleware,
    StepExecution,
)

Function = Callable[..., Any]


class MiddlewareChain:
    """Middleware in the order of its installation: the first one is the outermost."""

    def __init__(self, installed: Iterable[Middleware]) -> None:
        self.installed = tuple(installed)
        for one in self.installed:
            if Middleware not in type(one).__mro__:
                kind = type(one).__name__
                raise Invalid(f"{kind} is no middleware: derive it from rota.Middleware")
        self._on_enqueue: list[Function] = self._overridden("on_enqueue")
        self._on_execute: list[Function] = self._overridden("on_execute")
        self._on_step: list[Function] = self._overridden("on_step")

    def _overridden(self, hook: str) -> list[Function]:
        base = getattr(Middleware, hook)
        return [getattr(one, hook) for one in self.installed if getattr(type(one), hook) != base]

    # --- enqueueing ---------------------------------------------------------------------------

    @contextmanager
    def enqueueing(self, tasks: Sequence[NewTask]) -> Iterator["EnqueuedTasks"]:
        """Surround a submission; the tasks to submit are those of the value."""
        if not self._on_enqueue:
            yield EnqueuedTasks(tasks, ())
            return
        calls = [
            EnqueuedCall(
                "task",
                one.name,
                queue=one.queue,
                payload=one.payload,
                key=one.key,
                headers=one.headers,
            )
            for one in tasks
        ]
        with self._sending(calls):
            yield EnqueuedTasks(tasks, calls)

    def starting(
        self, request: RunRequest, send: Callable[[RunRequest], Exchange[RunView]]
    ) -> Exchange[RunView]:
        """Surround the start of a run, which `send` makes the calls for."""
        if not self._on_enqueue:
            return (yield from send(request))
        call = EnqueuedCall(
            "run",
            request.workflow,
            payload=NULL if request.input is None else request.input,
            key=request.key,
            headers=request.headers,
        )
        with self._sending([call]):
            view = yield from send(replace(request, headers=checked_headers(call)))
            call.id, call.is_duplicate = view.id, view.duplicate
        return view

    def _sending(self, calls: Sequence[EnqueuedCall]) -> "_Entered":
        return _Entered(self._on_enqueue, calls)

    # --- executing ----------------------------------------------------------------------------

    def around_handler(
        self, function: Function, executions: Iterable[Execution], *, is_async: bool
    ) -> Function:
        """The handler inside the hooks, for one call."""
        if not self._on_execute:
            return function
        call = HandlerCall([TaskContext(one) for one in executions])
        return _surrounded(self._on_execute, call, function, is_async=is_async)

    def around_step(
        self, function: Function, execution: Execution, *, name: str, path: str, attempt: int
    ) -> Function:
        """The function of a step inside the hooks, for one attempt."""
        if not self._on_step:
            return function
        step = StepExecution(TaskContext(execution), name=name, path=path, attempt=attempt)
        is_async = inspect.iscoroutinefunction(function)
        return _surrounded(self._on_step, step, function, is_async=is_async)


def starting(
    chain: MiddlewareChain | None,
    request: RunRequest,
    send: Callable[[RunRequest], Exchange[RunView]],
) -> Exchange[RunView]:
    """Start a run inside the middleware of an app, if it has any; `send` makes the calls."""
    return (yield from (send(request) if chain is None else chain.starting(request, send)))


class EnqueuedTasks:
    """The tasks of one submission, and what its hooks know of them."""

    def __init__(self, tasks: Sequence[NewTask], calls: Sequence[EnqueuedCall]) -> None:
        self._calls = calls
        self.tasks = list(tasks)
        for number, call in enumerate(calls):
            if call.headers != (tasks[number].headers or {}):
                self.tasks[number] = replace(tasks[number], headers=checked_headers(call))

    def note(self, accepted: Iterable[Any]) -> None:
        """Note the handles of the tasks, which the coordinator has accepted."""
        for call, handle in zip(self._calls, accepted, strict=bool(self._calls)):
            call.id, call.is_duplicate = handle.id, handle.is_duplicate


def checked_headers(call: EnqueuedCall) -> dict[str, str] | None:
    """The headers that hooks have left; None: there are none."""
    if not call.headers:
        return None
    try:
        headers = msgspec.convert(call.headers, Headers)
    except msgspec.ValidationError as error:
        raise Invalid(f"headers of {call.name!r}: {error}", field="headers") from None
    check_headers(headers)
    return headers


class _Entered(AbstractContextManager[None]):
    """Hooks around a submission, whose errors they see and cannot suppress."""

    def __init__(self, hooks: Sequence[Function], calls: Sequence[EnqueuedCall]) -> None:
        self._stack = ExitStack()
        self._hooks = hooks
        self._calls = calls

    def __enter__(self) -> None:
        with ExitStack() as stack:
            for hook in self._hooks:
                _enter(stack, hook, self._calls)
            self._stack = stack.pop_all()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(
            kind, error, trace
        )  # its answer is left out: the caller gets the error


def _enter(stack: ExitStack, hook: Function, subject: Any) -> None:
    entered: Hook = hook(subject)
    if entered is None:
        return
    if not isinstance(entered, AbstractContextManager):
        raise Invalid(
            f"{hook.__qualname__} returns a {type(entered).__name__}, not a context manager: "
            "decorate it with @contextlib.contextmanager"
        )
    stack.enter_context(entered)


def _surrounded(
    hooks: Sequence[Function],
    call: HandlerCall | StepExecution,
    function: Function,
    *,
    is_async: bool,
) -> Function:
    def entered() -> ExitStack:
        with ExitStack() as stack:
            for hook in hooks:
                _enter(stack, hook, call)
            return stack.pop_all()

    def called(*args: Any, **kwargs: Any) -> Any:
        with entered():
            call.result = function(*args, **kwargs)
        return call.result

    async def acalled(*args: Any, **kwargs: Any) -> Any:
        with entered():
            call.result = await function(*args, **kwargs)
        return call.result

    return acalled if is_async else called
