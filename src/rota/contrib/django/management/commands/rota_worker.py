"""`manage.py rota_worker`: a worker for the tasks of a backend."""

import argparse
import atexit
from functools import partial
from typing import Any

from django.conf import settings  # type: ignore[import-untyped]  # Django has no types
from django.core.management.base import (  # type: ignore[import-untyped]  # as above
    BaseCommand,
    CommandError,
    CommandParser,
)
from django.utils import autoreload  # type: ignore[import-untyped]  # as above

from rota.contrib.django.checks import rota_backends
from rota.contrib.django.worker import DEFAULT_CONCURRENCY, DRAIN_S, RELOAD_DRAIN_S, DjangoWorker
from rota.errors import RotaError


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = (
        "Start a worker that runs tasks. Ctrl-C lets running tasks finish, a second one does not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backend", help="The alias in TASKS. Default: the only one of Rota.")
        parser.add_argument(
            "--queues", help="Queues with commas between them. Default: QUEUES of the backend."
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            default=DEFAULT_CONCURRENCY,
            help="How many tasks run at once. Default: %(default)s.",
        )
        parser.add_argument(
            "--drain",
            type=float,
            default=DRAIN_S,
            metavar="SECONDS",
            help="How long running tasks may take to finish after a stop. Default: %(default)s.",
        )
        parser.add_argument(
            "--max-tasks", type=int, help="Stop after this many tasks. Default: never."
        )
        parser.add_argument("--worker-id", help="Default: the coordinator chooses one.")
        parser.add_argument(
            "--reload",
            action=argparse.BooleanOptionalAction,
            default=settings.DEBUG,
            help="Restart when code changes. Default: settings.DEBUG.",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if options["reload"]:
            autoreload.run_with_reloader(partial(self._work_until_reloaded, options))
        else:
            self._worker(options).run()

    def _work_until_reloaded(self, options: dict[str, Any]) -> None:
        """Work on the thread that Django's reloader starts, until the process ends.

        Changed code, Ctrl-C and SIGTERM end the process from its main thread. The worker is drained
        first: what it does not finish in a short time goes back to its queue.
        """
        autoreload.raise_last_exception()
        worker = self._worker({**options, "drain": min(options["drain"], RELOAD_DRAIN_S)})
        autoreload.file_changed.connect(worker.drain_before_reload, weak=False)
        atexit.register(worker.drain)
        worker.run()

    def _worker(self, options: dict[str, Any]) -> DjangoWorker:
        backends = rota_backends()
        alias = options["backend"] or (next(iter(backends)) if len(backends) == 1 else None)
        if alias not in backends:
            known = ", ".join(backends) or "none"
            wanted = f"{alias!r} is no backend of Rota" if alias else "choose one by --backend"
            raise CommandError(f"{wanted}; TASKS has these: {known}")
        queues = options["queues"]
        try:
            return DjangoWorker(
                backends[alias],
                queues=None if queues is None else [one.strip() for one in queues.split(",")],
                concurrency=options["concurrency"],
                drain_s=options["drain"],
                max_tasks=options["max_tasks"],
                worker_id=options["worker_id"],
                say=self._say,
            )
        except RotaError as error:
            raise CommandError(error.detail) from error

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
