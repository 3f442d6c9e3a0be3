"""The base class of middleware, and what its hooks are given.

A hook returns a context manager, which is entered before the call and left after it, or None. It is
the same for plain and async code: a context manager does not wait.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from msgspec import Raw

from rota.core.tasks.headers import HeaderName, HeaderValue
from rota.sdk.context import TaskContext

Hook = AbstractContextManager[Any] | None


class EnqueuedCall:
    """A task that is being enqueued, or a run that is being started."""

    __slots__ = ("headers", "id", "is_duplicate", "key", "kind", "name", "payload", "queue")

    def __init__(
        self,
        kind: Literal["task", "run"],
        name: str,
        *,
        payload: Raw,
        queue: str | None = None,
        key: str | None = None,
        headers: dict[HeaderName, HeaderValue] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name  # of the task, or of the workflow
        self.queue = queue  # None: a run has none
        self.key = key
        self.payload = payload  # JSON, as it is sent
        self.headers = dict(headers or {})  # hooks add to them; all attempts, or tasks, get them
        # Known when the coordinator has accepted it; None in a transaction, which decides later.
        self.id: str | None = None
        self.is_duplicate = False  # an earlier task, or run, has its key

    def __repr__(self) -> str:
        return f"<EnqueuedCall {self.kind} {self.name}>"


class HandlerCall:
    """One call of a handler: of one task, or of a batch."""

    __slots__ = ("contexts", "result")

    def __init__(self, contexts: Sequence[TaskContext]) -> None:
        self.contexts = tuple(contexts)  # of each task that the call is for, in order
        # What the handler has returned, known after the call; a hook may replace it.
        self.result: Any = None

    @property
    def context(self) -> TaskContext:
        """The context of the task; of a batch that of the first one."""
        return self.contexts[0]

    def __repr__(self) -> str:
        return f"<HandlerCall {self.context.name}>"


class StepExecution:
    """One attempt of a step of a durable function."""

    __slots__ = ("attempt", "context", "name", "path", "result")

    def __init__(self, context: TaskContext, *, name: str, path: str, attempt: int) -> None:
        self.context = context  # of the task that runs the function now
        self.name = name
        self.path = path  # in the log of the function
        self.attempt = attempt  # counted from 1
        self.result: Any = None  # known after the call; a hook may replace it

    def __repr__(self) -> str:
        return f"<StepExecution {self.path}>"


class Middleware:
    """Base of middleware. Override the hooks that you need.

    The middleware that is installed first is the outermost one. Hooks are called where the code
    runs that they surround: on the event loop, in the handler's thread, or in its process.
    """

    def on_enqueue(self, calls: Sequence[EnqueuedCall], /) -> Hook:
        """Surround the submission of tasks, or the start of a run.

        An error refuses the submission. A hook sees the error of a submission that the coordinator
        refuses, and cannot suppress it.
        """
        del calls
        return None

    def on_execute(self, call: HandlerCall, /) -> Hook:
        """Surround the call of a handler, once its arguments are decoded.

        An error counts as one of the handler. If the hook suppresses an error of the handler, the
        attempt has succeeded, with `call.result`.
        """
        del call
        return None

    def on_step(self, step: StepExecution, /) -> Hook:
        """Surround one attempt of a step of a durable function; otherwise as `on_execute`.

        A step that is replayed is not executed, and has no call of this hook.
        """
        del step
        return None
