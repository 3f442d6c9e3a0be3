"""Backends that stand in for the two of Django, in Django's own tests."""

import asyncio
import os
import threading
from typing import Any

from django.db import connection  # type: ignore[import-untyped]  # Django has no types
from msgspec.structs import replace

from rota.contrib.django.backend import PreparedCall, RotaBackend
from rota.contrib.django.options import BackendOptions
from rota.contrib.django.worker import DjangoWorker


class WaitingBackend(RotaBackend):
    """Stands in for the dummy backend: its coordinator has no worker, so no task runs."""

    results: list[Any] = []  # noqa: RUF012 - Django makes a backend for each thread

    def clear(self) -> None:
        self.results.clear()

    def enqueue(self, *call: Any) -> Any:
        self.results.append(super().enqueue(*call))
        return self.results[-1]

    async def aenqueue(self, *call: Any) -> Any:
        self.results.append(await super().aenqueue(*call))
        return self.results[-1]


class WorkingBackend(RotaBackend):
    """Stands in for the immediate backend: a worker of this process has run what is enqueued."""

    @property
    def checked_options(self) -> BackendOptions:
        return replace(super().checked_options, url=os.environ["SITE_WORKING_URL"])

    def _prepare(self, *call: Any) -> PreparedCall:
        prepared = super()._prepare(*call)
        return prepared._replace(options={**prepared.options, "max_attempts": 1})

    def enqueue(self, *call: Any) -> Any:
        result = super().enqueue(*call)
        if not connection.in_atomic_block:  # else there is no task yet
            thread = threading.Thread(target=self._work)
            thread.start()
            thread.join()
        result.refresh()
        return result

    async def aenqueue(self, *call: Any) -> Any:
        result = await super().aenqueue(*call)
        await asyncio.to_thread(self._work)
        await result.arefresh()
        return result

    def _work(self) -> None:
        DjangoWorker(self, max_tasks=1).run()
