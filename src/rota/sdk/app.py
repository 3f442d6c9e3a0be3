"""Where does a program define its tasks and hand out calls of them? At its `Rota`.

Making one opens nothing: the connection, or the embedded coordinator, is opened when it is first
needed. With an embedded coordinator the program also runs a worker for its own tasks, from the
first time that something is enqueued (or `start` is called) until the program ends.
"""

import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

import msgspec

from rota.core import limits
from rota.core.tasks import NewTask
from rota.errors import Invalid
from rota.sdk import calls
from rota.sdk.background import BackgroundWorkers
from rota.sdk.client import Client
from rota.sdk.encoding import decoder_of, encode
from rota.sdk.ending import close_at_end
from rota.sdk.handles import TaskHandle
from rota.sdk.inbox import inbox_of, with_key
from rota.sdk.pending import PendingHandle
from rota.sdk.tasks import (
    CoroutineTask,
    FunctionTask,
    Options,
    Place,
    Submission,
    Task,
    template_of,
)
from rota.sdk.transport import is_embedded

if TYPE_CHECKING:
    from rota.sdk.definitions import Source
    from rota.sdk.locks import Lock, OnLost
    from rota.sdk.memory import Memory
    from rota.sdk.runs import RunHandle
    from rota.sdk.workflows import Workflow, WorkflowOptions

P = ParamSpec("P")
R = TypeVar("R")

EMBEDDED_CONCURRENCY = 10


class TaskDecorator(Protocol):
    """What `@app.task(...)` gives: it keeps the signature of whatever it decorates."""

    # An async function is a function too; checkers take the first that fits, as is meant.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # see above
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> CoroutineTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> FunctionTask[P, R]: ...


class Rota:
    """An app: tasks, and a way to a coordinator.

    `url` is `http://…`, or `sqlite:///FILE` for a coordinator inside this program; without it
    `ROTA_URL` counts, or else `sqlite:///rota.db`. Several coordinators on one store have commas
    between their addresses. `token` defaults to `ROTA_TOKEN`. `concurrency`
    is how many tasks the worker of an embedded coordinator runs at once; 0: it has none.

    `schema` and `notify` are about tasks that are enqueued with `conn`: which schema Rota has in
    that database (`ROTA_SCHEMA`, or else `rota`), and whether coordinators are told by NOTIFY.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        concurrency: int = EMBEDDED_CONCURRENCY,
        schema: str | None = None,
        notify: bool = True,
    ) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self._inbox = inbox_of(schema, is_told=notify)
        self._url = url
        self._token = token
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._is_own_client = True
        self._workers = BackgroundWorkers(self, concurrency=concurrency)

    # --- tasks ----------------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap]  # as in TaskDecorator
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        run_in: Place | None = None,
        **options: Unpack[Options],
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        run_in: Place | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(max_attempts=5, …)`.

        Workers know it by `name`, which is the function's own unless another is given. Plain
        functions run in threads, or with `run_in="process"` in processes; async ones on the
        worker's event loop.
        """
        if function is not None:
            return self._add(function, name, run_in, options)
        return lambda function: self._add(function, name, run_in, options)

    def _add(
        self,
        function: Callable[..., Any],
        name: str | None,
        run_in: Place | None,
        options: Options,
    ) -> Task[..., Any]:
        if not callable(function):
            raise Invalid("@app.task decorates a function; its options are given by name")
        name = name or function.__name__
        if name in self.tasks:
            raise Invalid(
                f"there is a task named {name!r} already; give one of them another name: "
                "@app.task(name=…)",
                task=name,
            )
        kind = CoroutineTask if inspect.iscoroutinefunction(function) else FunctionTask
        task: Task[..., Any] = kind(self, function, name=name, run_in=run_in, options=options)
        self.tasks[name] = task
        return task

    # --- workflows ------------------------------------------------------------------------------

    def workflow(self, source: "Source", /, **options: "Unpack[WorkflowOptions]") -> "Workflow":
        """A workflow: built here by name, or read from a file, a text or a definition.

        `app.workflow("panel")` is one to add nodes to, or without any the one that the
        coordinator has under that name; `app.workflow("panel.yaml")` and a text of several lines
        are read, and must be valid.
        """
        # Reading definitions takes YAML and CEL; programs without workflows need neither.
        from rota.sdk.definitions import definition_of, is_name  # noqa: PLC0415
        from rota.sdk.workflows import Workflow  # noqa: PLC0415

        if is_name(source):
            return Workflow(self, {"name": source, **options})
        if options:
            raise Invalid("a definition that is read says everything itself; give no options")
        return Workflow.of(self, definition_of(source))

    def run_handle(self, run_id: str) -> "RunHandle":
        """The handle of a run whose id is known."""
        from rota.sdk.runs import RunHandle  # noqa: PLC0415 - as above

        return RunHandle(run_id, self._get_client)

    # --- calls ----------------------------------------------------------------------------------

    @overload
    def enqueue_many(
        self, submissions: Iterable[Submission[R]], *, conn: None = None
    ) -> list[TaskHandle[R]]: ...
    @overload
    def enqueue_many(
        self, submissions: Iterable[Submission[R]], *, conn: Any
    ) -> list[PendingHandle[R]]: ...

    def enqueue_many(self, submissions: Iterable[Submission[R]], *, conn: Any = None) -> Any:
        """Enqueue many calls, made by `task.bind(…)`, in batches.

        Each batch of up to 10,000 is accepted whole or not at all. With `conn` they are all put
        into the transaction that is under way there.
        """
        if conn is not None:
            keyed = self._keyed(submissions)
            self._inbox.put(conn, [one.new_task for one in keyed])
            return self._pending(keyed)
        self._workers.cover()
        handles: list[TaskHandle[R]] = []
        for batch in _batches(submissions):
            call = calls.submit_for_receipts([one.new_task for one in batch])
            handles += self._handles(batch, self.client.run(call))
        return handles

    @overload
    async def aenqueue_many(
        self, submissions: Iterable[Submission[R]], *, conn: None = None
    ) -> list[TaskHandle[R]]: ...
    @overload
    async def aenqueue_many(
        self, submissions: Iterable[Submission[R]], *, conn: Any
    ) -> list[PendingHandle[R]]: ...

    async def aenqueue_many(self, submissions: Iterable[Submission[R]], *, conn: Any = None) -> Any:
        """As `enqueue_many`, for async code, and for async connections."""
        if conn is not None:
            keyed = self._keyed(submissions)
            await self._inbox.aput(conn, [one.new_task for one in keyed])
            return self._pending(keyed)
        self._workers.cover()
        handles: list[TaskHandle[R]] = []
        for batch in _batches(submissions):
            call = calls.submit_for_receipts([one.new_task for one in batch])
            handles += self._handles(batch, await self.client.arun(call))
        return handles

    @overload
    def enqueue(
        self, name: str, payload: Any = None, *, conn: None = None, **options: Unpack[Options]
    ) -> TaskHandle[Any]: ...
    @overload
    def enqueue(
        self, name: str, payload: Any = None, *, conn: Any, **options: Unpack[Options]
    ) -> PendingHandle[Any]: ...

    def enqueue(
        self, name: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> Any:
        """Enqueue a task by name that another program defines; its payload goes as it is."""
        return self.enqueue_many([_foreign(name, payload, options)], conn=conn)[0]

    @overload
    async def aenqueue(
        self, name: str, payload: Any = None, *, conn: None = None, **options: Unpack[Options]
    ) -> TaskHandle[Any]: ...
    @overload
    async def aenqueue(
        self, name: str, payload: Any = None, *, conn: Any, **options: Unpack[Options]
    ) -> PendingHandle[Any]: ...

    async def aenqueue(
        self, name: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> Any:
        """As `enqueue`, for async code, and for async connections."""
        return (await self.aenqueue_many([_foreign(name, payload, options)], conn=conn))[0]

    def handle(self, task_id: str) -> TaskHandle[Any]:
        """The handle of a task whose id is known."""
        return TaskHandle(task_id, self._get_client, decoder_of(Any))

    def _handles(
        self, batch: Sequence[Submission[R]], receipts: list[calls.Receipt]
    ) -> list[TaskHandle[R]]:
        client = self._get_client
        return [
            TaskHandle(receipt.id, client, one.decoder, is_duplicate=receipt.duplicate)
            for one, receipt in zip(batch, receipts, strict=True)
        ]

    def _keyed(self, submissions: Iterable[Submission[R]]) -> list[Submission[R]]:
        """Calls for a transaction: each has a key, and somebody will look for it there."""
        if self._is_own_client and is_embedded(self._url):
            raise Invalid(
                "this app has a coordinator on SQLite inside it, which no transaction of "
                "PostgreSQL reaches: give the app the url of a coordinator on that database",
                field="conn",
            )
        return [Submission(with_key(one.new_task), one.decoder) for one in submissions]

    def _pending(self, keyed: Iterable[Submission[R]]) -> list[PendingHandle[R]]:
        return [
            PendingHandle(one.new_task.key or "", self._get_client, one.decoder) for one in keyed
        ]

    # --- values and locks -----------------------------------------------------------------------

    @property
    def memory(self) -> "Memory":
        """What programs keep with the coordinator, by key: `app.memory.put("k", {"n": 1})`."""
        from rota.sdk.memory import Memory  # noqa: PLC0415 - few programs need it

        return Memory(self._get_client)

    def lock(
        self,
        name: str,
        *,
        ttl_s: float = 30.0,
        wait_s: float | None = None,
        on_lost: "OnLost | None" = None,
    ) -> "Lock":
        """A lock that only one has at a time: `with app.lock("report") as lock:`.

        It is had for `ttl_s` seconds, and renewed in the background. Somebody else's is waited for:
        as long as it takes, or for `wait_s` seconds; then `LockNotAcquired` is raised. `on_lost` is
        called, in the background, when the lock could not be renewed in time.
        """
        from rota.sdk.locks import Lock  # noqa: PLC0415 - as above

        return Lock(self._get_client, name, ttl_s=ttl_s, wait_s=wait_s, on_lost=on_lost)

    # --- the way to the coordinator -------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client that this app's calls go through; opened when first asked for."""
        return self._get_client()

    def _get_client(self) -> Client:
        client = self._client
        if client is None:
            with self._lock:
                if self._client is None:
                    self._client = Client.connect(self._url, self._token)
                    close_at_end(self)
                client = self._client
        return client

    def use(self, client: Client) -> None:
        """Go through this client from now on; whoever made it closes it, and runs workers."""
        self.close()
        with self._lock:
            self._client = client
            self._is_own_client = False
            self._workers.is_wanted = False

    def reset(self) -> None:
        """Undo `use`: the way to the coordinator is opened anew, as the app was made for."""
        self.close()
        self._workers.is_wanted = True

    def start(self) -> None:
        """Open the way to the coordinator, and if it is embedded start the worker."""
        _ = self.client
        self._workers.cover()

    def close(self) -> None:
        """Stop the embedded worker and coordinator, or close the connections. May be repeated."""
        self._workers.stop()
        with self._lock:
            client, self._client = self._client, None
            is_own, self._is_own_client = self._is_own_client, True
        if client is not None and is_own:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _foreign(name: str, payload: Any, options: Options) -> Submission[Any]:
    template: NewTask = template_of(name, options)
    raw = msgspec.Raw(encode(payload))
    return Submission(msgspec.structs.replace(template, payload=raw), decoder_of(Any))


def _batches(submissions: Iterable[Submission[R]]) -> Iterable[Sequence[Submission[R]]]:
    waiting = list(submissions)
    size = limits.MAX_TASKS_PER_SUBMISSION
    for start in range(0, len(waiting), size):
        yield waiting[start : start + size]
