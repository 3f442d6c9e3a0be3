"""Coordinators and workers that really run: on threads of the test, over real sockets."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rota import Rota, StopReason, Worker
from rota.core.access import AccessToken, Scope
from rota.core.commands import AddToken
from rota.gateways.auth.authenticator import hash_of, new_secret
from rota.node import Node
from rota.settings import Settings
from tests.databases.empty import begin_empty

T = TypeVar("T")

PATIENCE_S = 30.0  # for what is expected to happen; reached only by a failing test
# Workers of tests beat often, and the machine may be too busy for one of them to run for a second.
# A worker is taken for dead only when the test has failed anyway.
FORGIVING = {"degraded_after": 100.0, "unhealthy_after": 150.0}


class Server:
    """A coordinator on a thread; may be stopped and started again on the same port and file."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        path = folder / "rota.db"
        if "store" not in settings:
            begin_empty(path)
        store = f"sqlite:///{path}"
        self._settings = {"port": 0, "zmq_port": 0, "store": store, **FORGIVING, **settings}
        self.url = ""
        self.node: Node
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="test-coordinator")
        self._thread.start()
        self.url = ready.result(PATIENCE_S)
        self._settings["port"] = int(self.url.rpartition(":")[2])
        return self

    def stop(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self.node.ask_to_stop)
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()
            self._thread = None

    def wait_parked(self) -> None:
        """Wait until a call for work waits at the coordinator."""

        async def parked(node: Node) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while node.coordinator.metrics().waiting_leases == 0:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0)

        self.ask(parked)

    def ask(self, question: Callable[[Node], Awaitable[T]]) -> T:
        """Run something on the coordinator's own loop."""

        async def asked() -> T:
            return await question(self.node)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(PATIENCE_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self, ready: Future[str]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: Future[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self.node = Node(Settings(**self._settings))
        await self.node.serve(ready.set_result)


class RunningWorker:
    """A worker on a thread, and how it ended."""

    def __init__(self, app: Rota, **options: Any) -> None:
        self.registered = threading.Semaphore(0)
        options.setdefault("heartbeat_interval_ms", 200)
        self.worker = Worker(app, on_registered=lambda _: self.registered.release(), **options)
        self._ended: Future[StopReason] = Future()
        self._thread = threading.Thread(target=self._run, name="test-worker")
        self._thread.start()

    def wait_registered(self) -> None:
        assert self.registered.acquire(timeout=PATIENCE_S)

    def ended(self) -> StopReason:
        reason = self._ended.result(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        return reason

    def stop(self) -> StopReason:
        self.worker.stop()
        return self.ended()

    def _run(self) -> None:
        try:
            self._ended.set_result(asyncio.run(self.worker.arun()))
        except BaseException as error:  # noqa: BLE001 - raised again where the test asks
            self._ended.set_exception(error)


@contextmanager
def working(app: Rota, **options: Any) -> Iterator[RunningWorker]:
    """A registered worker for the time of a block; it may have ended by then."""
    running = RunningWorker(app, **options)
    try:
        running.wait_registered()
        yield running
    finally:
        running.stop()


def token_of(server: Server, scope: str) -> str:
    """A new token of a scope."""
    secret = new_secret()
    added = AccessToken(
        id=f"t-{scope}-{secret[5:12]}",
        hash=hash_of(secret),
        name=scope,
        scopes=(Scope(scope),),
        created_at_ms=0,
    )

    async def add(node: Node) -> None:
        await node.coordinator.execute(AddToken(added))
        node.authenticator.forget_tokens()

    server.ask(add)
    return secret


def first_ended(*workers: RunningWorker) -> RunningWorker:
    """Whichever ends first, once it has."""
    ends = {one._ended: one for one in workers}
    done = wait(ends, timeout=PATIENCE_S, return_when=FIRST_COMPLETED).done
    return ends[done.pop()]
