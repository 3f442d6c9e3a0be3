"""Tasks: functions that a program can enqueue.

Calling a task calls its function. `enqueue` hands the call to a coordinator instead, and `using`
returns a copy of the task with other options.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec
from msgspec import Meta, Struct

from rota.core import limits
from rota.core.flows.model import Concurrency, Rate, check_limits
from rota.core.schedules.durations import ENDING, DurationFields
from rota.core.tasks.headers import check_headers
from rota.core.tasks.model import Backoff, NewTask
from rota.core.tasks.unique import Debounce, Unique
from rota.errors import Invalid, did_you_mean
from rota.sdk.arguments import (
    Arguments,
    BatchArguments,
    check_templates,
    has_templates,
    with_filled_keys,
)
from rota.sdk.client.client import Client
from rota.sdk.handles import PendingHandle, TaskHandle
from rota.sdk.middleware.chain import MiddlewareChain
from rota.sdk.options.durations import Duration, in_milliseconds
from rota.sdk.options.other_names import (
    METHODS_ELSEWHERE,
    missing_attribute,
    options_of_apply_async,
    unknown_option,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

TimeLimit = int | Duration | None  # of a run, in milliseconds if it is a number
Place = Literal["thread", "process", "loop"]
_DEFAULTS = NewTask(name="defaults")


class Options(TypedDict, total=False):
    """The options of a task, given when it is defined or for one call by `using`."""

    queue: str
    priority: int  # higher first
    requires: Sequence[str]  # capabilities that the worker must have
    delay_ms: int
    delay: Duration  # here and below: as the option with `_ms`, such as "5m" or a timedelta
    run_at_ms: int
    run_at: datetime
    timeout_ms: int  # of one attempt
    timeout: Duration
    start_within_ms: int
    start_within: Duration
    max_attempts: int
    backoff: Backoff | Mapping[str, Any]
    key: str  # a second task with the same key is a duplicate of the first
    labels: Mapping[str, str] | Sequence[str]
    on_expiry: Literal["fail", "discard"]  # with `start_within_ms`
    # Keys, here and below, may name arguments of the call: "user:{user_id}".
    unique: Unique | Mapping[str, Any]
    debounce: Debounce | Mapping[str, Any]
    concurrency: Concurrency | Sequence[Concurrency]  # how many tasks of a key run at once
    rate: Rate | Sequence[Rate]  # how many tasks of a key start in a period
    headers: Mapping[str, str]  # texts beside the payload, for middleware
    fair_key: str  # the tenant of the task, between which its queue is fair


NAMES = frozenset(Options.__annotations__)
# Options with fields.
POLICIES: dict[str, type[Struct]] = {"backoff": Backoff, "unique": Unique, "debounce": Debounce}


class BatchPolicy(Struct, metaclass=DurationFields, frozen=True, kw_only=True):
    """How a worker gathers tasks for one call of a handler; its name for users is `rota.Batch`."""

    size: Annotated[int, Meta(ge=1, le=limits.MAX_BATCH_SIZE)]  # at the most
    # The handler is called when the oldest task has waited this long, also with fewer.
    wait_ms: Annotated[int, Meta(ge=0, le=limits.MAX_BATCH_WAIT_MS)] = 0

    if TYPE_CHECKING:  # with durations; see `DurationFields`

        def __init__(self, *, size: int, wait_ms: int = ..., wait: Duration = ...) -> None: ...


Batch = BatchPolicy


class Submission(Struct, Generic[R], frozen=True):
    """A checked call of a task, ready to be enqueued."""

    new_task: NewTask
    decoder: msgspec.json.Decoder[Any]


class App(Protocol):
    """What tasks, workflows and workers need of the app that they belong to."""

    tasks: "dict[str, Task[..., Any]]"
    middleware: MiddlewareChain | None  # None: there is none

    @property
    def client(self) -> Client: ...

    def start(self) -> None: ...

    async def adeploy_schedules(self) -> None: ...

    async def adeploy_functions(self, tasks: Iterable[str]) -> list[str]: ...

    def enqueue_many(
        self, submissions: Iterable[Submission[Any]], *, conn: Any = None
    ) -> list[Any]: ...

    async def aenqueue_many(
        self, submissions: Iterable[Submission[Any]], *, conn: Any = None
    ) -> list[Any]: ...


class Task(Generic[P, R]):
    """A function with a name that workers know it by."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        *,
        name: str,
        run_in: Place | None,
        options: Options,
        batch: BatchPolicy | None = None,
    ) -> None:
        wrapped: Any = self
        functools.update_wrapper(wrapped, function)
        self.app = app
        self.function = function
        self.name = name
        self.is_async = inspect.iscoroutinefunction(function)
        self.run_in: Place = run_in or ("loop" if self.is_async else "thread")
        self.batch = None if batch is None else _checked_batch(name, batch)
        kind = Arguments if batch is None else BatchArguments
        self.arguments = kind(function, task=name)
        self._use(template_of(name, options))
        if self.run_in == "process" and "<" in function.__qualname__:
            raise Invalid(
                f"task {name!r} runs in a process, which imports its function by name: define the "
                "function at the top level of a module"
            )
        if self.run_in == "process" and batch is not None:
            raise Invalid(f"task {name!r} gets a batch, which cannot run in a process")
        if self.is_async and self.run_in == "thread":
            raise Invalid(f"task {name!r} is async: it runs on the event loop or in a process")

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    @property
    def requires(self) -> tuple[str, ...]:
        return self._template.requires

    def using(self, **options: Unpack[Options]) -> Self:
        """A copy of this task whose calls are enqueued with other options."""
        changed = copy.copy(self)
        changed._use(template_of(self.name, options, self._template))  # noqa: SLF001 - own copy
        return changed

    def _use(self, template: NewTask) -> None:
        """Make calls from this template, if its keys name arguments that the function has."""
        self._template = template
        self._has_key_templates = has_templates(template)
        if self._has_key_templates:
            check_templates(template, self.arguments.names)

    @property
    def template(self) -> NewTask:
        """A call of this task, without its arguments."""
        return self._template

    @property
    def node_options(self) -> dict[str, Any]:
        """The options that a workflow's node of this task inherits: those that are not defaults."""
        return node_options_of(self._template)

    def partial(self, **given: Any) -> "PartialCall[R]":
        """Keep arguments of a call in a chain, or of a callback: all but the first one."""
        unknown = sorted(given.keys() - self.arguments.names)
        if unknown:
            raise Invalid(f"task {self.name!r} has no argument {unknown[0]!r}", task=self.name)
        return PartialCall(self, given)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Submission[R]:
        """Check the arguments of a call and keep it for `enqueue_many`."""
        return self._bind(args, kwargs)

    def bind_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Submission[R]:
        """As `bind`, with arguments that are not known to a type checker."""
        return self._bind(tuple(args), dict(kwargs))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Submission[R]:
        payload = self.arguments.encode(args, kwargs)
        new_task = msgspec.structs.replace(self._template, payload=payload)
        if self._has_key_templates:
            new_task = with_filled_keys(new_task, self.arguments.by_name(args, kwargs))
        return Submission(new_task, self.arguments.result_decoder)

    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]: ...
    @overload
    def enqueue(self, *args: Any, conn: Any, **kwargs: Any) -> PendingHandle[R]: ...

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a call; returns when the coordinator has stored it.

        With `conn`, a PostgreSQL connection of the program, the task becomes part of the
        transaction that is open there: it exists if and only if that is committed.
        """
        conn = self._take_connection(kwargs)
        return self.app.enqueue_many([self._bind(args, kwargs)], conn=conn)[0]

    @overload
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]: ...
    @overload
    async def aenqueue(self, *args: Any, conn: Any, **kwargs: Any) -> PendingHandle[R]: ...

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        """As `enqueue`, for async code and async connections."""
        conn = self._take_connection(kwargs)
        return (await self.app.aenqueue_many([self._bind(args, kwargs)], conn=conn))[0]

    def _take_connection(self, kwargs: dict[str, Any]) -> Any:
        """Remove the connection from the arguments, unless the function has a `conn` itself."""
        return None if "conn" in self.arguments.names else kwargs.pop("conn", None)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Another name for `enqueue`, known from Celery."""
        handle: TaskHandle[R] = self.app.enqueue_many([self.bind(*args, **kwargs)])[0]
        return handle

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> TaskHandle[R]:
        """Celery's `apply_async`; elsewhere, write `task.using(…).enqueue(…)`.

        It takes `countdown`, `eta`, `expires`, `time_limit`, `queue`, `priority` and `task_id`.
        """
        changed = self.using(**options_of_apply_async(options)) if options else self
        call = changed.bind_call(args, kwargs or {})
        handle: TaskHandle[R] = self.app.enqueue_many([call])[0]
        return handle

    def __getattr__(self, name: str) -> Any:
        return missing_attribute(self, "a task", name, METHODS_ELSEWHERE)


class PartialCall(Generic[R]):
    """A task with some of its arguments; the first one is the result of other tasks."""

    def __init__(self, task: Task[..., R], given: Mapping[str, Any]) -> None:
        self.task = task
        self.given = given


class FunctionTask(Task[P, R]):
    """A task made of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        value: R = self.function(*args, **kwargs)
        return value


class CoroutineTask(Task[P, R]):
    """A task made of an async function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return coroutine


class BatchTask(Task[[T], R]):
    """A task whose handler gets the items of several calls as a list."""

    def __call__(self, items: list[T]) -> Any:
        return self.function(items)


def _checked_batch(name: str, batch: BatchPolicy) -> BatchPolicy:
    try:
        return msgspec.convert(msgspec.to_builtins(batch), BatchPolicy)
    except msgspec.ValidationError as error:
        raise Invalid(f"task {name!r}, batch: {error}", task=name) from None


def node_options_of(task: NewTask) -> dict[str, Any]:
    """The fields of a workflow's node for a task: its name, and the options that it has."""
    options = {
        name: getattr(task, name)
        for name in ("queue", "requires", "priority", "timeout_ms")
        if getattr(task, name) != getattr(_DEFAULTS, name)
    }
    if (task.max_attempts, task.backoff) != (_DEFAULTS.max_attempts, _DEFAULTS.backoff):
        options["retry"] = {"max_attempts": task.max_attempts}
        if task.backoff is not None:
            options["retry"]["backoff"] = msgspec.to_builtins(task.backoff)
    return {"task": task.name, **options}


def template_of(name: str, options: Options, base: NewTask | None = None) -> NewTask:
    """A new task without its payload, its options checked."""
    known = NewTask.__struct_fields__
    written = in_milliseconds(options, known)
    unknown = [option for option in written if option not in known]
    if unknown:
        raise Invalid(f"task {name!r}: {unknown_option(unknown[0], NAMES)}", task=name)
    for option, kind in POLICIES.items():
        _check_fields(name, option, written.get(option), kind)
    given = {field: _plain(value) for field, value in written.items()}
    try:
        checked = msgspec.convert({"name": name, **given}, NewTask)
    except msgspec.ValidationError as error:
        raise Invalid(f"task {name!r}: {error}", task=name) from None
    check_limits(checked.concurrency, checked.rate)
    if checked.headers is not None:
        check_headers(checked.headers)
    if base is None:
        return checked
    changes = {field: getattr(checked, field) for field in given}
    return msgspec.structs.replace(base, **changes)


def _check_fields(task: str, option: str, value: Any, kind: type[Struct]) -> None:
    """Check the names in an option that is a mapping; its values are checked with the others."""
    if not isinstance(value, Mapping):
        return
    known = kind.__struct_encode_fields__
    for name in value:
        if name not in known:
            names = [*known, *(field.removesuffix(ENDING) for field in known)]
            hint = did_you_mean(str(name), names)
            raise Invalid(f"task {task!r}, {option}: there is no {name!r}{hint}", task=task)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Concurrency | Rate):
        return msgspec.to_builtins(value)  # nothing has checked its values yet
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value
