"""Who runs the tasks of a program whose coordinator is embedded? Workers on threads of its own."""

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.sdk.app import Rota
    from rota.sdk.worker import Worker

DRAIN_S = 10.0  # what handlers get to finish when the program ends


class BackgroundWorkers:
    """Starts a worker for those tasks of an app that none has yet."""

    def __init__(self, app: "Rota", *, concurrency: int) -> None:
        self.is_wanted = True
        self._app = app
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._covered: set[str] = set()
        self._running: list[_Background] = []

    def cover(self) -> None:
        """Have a worker for every task defined up to now, if the coordinator is embedded."""
        if not self.is_wanted or not self._concurrency or self._covered.issuperset(self._app.tasks):
            return
        with self._lock:
            if not self._app.client.transport.is_embedded:
                self.is_wanted = False
                return
            missing = self._app.tasks.keys() - self._covered
            if missing:
                self._running.append(_Background(self._worker_for(missing)))
                self._covered |= missing

    def stop(self) -> None:
        with self._lock:
            running, self._running = self._running, []
            self._covered = set()
        for one in running:
            one.worker.stop()
        for one in running:
            one.thread.join()

    def _worker_for(self, names: set[str]) -> "Worker":
        from rota.sdk.worker import Worker  # noqa: PLC0415 - submitters alone need no worker

        # The program is the whole fleet, so its worker can do whatever its tasks require.
        capabilities = {one for name in names for one in self._app.tasks[name].requires}
        return Worker(
            self._app,
            tasks=sorted(names),
            concurrency=self._concurrency,
            capabilities=sorted(capabilities),
            drain_s=DRAIN_S,
        )


class _Background:
    def __init__(self, worker: "Worker") -> None:
        self.worker = worker
        # A daemon, because the interpreter joins other threads before it lets anyone stop them.
        self.thread = threading.Thread(target=self._run, name="rota-worker", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.run(self.worker.arun())
