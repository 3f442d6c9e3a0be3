"""Registration of workers and the return of their leases, the same for every gateway."""

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from rota.core import access, limits
from rota.core.access import Caller
from rota.core.commands import RegisterWorker, ReturnLeases
from rota.core.ids import TaskId
from rota.engine.coordinator import Coordinator
from rota.errors import Forbidden, RotaError, TooMany
from rota.messages import WorkerRegistration
from rota.settings import Settings

log = structlog.get_logger("rota.gateways")

GIVEN_ID_BYTES = 8
RECOUNT_AFTER_S = 5.0  # a caller at its limit is not looked up more often than this

FindWorkers = Callable[[Sequence[str]], Awaitable[set[str]]]


def registration_of(asked: WorkerRegistration, caller: Caller) -> RegisterWorker:
    """The command that registers a worker, if the caller may register it so."""
    queues = caller.queues if asked.queues is None else tuple(asked.queues)
    if caller.queues is not None:
        _check_queues(caller, queues)
    given_id = caller.worker_id or f"w-{secrets.token_hex(GIVEN_ID_BYTES)}"
    worker_id = asked.worker_id or given_id
    access.check_worker(caller, worker_id)
    return RegisterWorker(
        worker_id=worker_id,
        node_id=asked.node_id,
        capabilities=tuple(dict.fromkeys(asked.capabilities)),
        max_concurrent_tasks=asked.max_concurrent_tasks,
        tasks=None if asked.tasks is None else tuple(dict.fromkeys(asked.tasks)),
        queues=None if queues is None else tuple(dict.fromkeys(queues)),
        heartbeat_interval_ms=asked.heartbeat_interval_ms,
        group=asked.group,
        labels=asked.labels,
        by=caller,
    )


def _check_queues(caller: Caller, queues: tuple[str, ...] | None) -> None:
    if queues is None:
        raise Forbidden(f"token {caller.name!r} is bound to queues; this worker serves all")
    for queue in queues:
        access.check_queue(caller, queue)


def return_leases(
    coordinator: Coordinator, worker_id: str, incarnation: int, leases: Iterable[tuple[TaskId, int]]
) -> None:
    """Return tasks that never reached their worker, as if they had never been leased.

    Not awaited: a return that fails is only late, since a lease that no heartbeat lists expires.
    """
    returned = ReturnLeases(worker_id=worker_id, incarnation=incarnation, leases=tuple(leases))
    if returned.leases:
        try:
            coordinator.execute(returned, on_reply=lambda _: None)
        except RotaError as error:
            log.debug("lease_return_failed", code=error.code)


class WorkerQuota:
    """Limits the workers that each caller registers, so that none fills the registry alone.

    The registry has a limit for all workers; each caller has a smaller one. This coordinator counts
    what a caller has registered since its start. Whether those workers are still registered is
    looked up only when a caller reaches its limit. Belongs to the event loop.
    """

    def __init__(self, settings: Settings, find_registered: FindWorkers) -> None:
        most = settings.max_workers
        self._share = most - most // limits.LEFT_PART
        self._find_registered = find_registered
        self._workers: dict[str, set[str]] = {}  # ids, by caller
        self._recounted_at_s: dict[str, float] = {}

    async def check(self, holder: str, worker_id: str) -> None:
        """Refuse a caller that would have more workers than its share."""
        workers = self._workers.setdefault(holder, set())
        if worker_id not in workers and len(workers) >= self._share:
            workers = await self._recounted(holder, workers)
            if len(workers) >= self._share:
                raise TooMany(
                    f"workers: one caller registers at most {self._share} at once",
                    limit=self._share,
                    setting="max_workers",
                    retry_after_s=round(RECOUNT_AFTER_S),
                )
        workers.add(worker_id)

    async def _recounted(self, holder: str, workers: set[str]) -> set[str]:
        now_s = time.monotonic()
        if now_s - self._recounted_at_s.get(holder, -RECOUNT_AFTER_S) < RECOUNT_AFTER_S:
            return workers
        self._recounted_at_s[holder] = now_s
        workers &= await self._find_registered(list(workers))
        return workers
