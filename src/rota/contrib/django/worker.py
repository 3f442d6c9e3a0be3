"""The worker of a Django project: all tasks of one backend, on some of its queues."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rota.contrib.django import registry
from rota.contrib.django.backend import RotaBackend
from rota.contrib.django.handlers import add_handlers
from rota.contrib.django.options import address_of
from rota.errors import Invalid
from rota.sdk.app.app import Rota
from rota.sdk.worker.stopping import StopReason
from rota.sdk.worker.worker import DEFAULT_CONCURRENCY, DRAIN_S, Worker

RELOAD_DRAIN_S = 5.0  # for running tasks when code has changed
STOP_MARGIN_S = 5.0  # beyond the drain, to report results and leave

__all__ = ["DEFAULT_CONCURRENCY", "DRAIN_S", "RELOAD_DRAIN_S", "DjangoWorker"]


class DjangoWorker:
    """Runs the tasks of a backend until it is stopped."""

    def __init__(
        self,
        backend: RotaBackend,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        drain_s: float = DRAIN_S,
        max_tasks: int | None = None,
        worker_id: str | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Without `queues` it serves those of the backend; `say` gets a line for the terminal."""
        options = backend.checked_options
        tasks = registry.tasks_of(backend.alias)
        if not tasks:
            raise Invalid(
                f"no installed app has a task of the backend {backend.alias!r}: define one with "
                "@task in the module `tasks` of an app that is in INSTALLED_APPS"
            )
        served = sorted(backend.queues) if queues is None else list(queues)
        unknown = [one for one in served if backend.queues and one not in backend.queues]
        if unknown:
            known = ", ".join(sorted(backend.queues))
            raise Invalid(f"the backend has no queue {unknown[0]!r}; its QUEUES are: {known}")
        app = Rota(address_of(options), options.token, verify=options.verify)
        add_handlers(app, backend, tasks, lambda: self.worker.worker_id)
        self._app = app
        self._say = say
        self._stop_within_s = drain_s + STOP_MARGIN_S
        self._ended = threading.Event()
        self.worker = Worker(
            app,
            concurrency=concurrency,
            queues=served or None,  # an empty QUEUES means all
            drain_s=drain_s,
            max_tasks=max_tasks,
            worker_id=worker_id,
            on_registered=self._introduce,
        )

    def run(self) -> StopReason:
        """Work on this thread until stopped; on the main thread by SIGTERM and SIGINT too."""
        try:
            return self.worker.run()
        finally:
            self._app.close()
            self._ended.set()

    def drain(self) -> None:
        """Stop, and wait for the end; from another thread than the one that works."""
        self.worker.stop()
        self._ended.wait(self._stop_within_s)

    def drain_before_reload(self, **_: Any) -> None:
        """Drain when Django's reloader has seen that code has changed; it restarts the process."""
        self.drain()

    def _introduce(self, worker_id: str) -> None:
        tasks = ", ".join(sorted(self._app.tasks))
        self._say(f"worker {worker_id} at {self._app.client.transport.address} runs: {tasks}")
