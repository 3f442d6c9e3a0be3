"""The `Worker`, which a program starts to run its tasks.

    Worker(app, concurrency=20, queues=["default"], capabilities=["gpu"]).run()

`run` blocks until the worker is stopped: by a signal (the first drains, the second quits at once),
by `stop` from another thread, or because it has run `max_tasks`. It returns the reason, so that its
caller knows whether to start another one.
"""

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rota.core import limits
from rota.errors import Invalid, RotaError
from rota.messages import WorkerRegistration
from rota.sdk.context import EXECUTION
from rota.sdk.logs.task_logger import ALL, capturing, kept_level
from rota.sdk.options.durations import Duration, Seconds, optional_milliseconds, seconds
from rota.sdk.task import App
from rota.sdk.worker.poller import LeaseTransport
from rota.sdk.worker.runtime import WorkerRuntime
from rota.sdk.worker.session import WorkerSession
from rota.sdk.worker.stopping import StopReason, run_with_signals
from rota.telemetry import library_logger

log = library_logger("rota.worker")

DEFAULT_CONCURRENCY = 10
DRAIN_S = 30.0


class Worker:
    """Runs the tasks of an app, or some of them.

    `concurrency` is how many attempts run at once. `tasks` are the names to serve (default: all
    of the app's), `queues` the queues (default: all). The worker stops after `max_tasks`.
    `drain_s` is the time that handlers get to finish after a stop; then the worker stops them and
    hands their tasks back without using up an attempt. `transport` is how it gets work: `auto` (a
    stream if possible, otherwise polling), `websocket` (a stream only) or `http` (polling only);
    the default is `ROTA_TRANSPORT`, or else `auto`.

    What a handler logs by its context (`current().log`) is kept with its attempt.
    `capture_logs` names loggers of the standard library that are kept as well while a handler
    runs; True: all of them. `task_log_level` is the lowest level that is kept (`debug`, `info`,
    `warning`, `error`), or `off`.
    """

    def __init__(
        self,
        app: App,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        tasks: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        capabilities: Sequence[str] = (),
        worker_id: str | None = None,
        node_id: str | None = None,
        group: str | None = None,
        labels: Mapping[str, str] | Sequence[str] | None = None,
        heartbeat_interval_ms: int | Duration = 5_000,
        drain_s: Seconds = DRAIN_S,
        max_tasks: int | None = None,
        on_registered: Callable[[str], None] | None = None,
        transport: str | None = None,
        capture_logs: bool | Sequence[str] = False,
        task_log_level: str = "info",
    ) -> None:
        self._app = app
        self._names = list(app.tasks) if tasks is None else list(tasks)
        self._drain_s = seconds(drain_s, "drain_s")
        self._max_tasks = max_tasks
        self._on_registered = on_registered
        name = transport or os.environ.get("ROTA_TRANSPORT") or LeaseTransport.AUTO
        self._transport = _transport_named(name)
        self._log_level = kept_level(task_log_level)
        self._captured = _captured_loggers(capture_logs)
        self._runtime: WorkerRuntime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stop_requested = False
        self._deploying: asyncio.Future[None] | None = None
        self.worker_id = worker_id  # once registered, the id that the coordinator gave it
        self._check()
        self._registration = _checked_registration(
            {
                "node_id": node_id or socket.gethostname()[: limits.MAX_NAME_LENGTH] or "unnamed",
                "capabilities": list(capabilities),
                "max_concurrent_tasks": concurrency,
                "tasks": self._names,
                "queues": None if queues is None else list(queues),
                "heartbeat_interval_ms": optional_milliseconds(
                    heartbeat_interval_ms, "heartbeat_interval"
                ),
                "worker_id": worker_id,
                "group": group,
                "labels": dict(labels) if isinstance(labels, Mapping) else labels,
            }
        )

    def _check(self) -> None:
        unknown = [name for name in self._names if name not in self._app.tasks]
        if unknown:
            known = ", ".join(sorted(self._app.tasks)) or "none"
            raise Invalid(f"the app has no task named {unknown[0]!r}; it has: {known}")
        if not self._names:
            raise Invalid("the app has no tasks, so there is nothing for a worker to do")
        if self._max_tasks is not None and self._max_tasks < 1:
            raise Invalid("max_tasks is a number of tasks to run: 1 or more")
        if self._drain_s < 0:
            raise Invalid("drain_s is a time in seconds: 0 or more")

    def run(self) -> StopReason:
        """Work on this thread until stopped; on the main thread by SIGTERM and SIGINT too."""
        # The objects loaded so far live as long as the process; the collector may skip them.
        gc.collect()
        gc.freeze()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(run_with_signals(self.arun, self.stop))

    async def arun(self) -> StopReason:
        """Work on the running event loop until stopped; the caller handles signals."""
        if self._runtime is not None:
            raise Invalid("this worker is running already; make another `Worker`")
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime = WorkerRuntime(
            self._app.client,
            self._registration,
            {name: self._app.tasks[name] for name in self._names},
            drain_s=self._drain_s,
            max_tasks=self._max_tasks,
            on_session=self._note_session,
            deploy_functions=lambda: self._app.adeploy_functions(self._names),
            transport=self._transport,
            log_level=self._log_level,
            captured=self._captured,
        )
        if self._is_stop_requested:
            runtime.stop()
        try:
            with capturing(self._captured, lambda: EXECUTION.get(None)):
                return await runtime.run()
        finally:
            self._runtime = None
            if self._deploying is not None:
                self._deploying.cancel()

    def stop(self) -> None:
        """Drain and leave; the second call leaves at once. Callable from any thread."""
        is_repeated, self._is_stop_requested = self._is_stop_requested, True
        runtime, loop = self._runtime, self._loop
        if runtime is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(runtime.hurry if is_repeated else runtime.stop)

    def _note_session(self, session: WorkerSession) -> None:
        self.worker_id = session.worker_id
        self._deploying = asyncio.ensure_future(self._deploy_schedules())
        if self._on_registered is not None:
            self._on_registered(session.worker_id)

    async def _deploy_schedules(self) -> None:
        try:
            await self._app.adeploy_schedules()
        except RotaError as error:
            # Its tasks can be served all the same. The next registration tries again.
            log.warning("schedules_not_deployed", problem=error.detail)


def _checked_registration(values: dict[str, object]) -> WorkerRegistration:
    try:
        return msgspec.convert(values, WorkerRegistration)
    except msgspec.ValidationError as error:
        raise Invalid(f"the worker's options are not valid: {error}") from None


def _captured_loggers(wanted: bool | Sequence[str]) -> list[str]:  # noqa: FBT001 - as its caller has it
    if isinstance(wanted, bool):
        return [ALL] if wanted else []
    if isinstance(wanted, str):
        raise Invalid(f"capture_logs is a list of names of loggers: [{wanted!r}], or True for all")
    return list(wanted)


def _transport_named(name: str) -> LeaseTransport:
    try:
        return LeaseTransport(name)
    except ValueError:
        names = ", ".join(LeaseTransport)
        raise Invalid(f"there is no transport {name!r}; there are: {names}") from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - only worker processes need it, and not every platform has it
    except ImportError:
        return None
    return uvloop.new_event_loop
