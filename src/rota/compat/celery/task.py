"""Tasks with Celery's methods, and their rules of retrying.

In Celery only the exceptions of `autoretry_for` and calls of `self.retry` lead to another attempt.
So the handler is wrapped: every other exception fails the task for good. `max_retries` is one less
than the attempts that the coordinator counts.
"""

import functools
import inspect
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

import rota
from rota.compat.celery.canvas import Signature
from rota.compat.celery.errors import Ignore, MaxRetriesExceededError, Reject
from rota.compat.celery.results import CUSTOM_STATE, AsyncResult, EagerResult
from rota.core import limits
from rota.errors import Invalid
from rota.sdk.context import EXECUTION
from rota.sdk.groups.starter import GroupStarter
from rota.sdk.options.other_names import options_of_apply_async, unknown_option
from rota.sdk.outcomes import Discard, HandlerAnswer, Retry
from rota.sdk.task import Options, Task

DEFAULT_MAX_RETRIES = 3
DEFAULT_RETRY_DELAY_S = 180.0
NO_EFFECT = {"acks_late", "ignore_result", "reject_on_worker_lost", "track_started", "typing"}
EAGER_ATTEMPT: ContextVar[int] = ContextVar("rota.compat.celery.eager_attempt")


class CeleryApp(GroupStarter):
    """What a task needs of its app."""

    @property
    @abstractmethod
    def is_eager(self) -> bool:
        """Whether calls run at once, in this program."""

    @property
    @abstractmethod
    def raises_eager_errors(self) -> bool:
        """Whether an error of an eager call is raised where the call is made."""

    @abstractmethod
    def options_for(self, name: str) -> dict[str, Any]:
        """The options that the settings give a task."""


class RetryRules(Struct, frozen=True, kw_only=True):
    """When a task is tried again, by the options that Celery has for it."""

    autoretry_for: tuple[type[Exception], ...] = ()
    dont_autoretry_for: tuple[type[Exception], ...] = ()
    max_retries: int | None = DEFAULT_MAX_RETRIES
    default_retry_delay: float = DEFAULT_RETRY_DELAY_S
    retry_backoff: bool | float = False  # a number is the first delay, in seconds
    retry_backoff_max: float = 600.0
    retry_jitter: bool = True
    retry_kwargs: dict[str, Any] = {}

    @property
    def most_retries(self) -> int:
        """How often the task is tried again; None in Celery means without a limit."""
        most = self.retry_kwargs.get("max_retries", self.max_retries)
        return limits.MAX_ATTEMPTS - 1 if most is None else int(most)

    def is_retried(self, error: Exception) -> bool:
        return isinstance(error, self.autoretry_for) and not isinstance(
            error, self.dont_autoretry_for
        )

    def delay_s(self, retries: int, dice: Callable[[], float] = random.random) -> float:
        """How long to wait before the next automatic retry."""
        countdown = self.retry_kwargs.get("countdown")
        if countdown is not None:
            return float(countdown)
        if not self.retry_backoff:
            return self.default_retry_delay
        longest = min(self.retry_backoff_max, float(self.retry_backoff) * 2.0**retries)
        return longest * dice() if self.retry_jitter else longest


class BoundRequest:
    """`self.request`: the call that a bound handler belongs to."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.args = list(args)
        self.kwargs = dict(kwargs)
        eager = EAGER_ATTEMPT.get(None)
        self.is_eager = eager is not None or EXECUTION.get(None) is None
        self.called_directly = self.is_eager
        if self.is_eager:
            self.id, self.retries, self.delivery_info = "eager", (eager or 1) - 1, {}
        else:
            context = rota.current()
            self.id, self.retries = context.task_id, context.attempt - 1
            self.delivery_info = {"routing_key": context.queue}


class BoundTask:
    """`self` of a handler with `bind=True`, for one call of it."""

    def __init__(self, task: "CeleryTask", request: BoundRequest) -> None:
        self._task = task
        self.request = request
        self.name = task.name
        self.app = task.app
        self.max_retries = task.policy.most_retries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def retry(  # noqa: PLR0917 - Celery's signature
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        exc: Exception | None = None,
        throw: bool = True,  # noqa: FBT001, FBT002 - Celery's signature
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
    ) -> HandlerAnswer:
        """Try the call again later. It raises, so that `raise` before it is a matter of taste."""
        if args is not None or kwargs is not None:
            raise Invalid(
                "self.retry: the next attempt has the same arguments; enqueue another call"
            )
        if max_retries is not None and max_retries > self.max_retries:
            raise Invalid(
                f"self.retry: the coordinator counts {self.max_retries} retries for this task; set "
                "max_retries where the task is defined"
            )
        most = self.max_retries if max_retries is None else max_retries
        if self.request.retries >= most:
            text = f"cannot retry {self.name!r}: it has been retried {self.request.retries} times"
            raise exc if exc is not None else MaxRetriesExceededError(text)
        if eta is not None:
            countdown = (eta - datetime.now(eta.tzinfo and UTC)).total_seconds()
        delay_s = self._task.policy.default_retry_delay if countdown is None else countdown
        answer = Retry(str(exc or "the handler asked for a retry"), in_ms=_in_ms(delay_s))
        answer.__cause__ = exc
        if throw:
            raise answer
        return answer

    def update_state(
        self, task_id: str | None = None, state: str | None = None, meta: Any = None
    ) -> None:
        """Report a state and its details as the progress of this task."""
        if task_id is not None and task_id != self.request.id:
            raise Invalid("update_state: a handler reports the progress of its own task only")
        if not self.request.is_eager:
            rota.current().progress({CUSTOM_STATE: state or "PROGRESS", "meta": meta})


class CeleryTask(Task[..., Any]):
    """A task that is called and composed as in Celery."""

    def __init__(
        self, app: CeleryApp, function: Callable[..., Any], *, name: str, given: Mapping[str, Any]
    ) -> None:
        fields = RetryRules.__struct_fields__
        rules = {field: given[field] for field in fields if field in given}
        if "autoretry_for" in rules:
            rules["autoretry_for"] = tuple(rules["autoretry_for"])
        if "dont_autoretry_for" in rules:
            rules["dont_autoretry_for"] = tuple(rules["dont_autoretry_for"])
        self.policy = RetryRules(**rules)
        self._is_bound = bool(given.get("bind"))
        self._own = function
        self._celery = app
        options = _options_of(name, given, self.policy)
        super().__init__(
            app,
            _handler_of(self, function),
            name=name,
            run_in=None,
            options=Options(**{**app.options_for(name), **options}),  # type: ignore[typeddict-item]  # checked by Task
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now, as a plain function."""
        return self.call_function(args, kwargs)

    run = __call__

    @property
    def starter(self) -> GroupStarter:
        """The app, which starts groups and chains."""
        return self._celery

    @property
    def is_eager(self) -> bool:
        return self._celery.is_eager

    def call_function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function itself, with `self` if it is bound."""
        if not self._is_bound:
            return self._own(*args, **kwargs)
        return self._own(BoundTask(self, BoundRequest(args, kwargs)), *args, **kwargs)

    # --- calls --------------------------------------------------------------------------------

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        link: Signature | None = None,
        **options: Any,
    ) -> Any:
        """Enqueue a call; `link` is a task that follows it and gets its result."""
        call = self.s(*(args or ()), **(kwargs or {})).set(**options)
        return call.apply_async() if link is None else (call | link).apply_async()

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> EagerResult:
        """Run a call at once, in this program, with its retries but without their delays."""
        error: Exception = MaxRetriesExceededError(f"task {self.name!r} has no attempt left")
        for attempt in range(1, self.policy.most_retries + 2):
            token = EAGER_ATTEMPT.set(attempt)
            try:
                return EagerResult(self.call_function(args or (), kwargs or {}))
            except HandlerAnswer as answer:
                error = answer
                if not isinstance(answer, Retry):
                    break
                if isinstance(answer.__cause__, Exception):
                    error = answer.__cause__
            except Exception as raised:  # noqa: BLE001 - as a worker does
                error = raised
                if not self.policy.is_retried(raised):
                    break
            finally:
                EAGER_ATTEMPT.reset(token)
        return EagerResult(None, error)

    def enqueue_call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> AsyncResult | EagerResult:
        """Enqueue one call, or run it here if the app is eager."""
        if self._celery.is_eager:
            ended = self.apply(args, kwargs)
            if self._celery.raises_eager_errors:
                ended.get()
            return ended
        call = self.using_celery(options).bind_call(args, kwargs)
        return AsyncResult(self.app.enqueue_many([call])[0])

    def using_celery(self, options: Mapping[str, Any]) -> "CeleryTask":
        """The task with options in Celery's words."""
        return self.using(**options_of_apply_async(options)) if options else self

    # --- signatures ---------------------------------------------------------------------------

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """A call to be made later, which may get the result of others as its first argument."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """As `s`, but the call ignores results of others."""
        return self.s(*args, **kwargs).set(immutable=True)

    def signature(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Signature:
        return self.s(*args, **(kwargs or {})).set(**options)

    subtask = signature


def _handler_of(task: CeleryTask, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a worker calls it: errors become the outcomes that Celery gives them."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def handle(*args: Any, **kwargs: Any) -> Any:
            try:
                return await task.call_function(args, kwargs)
            except Exception as error:
                raise _outcome_of(error, task.policy) from error

    else:

        @functools.wraps(function)
        def handle(*args: Any, **kwargs: Any) -> Any:
            try:
                return task.call_function(args, kwargs)
            except Exception as error:
                raise _outcome_of(error, task.policy) from error

    handle.__signature__ = _signature_of(task, function)  # type: ignore[attr-defined]  # read by inspect
    return handle


def _signature_of(task: CeleryTask, function: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(function)
    if not task._is_bound:  # noqa: SLF001 - its own module
        return signature
    parameters = list(signature.parameters.values())
    if not parameters:
        raise Invalid(f"{function.__qualname__} has bind=True, but no parameter for the task")
    return signature.replace(parameters=parameters[1:])


def _outcome_of(error: Exception, policy: RetryRules) -> Exception:
    match error:
        case HandlerAnswer():
            return error
        case Reject(requeue=True):
            return Retry(str(error), in_ms=_in_ms(policy.default_retry_delay))
        case Ignore() | Reject():
            return Discard(str(error) or "ignored by its handler")
        case _:
            return _outcome_of_error(error, policy)


def _outcome_of_error(error: Exception, policy: RetryRules) -> HandlerAnswer:
    """Another attempt, if the policy says so, or the end of the task with this error."""
    retries = rota.current().attempt - 1
    if policy.is_retried(error) and retries < policy.most_retries:
        in_ms = _in_ms(policy.delay_s(retries))
        return Retry(f"{type(error).__name__}: {error}", in_ms=in_ms)
    return Discard(cause=error)


def _in_ms(seconds: float) -> int:
    return min(max(0, round(seconds * 1000)), limits.MAX_DELAY_MS)


def _options_of(name: str, given: Mapping[str, Any], policy: RetryRules) -> dict[str, Any]:
    """The options of a task in Rota's words."""
    options: dict[str, Any] = {"max_attempts": policy.most_retries + 1}
    for option, value in given.items():
        if option in RetryRules.__struct_fields__ or option in NO_EFFECT or option == "bind":
            continue
        if option == "serializer":
            if value != "json":
                raise Invalid(
                    f"task {name!r}: the only serializer is json, not {value!r}", task=name
                )
        elif option in {"time_limit", "queue", "priority", "expires"}:
            options |= options_of_apply_async({option: value})
        elif option in Options.__annotations__:
            options[option] = value  # Rota's own, such as `rate` and `concurrency`
        else:
            raise Invalid(f"task {name!r}: {unknown_option(option, Options.__annotations__)}")
    return options
