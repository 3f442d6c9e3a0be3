"""The app: defines tasks and workflows, and enqueues them.

An app connects to its coordinator, or starts the embedded one, on first use. With an embedded
coordinator the program also runs a worker for its own tasks, from the first `enqueue` or `start`
until the program ends.
"""

import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast, overload

from rota.errors import Invalid
from rota.sdk.app.connection import AppConnection
from rota.sdk.app.registration import (
    BatchDecorator,
    TaskDecorator,
    register_function,
    register_task,
)
from rota.sdk.app.submitter import Submitter, bind_by_name
from rota.sdk.client.client import Client
from rota.sdk.client.requests import Exchange
from rota.sdk.encoding import decoder_of
from rota.sdk.groups.starter import GroupStarter
from rota.sdk.handles import PendingHandle, TaskHandle
from rota.sdk.middleware.chain import MiddlewareChain
from rota.sdk.middleware.hooks import Middleware
from rota.sdk.options.durations import Seconds
from rota.sdk.options.other_names import APP_ELSEWHERE, missing_attribute
from rota.sdk.schedules.app_schedules import AppSchedules
from rota.sdk.task import BatchPolicy, CoroutineTask, FunctionTask, Options, Place, Submission, Task
from rota.sdk.worker.background import BackgroundWorkers
from rota.tls import Verify

if TYPE_CHECKING:
    from rota.sdk.definitions import Source
    from rota.sdk.functions.context import BlockingContext, FunctionContext
    from rota.sdk.functions.workflow import CodeDecorator, CodeOptions, CodeWorkflow
    from rota.sdk.kv import Memory
    from rota.sdk.locks import Lock, OnLost
    from rota.sdk.run import RunHandle
    from rota.sdk.schedules.declared import DeclaredSchedule, ScheduleOptions
    from rota.sdk.workflow import Workflow, WorkflowOptions

P = ParamSpec("P")
R = TypeVar("R")
Scheduled = TypeVar("Scheduled", bound="Task[..., Any] | Workflow | CodeWorkflow[..., Any]")

EMBEDDED_CONCURRENCY = 10
NOTIFY_HAS_GONE = (
    "`notify` has no effect: the leader looks for tasks of transactions every `inbox_interval_ms`"
)


class Rota(GroupStarter):
    """An app: tasks, and a connection to a coordinator.

    `url` is `http://…` or `https://…`, or `sqlite:///FILE` for a coordinator inside this program;
    the default is `ROTA_URL`, or else the coordinator that `rota up` or `rota dev` has started on
    this machine. With `embedded` and no address, the coordinator is inside this program, on
    `rota.db`, unless `ROTA_URL` names one: for programs of one process. Several coordinators on
    one store have commas between their addresses. `token` defaults to `ROTA_TOKEN`. `concurrency`
    is how many tasks the worker of an embedded coordinator runs at once; with 0 there is no such
    worker.

    `verify` concerns `https://…`: with True, the coordinator's certificate must be signed by an
    authority in the file of `ROTA_CA`, or else of the system; a path names another such file. With
    False it is not checked, which gives the token to any machine on the way, and is warned of.

    `name` is how the coordinator knows the schedules of this app; by default it is the module of
    the first task with a schedule. `middleware` surrounds what the app enqueues and executes, the
    first one outermost.

    `schema` concerns tasks that are enqueued with `conn`: the schema that Rota has in that database
    (`ROTA_SCHEMA`, or else `rota`). `notify` has no effect any more, and will be removed.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        concurrency: int = EMBEDDED_CONCURRENCY,
        schema: str | None = None,
        notify: bool | None = None,
        verify: Verify = True,
        name: str | None = None,
        embedded: bool = False,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        if notify is not None:
            warnings.warn(NOTIFY_HAS_GONE, DeprecationWarning, stacklevel=2)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.middleware = MiddlewareChain(middleware) if middleware else None
        self.functions: dict[str, CodeWorkflow[..., Any]] = {}  # workflows in code, by name
        self._schedules = AppSchedules(name)
        self._lock = threading.Lock()  # of the middleware
        self._connection = AppConnection(self, url, token, verify=verify, embedded=embedded)
        self._submitter = Submitter(
            self._connection, schema=schema, middleware=lambda: self.middleware
        )
        self._workers = BackgroundWorkers(self, concurrency=concurrency)

    # --- middleware -----------------------------------------------------------------------------

    def use_middleware(self, *middleware: Middleware) -> None:
        """Install middleware, inside that which is installed already; calls from now on pass it."""
        with self._lock:
            installed = () if self.middleware is None else self.middleware.installed
            self.middleware = MiddlewareChain((*installed, *middleware))

    def remove_middleware(self, middleware: Middleware) -> None:
        """Undo `use_middleware`; without effect on middleware that is not installed."""
        with self._lock:
            installed = () if self.middleware is None else self.middleware.installed
            rest = [one for one in installed if one is not middleware]
            self.middleware = MiddlewareChain(rest) if rest else None

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
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        batch: BatchPolicy,
        name: str | None = None,
        run_in: Place | None = None,
        **options: Unpack[Options],
    ) -> BatchDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        batch: BatchPolicy | None = None,
        name: str | None = None,
        run_in: Place | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(max_attempts=5, …)`.

        Workers know the task by `name`, by default the function's own. Plain functions run in
        threads, or with `run_in="process"` in processes; async ones on the worker's event loop.

        With `batch` the function takes a list with the items of several calls, and returns None or
        a list with a result for each. Each call is a task of its own.
        """
        if function is not None:
            return register_task(self, function, name, run_in=run_in, options=options)
        return lambda function: register_task(
            self, function, name, run_in=run_in, options=options, batch=batch
        )

    # --- workflows ------------------------------------------------------------------------------

    @overload
    def workflow(
        self,
        function: "Callable[Concatenate[FunctionContext, P], Coroutine[Any, Any, R]]",
        /,
    ) -> "CodeWorkflow[P, R]": ...
    @overload
    def workflow(
        self, function: "Callable[Concatenate[BlockingContext, P], R]", /
    ) -> "CodeWorkflow[P, R]": ...
    @overload
    def workflow(self, /, **options: "Unpack[CodeOptions]") -> "CodeDecorator": ...
    @overload
    def workflow(self, source: "Source", /, **options: "Unpack[WorkflowOptions]") -> "Workflow": ...

    def workflow(self, source: Any = None, /, **options: Any) -> Any:
        """A workflow: a function, or a definition that is built, or read from a file or a text.

        `@app.workflow`, or `@app.workflow(version=2, queue="orders")`, makes a durable function.

        `app.workflow("panel")` has nodes added to it, or without any is the one that the
        coordinator has under that name. `app.workflow("panel.yaml")` and a text of several lines
        are parsed, and must be valid.
        """
        # Parsing takes YAML and CEL; programs without workflows load neither.
        from rota.sdk.definitions import definition_of, is_name  # noqa: PLC0415
        from rota.sdk.workflow import Workflow  # noqa: PLC0415

        if source is None or callable(source):
            return self._workflow_in_code(source, cast("CodeOptions", options))
        if is_name(source):
            return Workflow(self, {"name": source, **options})
        if options:
            raise Invalid(
                "a definition that is read from a file or text has its own options; give none here"
            )
        return Workflow.of(self, definition_of(source))

    def _workflow_in_code(self, function: Any, options: "CodeOptions") -> Any:
        def add(function: Callable[..., Any]) -> "CodeWorkflow[..., Any]":
            made = register_function(self, function, options)
            self.functions[made.name] = made
            return made

        return add if function is None else add(function)

    def deploy_functions(self) -> list[str]:
        """Deploy the workflows in code; returns the capabilities of a worker that has them."""
        return self.client.run(self._deploy_functions(self.tasks)) if self.functions else []

    async def adeploy_functions(self, tasks: Iterable[str]) -> list[str]:
        """Deploy the workflows in code that these tasks run; otherwise as `deploy_functions`."""
        return await self.client.arun(self._deploy_functions(tasks)) if self.functions else []

    def _deploy_functions(self, tasks: Iterable[str]) -> Exchange[list[str]]:
        from rota.sdk.functions.workflow import deploying_all  # noqa: PLC0415 - as above

        wanted = set(tasks)
        return deploying_all([one for one in self.functions.values() if one.task.name in wanted])

    def run_handle(self, run_id: str) -> "RunHandle":
        """The handle of a run with a known id."""
        from rota.sdk.run import RunHandle  # noqa: PLC0415 - as above

        return RunHandle(run_id, self._connection.client)

    # --- schedules ------------------------------------------------------------------------------

    @property
    def schedules(self) -> "dict[str, DeclaredSchedule]":
        """The schedules of the app's code, by name."""
        return self._schedules.declared

    def schedule(
        self, *cron: str, **options: "Unpack[ScheduleOptions]"
    ) -> "Callable[[Scheduled], Scheduled]":
        """Give a task or a workflow a schedule: `@app.schedule("0 3 * * *", timezone=…)`.

        The decorator goes above `@app.task`. Workflows are given to it:
        `app.schedule("0 3 * * *", input={…})(flow)`. Workers deploy the schedules of their app when
        they register, and `deploy_schedules` does at once.
        """

        def add(target: "Scheduled") -> "Scheduled":
            self._schedules.add(target, cron, options)
            return target

        return add

    def deploy_schedules(self) -> None:
        """Make the schedules of this app at the coordinator those of its code."""
        if self.schedules:
            self.client.run(self._schedules.deploying())

    async def adeploy_schedules(self) -> None:
        """As `deploy_schedules`, for async code."""
        if self.schedules:
            await self.client.arun(self._schedules.deploying())

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

        The coordinator accepts each batch of up to 10,000 whole or not at all. With `conn` all of
        them become part of the transaction that is open there.
        """
        if conn is None:
            return self.client.run(self._submit(submissions))
        return self._submitter.put(submissions, conn)

    @overload
    async def aenqueue_many(
        self, submissions: Iterable[Submission[R]], *, conn: None = None
    ) -> list[TaskHandle[R]]: ...
    @overload
    async def aenqueue_many(
        self, submissions: Iterable[Submission[R]], *, conn: Any
    ) -> list[PendingHandle[R]]: ...

    async def aenqueue_many(self, submissions: Iterable[Submission[R]], *, conn: Any = None) -> Any:
        """As `enqueue_many`, for async code and async connections."""
        if conn is None:
            return await self.client.arun(self._submit(submissions))
        return await self._submitter.aput(submissions, conn)

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
        """Enqueue a task that another program defines, by name; the payload is sent as it is.

        Keys of limits may be templates over the fields of the payload.
        """
        return self.enqueue_many([bind_by_name(name, payload, options)], conn=conn)[0]

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
        """As `enqueue`, for async code and async connections."""
        return (await self.aenqueue_many([bind_by_name(name, payload, options)], conn=conn))[0]

    def handle(self, task_id: str) -> TaskHandle[Any]:
        """The handle of a task with a known id."""
        return TaskHandle(task_id, self._connection.client, decoder_of(Any))

    def _submit(self, submissions: Iterable[Submission[R]]) -> Exchange[list[TaskHandle[R]]]:
        self._workers.cover()
        return (yield from self._submitter.submit(submissions))

    # --- values and locks -----------------------------------------------------------------------

    @property
    def memory(self) -> "Memory":
        """The coordinator's key-value store: `app.memory.put("k", {"n": 1})`."""
        from rota.sdk.kv import Memory  # noqa: PLC0415 - few programs need it

        return Memory(self._connection.client)

    def lock(
        self,
        name: str,
        *,
        ttl_s: Seconds = 30.0,
        wait_s: Seconds | None = None,
        on_lost: "OnLost | None" = None,
    ) -> "Lock":
        """A lock that one program holds at a time: `with app.lock("report") as lock:`.

        The lock is held for `ttl_s` seconds at once and renewed in the background. While another
        program holds it, `with` waits: without a limit, or for `wait_s` seconds, after which it
        raises `LockNotAcquired`. Both may also be a timedelta, or a text such as "5m". `on_lost`
        is called in the background when the lock could not be renewed in time.
        """
        from rota.sdk.locks import Lock  # noqa: PLC0415 - as above

        return Lock(self._connection.client, name, ttl_s=ttl_s, wait_s=wait_s, on_lost=on_lost)

    # --- the connection to the coordinator ------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client of this app, connected on first use."""
        return self._connection.client()

    def use(self, client: Client) -> None:
        """Use this client from now on; the caller closes it, and runs the workers."""
        self.close()
        self._connection.use(client)
        self._workers.is_wanted = False

    def reset(self) -> None:
        """Undo `use`: connect by the app's own URL again."""
        self.close()
        self._workers.is_wanted = True

    def start(self) -> None:
        """Connect to the coordinator; if it is embedded, start the worker too."""
        _ = self.client
        self._workers.cover()

    def close(self) -> None:
        """Stop the embedded worker and coordinator, or close the connections; repeatable."""
        self._workers.stop()
        self._connection.close()

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, "an app", name, APP_ELSEWHERE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
