"""Starts and stops an app of Rota with an ASGI server, and gives it to request handlers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from starlette.requests import HTTPConnection

from rota.errors import Invalid, RotaError, StoreLocked
from rota.sdk.app.app import Rota
from rota.sdk.worker.worker import DEFAULT_CONCURRENCY, Worker
from rota.telemetry import library_logger

log = library_logger("rota.asgi")

STATE = "rota"  # the name in the state of a request
DRAIN_S = 10.0  # for running tasks when the server stops

# What Starlette and FastAPI take as `lifespan`. Their own type names the class of the application.
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(
    rota: Rota,
    inner: Lifespan | None = None,
    *,
    worker: bool = False,
    concurrency: int = DEFAULT_CONCURRENCY,
) -> Lifespan:
    """The lifespan of an application that uses Rota: `FastAPI(lifespan=lifespan(rota))`.

    An embedded coordinator and its worker run for as long as the server does. With a coordinator
    elsewhere, `worker` starts a worker for the app's tasks in each process of the server, which
    runs `concurrency` tasks at once. `inner` is the application's own lifespan. It runs inside this
    one, so that it can use Rota, and its state is kept.
    """

    @asynccontextmanager
    async def run(app: Any) -> AsyncIterator[dict[str, Any]]:
        background = await asyncio.to_thread(_started, rota, worker=worker, concurrency=concurrency)
        try:
            async with AsyncExitStack() as stack:
                state: Mapping[str, Any] | None = None
                if inner is not None:
                    state = await stack.enter_async_context(inner(app))
                yield {**(state or {}), STATE: rota}
        finally:
            await asyncio.to_thread(_stop, rota, background)

    return run


async def get_rota(connection: HTTPConnection) -> Rota:
    """The app of Rota that serves this request, for `Depends`."""
    found = getattr(connection.state, STATE, None)
    if not isinstance(found, Rota):
        raise Invalid(
            "this application does not run Rota: create it with `lifespan=lifespan(rota)` from "
            "rota.asgi. A test client runs the lifespan only if it is used as a context manager"
        )
    return found


def _started(rota: Rota, *, worker: bool, concurrency: int) -> "ServerWorker | None":
    try:
        rota.start()
    except StoreLocked as error:
        raise StoreLocked(
            f"{error.detail}. Only one process of a server can embed the coordinator. Run one "
            "process, or start a separate coordinator, `rota up --store sqlite:///FILE`, and set "
            "ROTA_URL to its address in all processes: Rota(embedded=True) then uses it",
            **error.facts,
        ) from error
    is_embedded = rota.client.transport.is_embedded
    return ServerWorker(rota, concurrency) if worker and not is_embedded else None


def _stop(rota: Rota, background: "ServerWorker | None") -> None:
    if background is not None:
        background.stop()
    rota.close()


class ServerWorker:
    """A worker on a thread of a server, for a coordinator elsewhere."""

    def __init__(self, rota: Rota, concurrency: int) -> None:
        self._worker = Worker(rota, concurrency=concurrency, drain_s=DRAIN_S)
        # A daemon: a handler that never returns must not keep the server from ending.
        self._thread = threading.Thread(target=self._run, name="rota-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Drain the worker, and wait for its end."""
        self._worker.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._worker.arun())
        except RotaError as error:
            # Requests are served all the same. Its tasks wait for another worker.
            log.error("server_worker_failed", problem=error.detail)  # noqa: TRY400 - no defect
