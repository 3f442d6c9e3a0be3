"""Signatures, chains, groups and chords, on Rota's groups and chains.

A chain and a chord are runs of a workflow, so they survive restarts, and a chord's body starts
exactly once. Deeper compositions are better written as a durable function, which the error says.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

from rota.compat.celery.results import AsyncResult, EagerResult, GroupResult, RunResult
from rota.errors import Invalid
from rota.sdk.arguments import Arguments
from rota.sdk.groups.starter import GroupStarter
from rota.sdk.task import PartialCall, Submission

TOO_DEEP = (
    "{what} cannot be part of a chain here: write the steps as a durable function, @app.workflow, "
    "which may call, map and gather in any order"
)


class SignableTask(Protocol):
    """What a signature needs of its task."""

    name: str
    arguments: Arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    @property
    def starter(self) -> GroupStarter:
        """The app of the task, which starts groups and chains."""

    @property
    def is_eager(self) -> bool: ...

    def apply(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> EagerResult: ...

    def enqueue_call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> AsyncResult | EagerResult: ...

    def using_celery(self, options: Mapping[str, Any]) -> Self: ...

    def bind_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Submission[Any]: ...

    def partial(self, **given: Any) -> PartialCall[Any]: ...

    def signature(
        self, args: Sequence[Any] = ..., kwargs: Mapping[str, Any] | None = ..., **options: Any
    ) -> "Signature": ...


class Signature:
    """A call of a task that is made later."""

    def __init__(
        self,
        task: SignableTask,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.type = task
        self.task = task.name
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        self.immutable = immutable
        self.options = dict(options or {})

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{key}={value!r}" for key, value in self.kwargs.items())]
        return f"{self.task}({', '.join(given)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function here and now; arguments go before those of the signature."""
        return self.type(*args, *self.args, **{**self.kwargs, **kwargs})

    def __or__(self, other: Any) -> "chain | chord":
        return joined(self, other)

    def set(self, *, immutable: bool | None = None, **options: Any) -> "Signature":
        """A copy with other options, such as `queue` or `countdown`."""
        return Signature(
            self.type,
            self.args,
            self.kwargs,
            immutable=self.immutable if immutable is None else immutable,
            options={**self.options, **options},
        )

    def clone(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> "Signature":
        """A copy with further arguments: `args` go before those that it has."""
        if self.immutable:
            return self.set()
        merged = {**self.kwargs, **(kwargs or {})}
        return Signature(self.type, (*args, *self.args), merged, options=self.options)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult | EagerResult:
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult | EagerResult:
        call = self.clone(args, kwargs)
        return self.type.enqueue_call(call.args, call.kwargs, {**self.options, **options})

    def apply(self, args: Sequence[Any] = ()) -> EagerResult:
        call = self.clone(args)
        return self.type.apply(call.args, call.kwargs)

    # --- as a part of groups and chains -------------------------------------------------------

    def bound(self) -> Submission[Any]:
        """The call with all of its arguments."""
        return self.type.using_celery(self.options).bind_call(self.args, self.kwargs)

    def link(self) -> PartialCall[Any] | Submission[Any]:
        """The call as one that gets the result of others, unless it is immutable."""
        if self.immutable:
            return self.bound()
        task = self.type.using_celery(self.options)
        names = task.arguments.names[1:]
        if len(self.args) > len(names):
            raise Invalid(f"task {self.task!r} takes no further argument beside the result")
        given = {**dict(zip(names, self.args, strict=False)), **self.kwargs}
        return task.partial(**given)


def signature(task: "SignableTask | Signature", *args: Any, **options: Any) -> Signature:
    """A signature of a task: `signature(add, args=(2, 2))`; a signature stays as it is."""
    return task if isinstance(task, Signature) else task.signature(*args, **options)


class chain:  # noqa: N801 - Celery's name
    """Calls one after the other, each with the result of the one before it."""

    def __init__(self, *signatures: Any) -> None:
        given = signatures[0] if len(signatures) == 1 else signatures
        self.tasks = list(given) if isinstance(given, Iterable) else [given]
        if not self.tasks:
            raise Invalid("a chain needs at least one call")

    def __new__(cls, *signatures: Any) -> Any:
        """A chain that begins with a group is a chord, as in Celery."""
        if len(signatures) > 1 and isinstance(signatures[0], group):
            first, second, *others = signatures
            made: Any = chord(first.tasks, second)
            for one in others:
                made = joined(made, one)
            return made
        return super().__new__(cls)

    def __or__(self, other: Any) -> "chain | chord":
        return joined(self, other)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs)

    delay = __call__

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> RunResult | EagerResult | AsyncResult:
        """Start the chain. `args` go to its first call."""
        for one in self.tasks:
            if not isinstance(one, Signature):
                raise Invalid(TOO_DEEP.format(what=f"a {type(one).__name__}"))
        first, *others = self.tasks
        first = first.clone(args, kwargs).set(**options)
        if first.type.is_eager:
            return self._apply(first, others)
        started = first.type.starter.chain(first.bound(), *(one.link() for one in others))
        return RunResult(started.run, started.result)

    def apply(self) -> EagerResult:
        first, *others = self.tasks
        return self._apply(first, others)

    def _apply(self, first: Signature, others: Sequence[Signature]) -> EagerResult:
        ended = first.apply()
        for one in others:
            if ended.failed():
                break
            ended = one.apply((ended.result,))
        return ended


class group:  # noqa: N801 - Celery's name
    """Calls that run at once."""

    def __init__(self, *signatures: Any) -> None:
        given = signatures[0] if len(signatures) == 1 else signatures
        self.tasks: list[Signature] = list(given) if isinstance(given, Iterable) else [given]
        for one in self.tasks:
            if not isinstance(one, Signature):
                raise Invalid(TOO_DEEP.format(what=f"a {type(one).__name__} in a group"))

    def __or__(self, body: Any) -> "chord":
        return chord(self.tasks, body)

    def __call__(self, *args: Any, **options: Any) -> GroupResult:
        return self.apply_async(args, **options)

    def delay(self, *args: Any) -> GroupResult:
        return self.apply_async(args)

    def apply_async(self, args: Sequence[Any] = (), **options: Any) -> GroupResult:
        """Enqueue all calls in one request."""
        calls = [one.clone(args).set(**options) for one in self.tasks]
        if not calls or calls[0].type.is_eager:
            return GroupResult([one.apply() for one in calls])
        handles = calls[0].type.starter.enqueue_many([one.bound() for one in calls])
        return GroupResult([AsyncResult(handle) for handle in handles])

    def apply(self) -> GroupResult:
        return GroupResult([one.apply() for one in self.tasks])


class chord:  # noqa: N801 - Celery's name
    """Calls that run at once, and a body that gets the list of their results."""

    def __init__(self, header: Iterable[Signature], body: Signature | None = None) -> None:
        self.tasks = list(header.tasks if isinstance(header, group) else header)
        self.body = body
        self._errback: Signature | None = None

    def __call__(self, body: Signature | None = None) -> Any:
        return chord(self.tasks, body or self.body)._with(self._errback).apply_async()  # noqa: SLF001 - its own class

    def __or__(self, other: Any) -> "chain | chord":
        return joined(self, other)

    def on_error(self, errback: Signature) -> "chord":
        """A call that gets the outcomes of the failed calls, instead of the body."""
        return chord(self.tasks, self.body)._with(errback)  # noqa: SLF001 - its own class

    def _with(self, errback: Signature | None) -> "chord":
        self._errback = errback
        return self

    delay = __call__

    def apply_async(self) -> RunResult | EagerResult:
        """Start the calls; `get` of the result waits for the body."""
        if self.body is None:
            raise Invalid("a chord needs a body: chord(calls)(body), or group(calls) | body")
        if self.body.type.is_eager:
            return self.body.apply((group(self.tasks).apply().get(),))
        started = self.body.type.starter.group(
            [one.bound() for one in self.tasks],
            on_success=self.body.link(),
            on_failure=None if self._errback is None else self._errback.link(),
        )

        def result(timeout: float | None) -> Any:
            started.result(timeout)  # raises what the failed calls have raised
            return started.callback_result(timeout)

        return RunResult(started.run, result)


def joined(first: Any, second: Any) -> "chain | chord":
    """`first | second`."""
    if isinstance(first, chord) or (isinstance(second, group) and len(second.tasks) != 1):
        raise Invalid(TOO_DEEP.format(what="a group or chord"))
    before = first.tasks if isinstance(first, chain) else [first]
    after = second.tasks if isinstance(second, chain | group) else [second]
    return chain(*before, *after)
