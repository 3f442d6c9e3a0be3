"""Background workers of a program with an embedded coordinator."""

import asyncio
import threading
from collections.abc import Iterable

from rota.sdk.task import App

DRAIN_S = 10.0  # how long handlers may run on when the program ends


class BackgroundWorkers:
    """Starts a worker for those tasks of an app that have none yet."""

    def __init__(self, app: App, *, concurrency: int) -> None:
        self.is_wanted = True
        self._app = app
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._covered: set[str] = set()
        self._running: list[_BackgroundWorker] = []

    def cover(self) -> None:
        """Have a worker for every task defined so far, if the coordinator is embedded."""
        if not self.is_wanted or not self._concurrency or self._covered.issuperset(self._app.tasks):
            return
        with self._lock:
            if not self._app.client.transport.is_embedded:
                self.is_wanted = False
                return
            missing = self._app.tasks.keys() - self._covered
            if missing:
                self._running.append(_BackgroundWorker(self._app, missing, self._concurrency))
                self._covered |= missing

    def stop(self) -> None:
        with self._lock:
            running, self._running = self._running, []
            self._covered = set()
        for one in running:
            one.worker.stop()
        for one in running:
            one.thread.join()


class _BackgroundWorker:
    def __init__(self, app: App, names: Iterable[str], concurrency: int) -> None:
        from rota.sdk.worker.worker import Worker  # noqa: PLC0415 - submitters need no worker

        # This is the only worker there is, so it has every capability that its tasks require.
        capabilities = {one for name in names for one in app.tasks[name].requires}
        self.worker = Worker(
            app,
            tasks=sorted(names),
            concurrency=concurrency,
            capabilities=sorted(capabilities),
            drain_s=DRAIN_S,
        )
        # A daemon, because the interpreter joins other threads before anything can stop them.
        self.thread = threading.Thread(target=self._run, name="rota-worker", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.run(self.worker.arun())
