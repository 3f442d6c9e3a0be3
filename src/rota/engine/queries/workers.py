"""Reads of workers: their registrations, the leases they hold, and their quality."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from rota.core.dispatch.wait_reasons import WorkerSlot, is_open
from rota.core.snapshot import Quality
from rota.core.workers import circuit_breaker, model
from rota.core.workers.model import HealthPolicy, WorkerRecord
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore


class WorkerFigures(Struct, frozen=True, kw_only=True):
    """A worker, the number of its leases, and its quality by task name."""

    worker: WorkerRecord
    held: int
    qualities: dict[str, Quality]


class WorkerLoad(NamedTuple):
    worker: WorkerRecord
    held: int  # the number of its leases


class WorkerQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read
        self._lanes = reader.lanes

    async def by_id(self, worker_id: str) -> WorkerFigures | None:
        def body(tx: Transaction) -> WorkerFigures | None:
            store = WorkerStore(tx)
            found = store.by_ids([worker_id])
            if not found:
                return None
            ((worker, held),) = loads_of(tx, self._lanes, found.values())
            qualities = store.qualities([worker_id]).get(worker_id, {})
            return WorkerFigures(worker=worker, held=held, qualities=qualities)

        return await self._read(body)

    async def all(self) -> list[WorkerFigures]:
        def body(tx: Transaction) -> list[WorkerFigures]:
            store = WorkerStore(tx)
            loads = loads_of(tx, self._lanes, store.all().values())
            qualities: dict[str, dict[str, Quality]] = {}
            for (worker_id, name), quality in store.all_qualities().items():
                qualities.setdefault(worker_id, {})[name] = quality
            return [
                WorkerFigures(worker=worker, held=held, qualities=qualities.get(worker.id, {}))
                for worker, held in loads
            ]

        return await self._read(body)

    async def registered(self, worker_ids: Sequence[str]) -> set[str]:
        """Return those of the given workers that are registered."""
        return await self._read(lambda tx: set(WorkerStore(tx).by_ids([*worker_ids])))


def loads_of(tx: Transaction, lanes: Lanes, workers: Collection[WorkerRecord]) -> list[WorkerLoad]:
    """Return each worker with the number of its leases."""
    held = TaskStore(tx, lanes).lease_counts([worker.incarnation for worker in workers])
    return [WorkerLoad(worker, held[worker.incarnation]) for worker in workers]


def slots_of(
    tx: Transaction, lanes: Lanes, *, health: HealthPolicy, now_ms: int
) -> list[WorkerSlot]:
    """Return each worker with what decides whether it would take work now."""
    store = WorkerStore(tx)
    loads = loads_of(tx, lanes, store.all().values())
    broken = _open_breakers(store.all_qualities(open_only=True), now_ms=now_ms)
    return [
        WorkerSlot(
            worker=worker,
            held=held,
            open_breakers=frozenset(broken.get(worker.id, ())),
            health=model.health(
                age_ms=now_ms - worker.last_heartbeat_ms,
                interval_ms=worker.heartbeat_interval_ms,
                policy=health,
            ),
        )
        for worker, held in loads
    ]


def _open_breakers(
    qualities: Mapping[tuple[str, str], Quality], *, now_ms: int
) -> dict[str, set[str]]:
    """Return the task names whose circuit breaker is open, by worker."""
    found: dict[str, set[str]] = {}
    for (worker_id, name), quality in qualities.items():
        state = circuit_breaker.current_state(quality.breaker, now_ms=now_ms)
        if is_open(state):
            found.setdefault(worker_id, set()).add(name)
    return found
