"""What does a program start to have its tasks run? A `Worker`.

    Worker(app, concurrency=20, queues=["default"], capabilities=["gpu"]).run()

`run` blocks until the worker is stopped: by a signal (the first drains, the second quits at once),
by `stop` from another thread, or because it has run `max_tasks`. It says why it returned, so that
whoever started it knows whether to start it anew.
"""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from rota.core import limits
from rota.errors import Invalid
from rota.messages import WorkerRegistration
from rota.sdk.leasing import Line
from rota.sdk.sessions import Session
from rota.sdk.shift import Shift, StopReason

if TYPE_CHECKING:
    from rota.sdk.app import Rota

__all__ = ["StopReason", "Worker"]

DEFAULT_CONCURRENCY = 10
DRAIN_S = 30.0


class Worker:
    """Runs the tasks of an app, or some of them.

    `concurrency` is how many attempts run at once, of all kinds together. `tasks` are the names
    to serve (all of the app's), `queues` the queues (all). `max_tasks` makes it stop after so
    many. `drain_s` is what running handlers get to finish once a stop is asked for; then they
    are stopped, and their tasks handed back without using up an attempt. `transport` is how it
    gets its work: `auto` (a stream if there can be one, otherwise polling; the default, unless
    `ROTA_TRANSPORT` says otherwise), `websocket` (nothing but a stream) or `http` (polling).
    """

    def __init__(
        self,
        app: "Rota",
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        tasks: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        capabilities: Sequence[str] = (),
        worker_id: str | None = None,
        node_id: str | None = None,
        group: str | None = None,
        labels: Mapping[str, str] | Sequence[str] | None = None,
        heartbeat_interval_ms: int = 5_000,
        drain_s: float = DRAIN_S,
        max_tasks: int | None = None,
        on_registered: Callable[[str], None] | None = None,
        transport: str | None = None,
    ) -> None:
        self._app = app
        self._names = list(app.tasks) if tasks is None else list(tasks)
        self._drain_s = drain_s
        self._max_tasks = max_tasks
        self._on_registered = on_registered
        self._line = _line_named(transport or os.environ.get("ROTA_TRANSPORT") or Line.AUTO)
        self._shift: Shift | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stop_asked = False
        self.worker_id = worker_id  # the one it was given, once it is registered
        self._check()
        self._registration = _checked_registration(
            {
                "node_id": node_id or socket.gethostname()[: limits.MAX_NAME_LENGTH] or "unnamed",
                "capabilities": list(capabilities),
                "max_concurrent_tasks": concurrency,
                "tasks": self._names,
                "queues": None if queues is None else list(queues),
                "heartbeat_interval_ms": heartbeat_interval_ms,
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
        """Work on this thread until stopped. On the main thread SIGTERM and SIGINT are heeded."""
        # What is loaded by now stays; the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(self._run_with_signals())

    async def arun(self) -> StopReason:
        """Work on the running event loop until stopped. Signals are the caller's business."""
        shift = self._begin()
        try:
            return await shift.run()
        finally:
            self._shift = None

    def stop(self) -> None:
        """Ask the worker to drain and leave, from any thread; once more: to leave at once."""
        is_repeated, self._is_stop_asked = self._is_stop_asked, True
        shift, loop = self._shift, self._loop
        if shift is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(shift.hurry if is_repeated else shift.stop)

    def _begin(self) -> Shift:
        if self._shift is not None:
            raise Invalid("this worker is running already")
        self._loop = asyncio.get_running_loop()
        self._shift = Shift(
            self._app.client,
            self._registration,
            {name: self._app.tasks[name] for name in self._names},
            drain_s=self._drain_s,
            max_tasks=self._max_tasks,
            on_session=self._note_session,
            line=self._line,
        )
        if self._is_stop_asked:
            self._shift.stop()
        return self._shift

    def _note_session(self, session: Session) -> None:
        self.worker_id = session.worker_id
        if self._on_registered is not None:
            self._on_registered(session.worker_id)

    async def _run_with_signals(self) -> StopReason:
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
        except (ValueError, RuntimeError):
            return await self.arun()  # not on the main thread, so signals go elsewhere
        try:
            return await self.arun()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def _checked_registration(values: dict[str, object]) -> WorkerRegistration:
    try:
        return msgspec.convert(values, WorkerRegistration)
    except msgspec.ValidationError as error:
        raise Invalid(f"a worker cannot be set up like this: {error}") from None


def _line_named(name: str) -> Line:
    try:
        return Line(name)
    except ValueError:
        names = ", ".join(Line)
        raise Invalid(f"there is no transport {name!r}; there are: {names}") from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - only worker processes need it, and not every platform has it
    except ImportError:
        return None
    return uvloop.new_event_loop
