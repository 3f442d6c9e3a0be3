"""Celery's interface on Rota: change the import, and keep the code.

    from rota.compat.celery import Celery, shared_task, chain, group, chord, crontab

    app = Celery("shop")  # the coordinator of ROTA_URL

The app is a `Rota` app, so `rota worker shop:app` runs its tasks, and tasks of both kinds can live
in it. What has no counterpart raises an error that says what to write instead. Celery itself is not
needed.
"""

from rota.compat.celery.app import Celery, current_app, shared_task
from rota.compat.celery.beat import crontab
from rota.compat.celery.canvas import Signature, chain, chord, group, signature
from rota.compat.celery.errors import Ignore, MaxRetriesExceededError, Reject
from rota.compat.celery.results import AsyncResult, EagerResult, GroupResult, RunResult
from rota.compat.celery.task import CeleryTask

__all__ = [
    "AsyncResult",
    "Celery",
    "CeleryTask",
    "EagerResult",
    "GroupResult",
    "Ignore",
    "MaxRetriesExceededError",
    "Reject",
    "RunResult",
    "Signature",
    "chain",
    "chord",
    "crontab",
    "current_app",
    "group",
    "shared_task",
    "signature",
]
